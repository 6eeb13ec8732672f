"""Shell text: variables are expanded as a shell would, and nothing is executed."""

from __future__ import annotations

import pytest

from clustersim.apps.importing.command import read_commands
from clustersim.apps.importing.shell import read_script

SCRIPT = """#!/bin/bash
#SBATCH --nodes=4
export NCCL_DEBUG=INFO
TP=${TP:-8}
NODES=4
MODEL=(
    --num-layers 32  # a comment
    --hidden-size 4096
)
if [ "$TP" -eq 8 ]; then
  MODEL+=(--fp8-format hybrid)
else
  MODEL+=(--fp16)
fi
COMMON="
  --seq-length 4096
"
cat > other.json <<END
{"--not-an-option": 1}
END
torchrun --nnodes $NODES --nproc_per_node=8 pretrain_gpt.py \\
    "${MODEL[@]}" $COMMON \\
    --tensor-model-parallel-size $TP --global-batch-size $((NODES * 32)) --split '99,1,0' --save "$HOME/x y" 2>&1 | tee log
"""


def values(text: str) -> dict[str, object]:
    return {entry.key: entry.value for entry in read_commands(text, "job.sh").entries}


def test_a_script_is_read_with_its_variables() -> None:
    found = values(SCRIPT)

    assert {key: found[key] for key in ("sbatch.--nodes", "env.NCCL_DEBUG", "launcher.--nnodes", "launcher.--nproc_per_node")} == {
        "sbatch.--nodes": 4,
        "env.NCCL_DEBUG": "INFO",
        "launcher.--nnodes": 4,
        "launcher.--nproc_per_node": 8,
    }
    assert found["program"] == "pretrain_gpt.py"
    assert (found["--num-layers"], found["--hidden-size"], found["--seq-length"]) == (32, 4096, 4096)
    assert found["--fp8-format"] == "hybrid"
    assert "--fp16" not in found
    assert found["--global-batch-size"] == 128
    assert found["--split"] == "99,1,0"
    assert found["--save"] == "$HOME/x y"
    assert "--not-an-option" not in found


def test_an_option_has_the_line_where_it_is_written() -> None:
    lines = {entry.key: entry.line for entry in read_commands(SCRIPT, "job.sh").entries}

    rows = SCRIPT.splitlines()
    for option in ("--hidden-size", "--fp8-format", "--seq-length", "--global-batch-size"):
        assert option in rows[(lines[option] or 0) - 1]


@pytest.mark.parametrize(
    "text", ["x.py --a $(touch here)", "x.py --a `touch here`", "A=$(touch here)\nx.py --a $A", "x.py --a ${A:-$(touch here)}"]
)
def test_nothing_of_a_script_is_executed(text: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("empty")
    monkeypatch.chdir(folder)

    value = values(text)["--a"]

    assert "touch here" in str(value)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("A=1; a $A ${A}2 ${B:-3} ${A:+4}", ["a", "1", "12", "3", "4"]),
        ("A='1 2'; a $A \"$A\"", ["a", "1", "2", "1 2"]),
        ("a \\\n b", ["a", "b"]),
        ("a ${UNKNOWN} $UNKNOWN", ["a", "${UNKNOWN}", "$UNKNOWN"]),
        ('B="b $((2 * (3 + 4)))"; a $B', ["a", "b", "14"]),
        ("a # b", ["a"]),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: list[str]) -> None:
    assert [word.text for word in read_script(text).commands[-1]] == words


def test_a_variable_that_holds_itself_ends() -> None:
    read_script("A=$A$A\n" * 200 + "a $A ${B:-${B:-${B}}}")


JOB = "pretrain_gpt.py --num-layers 7"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"export L='torchrun --nnodes 4'\nexport CMD=\"`pwd`/{JOB} --tp $TP\"\nsrun bash -c '$L --node_rank $RANK $CMD'",
            {"launcher.--nnodes": 4},
        ),
        (f'srun -N 4 --image i bash -lc "cd /w && export A=1; python {JOB}"', {"launcher.-N": 4, "env.A": "1"}),
        (f"srun -N 2 bash <<'EOF'\ntorchrun {JOB}\nEOF", {"launcher.-N": 2}),
        (
            f'A=({"--x 1 " * 900})\nCMD="\ncd /w;\npython {JOB} ${{A[@]}}"\nsbatch <<EOF\nsrun -N 2 bash -x -c "$CMD" | tee \\$ID.log\nEOF',
            {"launcher.-N": 2},
        ),
        (f"cat <<EOF > run.sh\n#!/bin/bash\npython {JOB}\nEOF\nsrun -N 2 bash run.sh", {"launcher.-N": 2}),
        (f"for ((tp=2; tp<=8; tp*=2)); do torchrun {JOB} --tp $tp; done", {"--tp": 2}),
        (f"set -aeu\nTP=4\nset +a\nPP=2\nbash -c 'torchrun {JOB} --tp $TP --pp ${{PP:-1}}'", {"--tp": 4, "--pp": 1}),
        (f"TP=4\ncat > run.sh <<'X'\ntorchrun {JOB} --tp ${{TP:-1}}\nX\nbash run.sh", {"--tp": 1}),
        (f"pdsh -w node[1-4] 'cd /x && torchrun --nnodes 4 {JOB}'", {"launcher.--nnodes": 4}),
        (f'for h in a b; do ssh $h "cd /x; torchrun --nnodes 2 {JOB}" & done', {"launcher.--nnodes": 2}),
        (f'sbatch -N 4 --wrap "srun torchrun --nproc_per_node 8 {JOB}"', {"launcher.--nproc_per_node": 8}),
        (f'CMD="torchrun --nproc_per_node 8 {JOB} 2>&1 | tee log"\neval ${{CMD}}', {"launcher.--nproc_per_node": 8}),
        (f"read -r -d '' CMD <<'EOF'\ntorchrun {JOB}\nEOF\n$CMD", {}),
        (f"run() {{\n local TP=$1\n torchrun {JOB} --tp ${{TP}}\n}}\nrun 4", {"--tp": 4}),
        (f'function launch {{\n torchrun --nnodes $N "$@"\n}}\nN=8\nlaunch {JOB} --tp 4', {"--tp": 4, "launcher.--nnodes": 8}),
        (f'S=${{S:-13b}}\ncase "$S" in\n 7b|7B) L=32;;\n "13b"|13B)\n  L=40 ;;\nesac\ntorchrun {JOB} --l $L', {"--l": 40}),
        (f'TP=4\nwhile [[ $# -gt 0 ]]; do\n case $1 in\n --tp) TP="$2"; shift 2;;\n esac\ndone\ntorchrun {JOB} --tp $TP', {"--tp": 4}),
        (f"TP=4\nwhile getopts 't:' o; do\n case $o in\n t) TP=$OPTARG;;\n esac\ndone\ntorchrun {JOB} --tp $TP", {"--tp": 4}),
        (f"A=1; B=2\nif [[ $A == 1 && $B == 2 ]]; then L=3; else L=4; fi\ntorchrun {JOB} --l $L", {"--l": 3}),
        (f"A=1; B=2\nif [ $A = 5 ] || [ $B = 2 ]; then L=3; else L=4; fi\ntorchrun {JOB} --l $L", {"--l": 3}),
        (f"F=1\n[[ $F == 1 ]] && E='--fp8 hybrid'\n[ $F == 0 ] && G=--fp16\ntorchrun {JOB} $E $G", {"--fp8": "hybrid", "--fp16": None}),
        (f'[ -z "$TP" ] && TP=8\n: ${{PP:=2}}\ntorchrun {JOB} --tp $TP --pp $PP', {"--tp": 8, "--pp": 2}),
        (f"((W = 4*8))\nlet G=W*4\nD=$(( W > 3 ? 5 : 6 ))\ntorchrun {JOB} --g $G --d $D", {"--g": 128, "--d": 5}),
        (f"W=$(expr 4 \\* 8)\nG=`expr $W + 2`\ntorchrun {JOB} --w $(echo $W) --g $G", {"--w": 32, "--g": 34}),
        (f"M[0]=--tp\nM[1]=7\ndeclare -A L=([7b]=32 [13b]=40)\nS=13b\ntorchrun {JOB} ${{M[*]}} --l ${{L[$S]}}", {"--tp": 7, "--l": 40}),
        (f"H=(a b c)\nN=a/7b.yaml\ntorchrun --nnodes ${{#H[@]}} {JOB} --n ${{N##*/}} --m ${{N%.yaml}}", {"--n": "7b.yaml", "--m": "a/7b"}),
        (f"if ! [ $A = 1 ]; then L=2; fi\nA=3\nif (( A > 2 )); then M=2; else M=3; fi\ntorchrun {JOB} --l $L --m $M", {"--l": 2, "--m": 2}),
        (f"TP=4\nunset TP\ntorchrun {JOB} --tp ${{TP:-${{L:-7}}}} ${{A:+--fp16}}", {"--tp": 7, "--fp16": None}),
        (f"srun -l -n 16 numactl --cpunodebind=0 python -u {JOB}", {"launcher.-n": 16}),
        (f"for tp in 1 2; do\n for ((i=0; i<3; i++)); do\n torchrun {JOB} --tp $tp\n done\ndone", {"--tp": 1}),
        (f"while true; do\n torchrun {JOB} --tp 2 && break\ndone", {"--tp": 2}),
        (f"C='2,4 8'\nIFS=, read -r TP X <<< \"$C\"\nread P Q <<< $X\ntorchrun {JOB} --tp $TP --q $Q", {"--tp": 2, "--q": 8}),
        (
            f"IFS=: read A B C <<< '1::3'\nread -rd '' D <<'X'\n--tp 2\n--q 8\nX\ntorchrun {JOB} --b x$B --c $C $D",
            {"--b": "x", "--c": 3, "--q": 8},
        ),
        (f"IFS=$'\\n' read -rd '' -a A <<X\n--tp 2\n--n 3\nX\ntorchrun {JOB} ${{A[@]}}", {"--tp": 2, "--n": 3}),
        (f"IFS=, read -ra A <<< 7,9; echo; cat <<< x\ntorchrun {JOB} --tp ${{A[1]}}", {"--tp": 9}),
        (
            f"python mason.py --num_nodes 4 --gpus 8 -- pip install x \\&\\& accelerate launch --num_processes 8 {JOB}",
            {"beaker.--num_nodes": 4},
        ),
        (f"gantry run --replicas 4 -- bash -c 'torchrun --nproc_per_node 8 {JOB}'", {"beaker.--replicas": 4}),
    ],
)
def test_a_script_is_followed_as_a_shell_would(text: str, expected: dict[str, object]) -> None:
    found = values(text)

    assert found["--num-layers"] == 7
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    "text", ["if " * 3000, "f() { f; f; }; f", "case a in (" * 500, "$(" * 3000, "{ ( " * 2000, "for x in $(" * 99, "a <<E\n" * 99]
)
def test_a_broken_or_endless_script_ends(text: str) -> None:
    read_script(text)


def test_the_output_of_a_command_is_the_value_of_an_option() -> None:
    assert values('x.py --a <(echo "b c") --d 1 > >(tee log)') == {"program": "x.py", "--a": "<(echo b c)", "--d": 1}


def test_the_output_of_a_command_that_is_input_alone_is_no_command() -> None:
    assert values("while read -r a; do\n  echo $a\ndone < <(ls --all)\nx.py --d 1") == {"program": "x.py", "--d": 1}
