from __future__ import annotations

import json

from clustersim.errors import EXIT_NO, EXIT_OK
from tests.unit.cli.conftest import Cli

SERVICE = ("plan", "serve-llama3-70b-chat", "--serving", "--set", "requests.count=60", "--set", "requests.warmup=0", "--set", "cost=null")


def test_the_document_has_the_fewest_gpus_and_their_proof(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=2,4", "--gpus", "8", "--json")
    document = json.loads(outcome.out)
    assert outcome.code == EXIT_OK
    assert document["proven"]
    assert document["best"]["gpus"] == document["least_gpus"]


def test_where_nobody_keeps_the_promises_the_nearest_is_named(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=4", "--gpus", "4", "--set", "slo.ttft_p99=20 ms")
    assert outcome.code == EXIT_NO
    assert "which break ttft_p99" in outcome.err


def test_values_without_a_key_are_refused(cli: Cli) -> None:
    assert "--only: 'tp' has no values" in cli(*SERVICE, "--only", "tp").err


def test_the_winner_is_written_for_its_engine(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=4", "--gpus", "8", "--as", "vllm")

    assert "--tensor-parallel-size 4" in outcome.out
    assert "replicas of" in outcome.err
    assert "cannot be written as 'megatron'" in cli(*SERVICE, "--as", "megatron").err
