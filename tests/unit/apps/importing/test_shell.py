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
        ("a $((2 * (3 + 4)))", ["a", "14"]),
        ("a # b", ["a"]),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: list[str]) -> None:
    assert [word.text for word in read_script(text).commands[-1]] == words


def test_a_variable_that_holds_itself_ends() -> None:
    read_script("A=$A$A\n" * 200 + "a $A ${B:-${B:-${B}}}")
