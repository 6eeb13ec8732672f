"""``clustersim plan`` and ``clustersim advise``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli

SMALL = (
    *("--only", "tp=1,2", "--only", "pp=1,2", "--only", "cp=1", "--only", "micro_batch_size=1", "--only", "offload=none"),
    *("--only", "schedule=1f1b", "--only", "zero_stage=0,1", "--only", "recompute=none"),
    *("-s", "training.global_batch_size=16", "-s", "training.seq_length=1024"),
)
QUESTION = ("llama3.2-1b", "dgx-h100", "--nodes", "1", *SMALL)


def test_the_first_line_is_the_layout_and_the_last_ones_the_certificate(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert "micro-batch 1" in lines[0]
    assert lines[1].strip().startswith("bound by ")
    assert "Certificate" in lines
    assert any("its bound is above the winner" in line for line in lines)
    assert "assumed: no prices are given" in outcome.err


def test_the_document_counts_all_layouts(cli: Cli) -> None:
    found = json.loads(cli("plan", *QUESTION, "--json").out)

    certificate = found["certificate"]
    assert found["found"]
    assert certificate["complete"]
    assert 1 + sum(certificate["why_not"].values()) == certificate["n_layouts"]
    assert found["winner"]["bound_s"] <= found["winner"]["step_time_s"]


def test_the_winner_runs_as_it_was_planned(cli: Cli, tmp_path: Path) -> None:
    found = json.loads(cli("plan", *QUESTION, "--json", "--write", "best.yaml").out)

    again = json.loads(cli("run", tmp_path / "best.yaml", "--json", "--no-plots").out)

    assert again["step_time_s"] == found["winner"]["step_time_s"]


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("megatron", "--tensor-model-parallel-size"),
        ("torchtitan", "tensor_parallel_degree = "),
        ("deepspeed", '"train_micro_batch_size_per_gpu": 1'),
    ],
)
def test_the_winner_is_written_for_a_framework(cli: Cli, framework: str, words: str) -> None:
    outcome = cli("plan", *QUESTION, "--only", "zero_stage=0", "--only", "placement=tp-cp-ep-dp-pp", "--as", framework)

    assert outcome.code == 0
    assert words in outcome.out


def test_an_unknown_framework_is_refused_before_anything_is_simulated(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION, "--as", "megatronn")

    assert outcome.code == 2
    assert "did you mean 'megatron'?" in outcome.err


def test_a_model_that_does_not_fit_ends_with_one(cli: Cli) -> None:
    outcome = cli("plan", "llama3-70b", "dgx-a100-40g", "--nodes", "1", *SMALL)

    assert outcome.code == 1
    assert outcome.out.startswith("No layout can run.")
    assert "it does not fit in memory" in outcome.out


def test_a_constraint_is_checked(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION, "--constraint", "memory_fractoin < 1")

    assert outcome.code == 2
    assert "memory_fraction" in outcome.err


def test_a_goal_is_reached_or_the_nearest_is_named(cli: Cli) -> None:
    goal = ("plan", "llama3.2-1b", "--tokens", "20B", "--accelerators", "dgx-h100", "--max-nodes", "4", *SMALL)

    reached = cli(*goal, "--within", "30 days", "--budget", "1 MUSD")
    missed = cli(*goal, "--within", "1 min")

    assert (reached.code, missed.code) == (0, 1)
    assert reached.out.startswith("yes 1 dgx-h100: ")
    assert missed.out.startswith("no: the nearest is 4 dgx-h100: ")


def test_a_goal_needs_a_limit(cli: Cli) -> None:
    outcome = cli("plan", "llama3.2-1b", "--tokens", "20B", "--accelerators", "dgx-h100")

    assert outcome.code == 2
    assert "--within" in outcome.err


def test_advice_names_a_family_and_what_the_others_lose_by(cli: Cli) -> None:
    outcome = cli("advise", *QUESTION)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0].startswith("Use ")
    assert sum(" is fastest: " in line for line in lines) == 1
    assert any("it loses by" in line for line in lines)


def test_advice_considers_asynchronous_workers_where_machines_are_uneven(cli: Cli) -> None:
    even = json.loads(cli("advise", *QUESTION, "--json").out)
    uneven = json.loads(cli("advise", *QUESTION, "--json", "-s", "cluster.stragglers=[{ranks: 3, slowdown: 3}]").out)

    name = "asynchronous data parallelism"
    assert name not in [each["family"] for each in even["families"]]
    assert name in [each["family"] for each in uneven["families"]]
