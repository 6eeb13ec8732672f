"""Keys of jobs whose report and scenario must say the same, and the generation of attention that jobs name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, at, written

FILES = Path(__file__).parent / "files"
TWO = ImportOptions(cluster="dgx-h100", nodes=2)


def imported(tmp_path: Path, name: str, was: str, now: str, asked: ImportOptions = TWO) -> tuple[object, str]:
    text = (FILES / name).read_text(encoding="utf-8")
    assert was in text
    found = import_files([written(tmp_path, text.replace(was, now), name)], asked)
    notes = [key.note or "" for key in found.keys if key.to == "training.attention"]
    return at(found.data, "training.attention"), notes[-1]


@pytest.mark.parametrize(
    ("said", "attention"),
    [
        ("attn_implementation: flash_attention_2", "flash_2"),
        ("flash_attention: true", "flash_2"),
        ("attn_implementation: sdpa", "flash_2"),
        ("attn_implementation: flash_attention_3", "flash"),
        ("attn_implementation: kernels-community/flash-attn3", "flash"),
        ("attn_implementation: eager", "unfused"),
    ],
)
def test_attention_has_the_generation_that_a_job_names(tmp_path: Path, said: str, attention: str) -> None:
    found, _ = imported(tmp_path, "axolotl-hsdp-tp.yaml", "attn_implementation: flash_attention_2", said)

    assert found == attention


def test_attention_without_constants_on_a_machine_is_its_fastest_and_told(tmp_path: Path) -> None:
    asked = replace(TWO, cluster="dgx-b200")

    found = imported(tmp_path, "axolotl-hsdp-tp.yaml", "lr_scheduler", "lr_scheduler", asked)

    assert found == ("flash", "nothing is known of flash_2 on b200-sxm: the fastest there")


@pytest.mark.parametrize(
    ("said", "attention"), [("flash_attention_2", "flash_2"), ("fa2", "flash_2"), ("flash_attention_3", "flash"), ("sdpa", "flash_2")]
)
def test_trainers_on_transformers_name_it_alike(tmp_path: Path, said: str, attention: str) -> None:
    command = (
        "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --max_seq_length 8192"
        f" --bf16 --attn_implementation {said}\n"
    )

    found = import_files([written(tmp_path, command, "job.sh")], replace(TWO, nodes=1))

    assert (found.framework, at(found.data, "training.attention")) == ("transformers", attention)


def test_sequence_parallelism_without_tensor_parallelism_is_off_for_that_reason(tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 --nnodes 1 {MEGATRON} --tensor-model-parallel-size 1 --sequence-parallel\n"

    found = import_files([written(tmp_path, text, "job.sh")], ON_H100)
    told = [(key.how, key.value, key.note) for key in found.keys if key.to == "strategy.sequence_parallel"]

    assert told == [("read", True, None), ("derived", False, "tp is 1")]


def test_a_count_that_a_script_hands_on_has_an_effect(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=16\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 {MEGATRON} --global-batch-size 256\n"

    found = import_files([written(tmp_path, text, "job.sh")], ImportOptions(cluster="dgx-h100"))

    assert [(key.key, key.how, key.value) for key in found.keys if "nodes" in key.key and key.key[0] != "c"] == [
        ("sbatch.--nodes", "read", 16),
        ("launcher.--nnodes", "read", 16),
    ]
    assert at(found.data, "cluster.nodes") == 16


def test_a_value_with_several_meanings_is_shown_as_it_stands(tmp_path: Path) -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    text += '[compile]\ncomponents = ["model", "loss"]\n'

    found = import_files([written(tmp_path, text, "job.toml")], TWO)

    assert [key.value for key in found.keys if key.key == "compile.components"] == [["model", "loss"]]
