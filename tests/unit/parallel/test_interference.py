"""Bytes of collectives beside computation, charged where they are hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.lower import lower
from clustersim.parallel.shard import numerics
from clustersim.parallel.stage_work import beside_blocks, sent_bytes
from clustersim.parallel.training_plan import Plan
from clustersim.parallel.weights import NOTHING, Weights
from clustersim.program.tasks import Block, Compute, Phase, Work
from clustersim.workloads.operators import Interference
from tests.unit.parallel.factories import computes, kernels_of, make_plan


def carried(blocks: tuple[Block, ...]) -> float:
    """Return the bytes of the one kernel that there is."""
    (block,) = blocks
    (work,) = block.body
    assert isinstance(work, Work)
    (kernel,) = work.kernels
    assert isinstance(kernel, Interference)
    return kernel.sent_bytes


def of_plan(plan: Plan, phase: Phase, *, gathered: Weights = NOTHING, reduced: Weights = NOTHING) -> tuple[Block, ...]:
    return beside_blocks(plan.strategy, numerics(plan.training), phase, gathered=gathered, reduced=reduced)


def sharded(zero_stage: int, *, dp: int = 8, degree: int | None = None) -> Plan:
    plan = make_plan(dp=dp, zero_stage=zero_stage)
    return replace(plan, strategy=plan.strategy.changed(shard_degree=degree))


@pytest.mark.parametrize(("op", "sent"), [("all_gather", 6.0), ("reduce_scatter", 6.0), ("all_reduce", 12.0)])
def test_a_ring_sends_all_but_ones_own_part_once_or_twice(op: str, sent: float) -> None:
    assert sent_bytes(op, 8.0, 4) == sent  # pyright: ignore[reportArgumentType] a parameter is a str


def test_one_rank_alone_sends_nothing() -> None:
    assert sent_bytes("all_reduce", 8.0, 1) == 0.0
    assert of_plan(make_plan(dp=1), "backward", reduced=Weights(dense=100.0)) == ()


def test_replicas_send_their_gradients_almost_twice() -> None:
    plan = make_plan(dp=4)
    number_bytes = carried(of_plan(plan, "backward", reduced=Weights(dense=1.0))) / (2 * 3 / 4)

    assert number_bytes in (2.0, 4.0)
    assert carried(of_plan(plan, "backward", reduced=Weights(dense=100.0))) == pytest.approx(100 * number_bytes * 2 * 3 / 4, rel=1e-12)


def test_shards_are_gathered_and_gradients_scattered_once() -> None:
    both = carried(of_plan(sharded(3), "backward", gathered=Weights(dense=100.0), reduced=Weights(dense=100.0)))
    gathered = carried(of_plan(sharded(3), "backward", gathered=Weights(dense=100.0)))
    reduced = carried(of_plan(sharded(3), "backward", reduced=Weights(dense=100.0)))

    assert both == pytest.approx(gathered + reduced, rel=1e-12)
    assert gathered == pytest.approx(100 * 2.0 * 7 / 8, rel=1e-12)


def test_copies_of_a_sharded_model_send_shards_besides() -> None:
    whole, hybrid = (carried(of_plan(sharded(3, degree=degree), "backward", reduced=Weights(dense=100.0))) for degree in (None, 4))
    number_bytes = whole / (100 * 7 / 8)

    assert hybrid == pytest.approx(100 * number_bytes * (3 / 4 + 2 * (1 / 2) / 4), rel=1e-12)


def test_what_is_waited_for_takes_nothing() -> None:
    plan = sharded(3)
    waiting = plan.strategy.changed(data_parallel=plan.strategy.data_parallel.changed(overlap=False))

    assert of_plan(replace(plan, strategy=waiting), "forward", gathered=Weights(dense=100.0)) == ()


def lost(plan: Plan) -> list[tuple[str, float]]:
    """Return what each pass of rank 0 loses to what runs beside it."""
    computed = [task.action for task in computes(lower(plan), 0)]
    passes = [action for action in computed if isinstance(action, Compute) and action.name in ("F", "B")]
    kernels = [(action.name, kernel) for action in passes for kernel in kernels_of(action.blocks)]
    return [(name, kernel.sent_bytes) for name, kernel in kernels if isinstance(kernel, Interference)]


def test_nothing_is_lost_where_every_layer_waits_for_its_weights() -> None:
    ahead, waiting = (make_plan(dp=4, global_batch_size=4, zero_stage=3, no_sync=False, prefetch=prefetch) for prefetch in (1, 0))
    layers = waiting.model.n_layers

    # Gradients of all layers but the lowest, which is the last, are reduced beside the layer below.
    assert [name for name, _ in lost(waiting)] == ["B"] * (layers - 1)
    # Weights of all layers but the first of the step are gathered beside an earlier one.
    assert [name for name, _ in lost(ahead)] == ["F"] * (layers - 1) + ["B"] * layers


def test_a_reduction_behind_the_last_layer_takes_nothing_from_the_passes() -> None:
    assert lost(make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=1e12)) == []
    assert lost(make_plan(dp=4, global_batch_size=4, zero_stage=2, no_sync=False, bucket_bytes=1.0)) != []
