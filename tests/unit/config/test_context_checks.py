"""What context parallelism asks of sequences, heads and kernels."""

from __future__ import annotations

import pytest

from clustersim.documents.spots import Data
from tests.unit.config.samples import built, refusal

ULYSSES = ["strategy.cp=8", "strategy.tp=1", "strategy.pp=1", "strategy.context_parallel=ulysses"]


@pytest.mark.parametrize(
    ("overrides", "field", "words"),
    [
        (["strategy.cp=2", "training.attention=unfused"], "training.attention", "fused attention only"),
        (["strategy.cp=4", "training.seq_length=4100"], "training.seq_length", "two pieces for each"),
        (
            ["strategy.cp=8", "strategy.tp=1", "strategy.pp=1", "strategy.context_parallel=ulysses", "training.seq_length=4100"],
            "training.seq_length",
            "one piece",
        ),
        (["strategy.cp=2", "training.scored_tokens=77"], "training.scored_tokens", "77 scored tokens"),
    ],
)
def test_what_ranks_cannot_divide_is_refused_at_its_value(overrides: list[str], field: str, words: str) -> None:
    error = refusal(*overrides)

    assert error.field == field
    assert words in error.message
    assert error.hint


def test_heads_that_cannot_be_dealt_out_are_refused_with_those_that_can() -> None:
    error = refusal("strategy.cp=8", "strategy.tp=2", "strategy.pp=1", "strategy.context_parallel=ulysses")

    assert error.field == "strategy.cp"
    assert "8 does not divide the 4 heads" in error.message
    assert "context_parallel: ring" in (error.hint or "")


def test_a_ring_is_refused_where_layers_see_a_window_only() -> None:
    error = refusal("strategy.cp=2", "strategy.tp=1", model="mistral-7b")

    assert error.field == "strategy.context_parallel"
    assert "all_gather or ulysses" in (error.hint or "")


@pytest.mark.parametrize("kind", ["ring", "all_gather", "ulysses"])
def test_ranks_of_a_sequence_hold_as_many_replicas_fewer(kind: str) -> None:
    sections: dict[str, Data] = {"strategy": {"cp": 4, "context_parallel": kind}}
    plan = built(**sections).plan

    assert plan.strategy.dp * 4 == built(strategy={}).plan.strategy.dp
    assert plan.strategy.replicas == built(strategy={}).plan.strategy.dp
