"""Scripts that start other scripts: roots, arguments, variables and directives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.command import read_commands
from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files

JOB: Final = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"
    "srun python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --bf16"
    " --micro-batch-size 1 --global-batch-size 32 --seq-length 2048 --tensor-model-parallel-size 8\n"
)


def tp(text: str, **sourced: str) -> object:
    """Return ``--tp`` of a script, where others are named by their stems."""
    found = read_commands(text, "root.sh", {f"{name}.sh": each for name, each in sourced.items()})
    return {entry.key: entry.value for entry in found.entries}.get("--tp")


@pytest.mark.parametrize(
    "files",
    [
        {"a.sh": JOB + "sbatch a.sh\n"},
        {"a.sh": JOB + "sbatch b.sh\n", "b.sh": "#!/bin/bash\npython prepare.py --shards 8\nsbatch a.sh\n"},
        {"a.slurm": JOB.replace("srun", "bash b.sh\nsrun"), "b.sh": "sbatch a.slurm\n"},
    ],
)
def test_scripts_that_start_themselves_or_each_other_are_read_once(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")

    found = import_files([str(tmp_path / name) for name in files], ImportOptions(cluster="dgx-h100")).data

    assert found["cluster"] == {"node": "dgx-h100", "nodes": 2}
    assert isinstance(strategy := found["strategy"], dict)
    assert strategy["tp"] == 8


@pytest.mark.parametrize(
    "text", ['A="4 2"\neval "set -- $A"\n', "source set.sh\n", 'f() { set -- 1; }\nset -- 4\nf 2 3\nbash -c "set -- 1"\n']
)
def test_arguments_that_eval_or_a_sourced_file_sets_stay(text: str) -> None:
    assert tp(text + "python train.py --tp ${1:-1}\n", set="set -- 4 2\n") == 4


@pytest.mark.parametrize(
    "line",
    [
        "srun ./leaf.sh 4",
        "srun --ntasks-per-node=8 leaf.sh 4",
        "srun -N 2 --mpi pmix leaf.sh 4",
        "srun bash -x leaf.sh 4",
        "bash -o pipefail leaf.sh 4 -c 2",
        "mpirun -np 8 ./leaf.sh 4",
        "env A=1 ./leaf.sh 4",
        "sbatch -N 2 leaf.sh 4",
    ],
)
def test_a_script_behind_launchers_and_options_has_its_arguments(line: str) -> None:
    assert tp(f"{line}\n", leaf="python train.py --tp ${1:-1}\n") == 4


@pytest.mark.parametrize("line", ["chmod +x leaf.sh", "ssh node cp leaf.sh /tmp", "srun cat leaf.sh", "python edit.py leaf.sh 4"])
def test_a_script_that_is_only_named_is_not_started(line: str) -> None:
    assert tp(f"{line}\n", leaf="python train.py --tp ${1:-1}\n") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TP=2; bash d.sh", 4),
        ("export TP=2; bash d.sh", 2),
        ("set -a; TP=2; set +a; bash d.sh", 2),
        ("TP=2 bash d.sh", 2),
        ("TP=2 bash other.sh; bash d.sh", 4),
        ("sbatch --export=ALL,TP=2 d.sh", 2),
        ("bash sets.sh; bash d.sh", 4),
        ("TP=2; source d.sh", 2),
        ("source sets.sh; python train.py --tp $TP", 8),
        ("TP=1; bash sets.sh; python train.py --tp $TP", 1),
    ],
)
def test_a_started_script_has_exported_variables_and_keeps_its_own(text: str, expected: int) -> None:
    assert tp(f"{text}\n", d="python train.py --tp ${TP:-4}\n", sets="TP=8\n", other="true\n") == expected


def test_directives_count_of_scripts_that_sbatch_starts() -> None:
    job = "#SBATCH --nodes=4\npython train.py --tp 2\n"

    found = {
        line: [each.value for each in read_commands(line, "root.sh", {"d.sh": job}).entries if each.key == "sbatch.--nodes"]
        for line in ("bash d.sh\n", "sbatch d.sh\n")
    }

    assert found == {"bash d.sh\n": [], "sbatch d.sh\n": [4]}


@pytest.mark.parametrize(("line", "expected"), [("sbatch d.sh", 64), ("sbatch --nodes=4 d.sh", 128), ("sbatch -N 4 d.sh", 128)])
def test_a_submitted_script_has_the_variables_of_slurm(line: str, expected: int) -> None:
    assert tp(f"{line}\n", d="#SBATCH --nodes=2\nGBS=$((SLURM_NNODES * 32))\npython train.py --tp $GBS\n") == expected


NANOTRON: Final = (
    "model: {dtype: bfloat16, model_config: {hidden_size: 2048, intermediate_size: 5632, num_attention_heads: 32, num_hidden_layers: 24,"
    " vocab_size: 32000}}\nparallelism: {dp: 8, pp: 1, tp: 2}\n"
    "tokens: {batch_accumulation_per_replica: 8, micro_batch_size: 2, sequence_length: 2048}\n"
)
PARAMETERS: Final = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --bf16 --micro-batch-size 1"
OF_PARAMETERS: Final = 'N=2\nMEGATRON_PARAMS="$EXTRA --global-batch-size 32 --seq-length 2048 --tensor-model-parallel-size 8"\n. ./end.sh\n'


@pytest.mark.parametrize(
    "files",
    [
        {
            "run.sh": 'P="run_train.py --config-file job.yaml"\nsrun bash -c "torchrun --nproc-per-node 8 --nnodes 2 $P"\n',
            "job.yaml": NANOTRON,
        },
        {
            "run.sh": f'EXTRA="{PARAMETERS}"\n. ./config.sh\n',
            "config.sh": OF_PARAMETERS,
            "end.sh": "torchrun --nproc-per-node 8 --nnodes $N pretrain_gpt.py $MEGATRON_PARAMS\n",
        },
    ],
    ids=["a program that is not known", "a script of variables alone"],
)
def test_a_script_of_a_job_need_not_start_a_known_trainer_itself(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")

    found = import_files([str(tmp_path / name) for name in files], ImportOptions(cluster="dgx-h100")).data

    assert found["cluster"] == {"node": "dgx-h100", "nodes": 2}


@pytest.mark.parametrize(
    "text",
    [
        "root 7 1 0 ? 00:00 python torchrun --nproc-per-node 8 --nnodes 4 --node-rank 3 pretrain_gpt.py --num-layers 32\n"
        f"root 8 7 99 ? 02:11 python -u pretrain_gpt.py {PARAMETERS} --global-batch-size 32 --seq-length 2048\n",
        "cat > hosts <<E\na slots=8\nb slots=8\nc slots=8\nd slots=8\nE\n"
        f"deepspeed --hostfile hosts pretrain_gpt.py {PARAMETERS} --global-batch-size 32 --seq-length 2048\n",
    ],
    ids=["ps", "hostfile"],
)
def test_the_nodes_of_a_launcher_are_read(tmp_path: Path, text: str) -> None:
    """Those of another line of ``ps``, and those of a file of hosts that a script writes."""
    (tmp_path / "job.sh").write_text(text, "utf-8")

    assert import_files([str(tmp_path / "job.sh")], ImportOptions(cluster="dgx-h100")).data["cluster"] == {"node": "dgx-h100", "nodes": 4}
