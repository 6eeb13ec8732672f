"""Layers of a model dealt out to stages and chunks."""

from __future__ import annotations

from clustersim.parallel.stages import model_chunks
from tests.unit.config.samples import built, refusal


def full(*overrides: str) -> str:
    error = refusal(*overrides)
    return f"{error.field}: {error.message}; {error.hint}"


def layers_of(*overrides: str) -> tuple[int, ...]:
    plan = built(*overrides).plan
    return tuple(chunk.n_layers for stage in model_chunks(plan.strategy, plan.model.n_layers) for chunk in stage)


def test_layers_that_do_not_divide_are_dealt_with_embedding_and_logits_as_a_layer_each_and_a_flag_says_so() -> None:
    uneven = built("strategy.pp=4", "model.num_hidden_layers=10")

    assert layers_of("strategy.pp=4", "model.num_hidden_layers=10") == (2, 3, 3, 2)
    assert [flag.message for flag in uneven.flags if flag.code == "uneven_layers"] == [
        "10 layers do not divide evenly into 4 parts: embedding and logits count as a layer each (stage_layers: with_ends), "
        "2 to 3 layers a part"
    ]
    assert "uneven_layers" not in {flag.code for flag in built("strategy.pp=4").flags}


def test_ends_count_where_that_is_asked_for_even_if_layers_divide() -> None:
    assert layers_of("strategy.pp=4", "strategy.stage_layers=with_ends") == (2, 3, 2, 1)
    assert layers_of("strategy.pp=2", "strategy.stage_layers=with_ends") == (4, 4)


def test_chunks_of_an_interleaved_schedule_may_be_uneven_and_the_ends_without_a_layer() -> None:
    chunked = ["strategy.pp=4", "strategy.tp=1", "strategy.schedule=interleaved_1f1b", "strategy.virtual_stages=3"]

    assert sorted(layers_of(*chunked, "model.num_hidden_layers=10")) == [0, 0, *[1] * 10]


def test_even_refuses_layers_that_do_not_divide() -> None:
    even = "strategy.stage_layers=even"
    chunked = ["strategy.schedule=interleaved_1f1b", "strategy.pp=2", "strategy.virtual_stages=3"]

    assert full("strategy.pp=4", "model.num_hidden_layers=10", even) == (
        "strategy.stage_layers: 10 layers do not divide evenly into 4 stages; use pp 1, 2, 5 or 10, or stage_layers with_ends or balanced"
    )
    assert full(*chunked, even) == (
        "strategy.stage_layers: 8 layers do not divide evenly into 2 stages of 3 chunks; use stage_layers with_ends or balanced"
    )


def test_layers_may_be_dealt_out_unevenly_where_it_is_asked_for() -> None:
    plan = built("strategy.stage_layers=[5, 3]").plan

    assert [chunk.n_layers for stage in model_chunks(plan.strategy, plan.model.n_layers) for chunk in stage] == [5, 3]
    assert built("strategy.pp=2", "strategy.stage_layers=balanced").plan.strategy.stage_layers is not None
