"""Part of a forward pass that full recomputation repeats, and the memory that it saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.recomputation import recomputed_layers
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import Plan
from clustersim.program.holds import FORWARD_TO_BACKWARD
from clustersim.program.tasks import Block, Collective, Work
from tests.unit.parallel.factories import GPT, chunk_passes, flops_of, held, make_plan

DRY = replace(GPT, dropout=False)


def plan_of(**changes: object) -> Plan:
    return make_plan(DRY, recompute="full", **changes)


def chunk_of(plan: Plan) -> ModelChunk:
    return stage_of(plan, 0).chunks[0]


def backward(plan: Plan) -> tuple[Block, ...]:
    return tuple(block for block in chunk_passes(plan).backward(chunk_of(plan)) if block.name == "layer")


def again(block: Block) -> list[Work]:
    return [item for item in block.body if isinstance(item, Work) and item.phase == "recompute"]


def flops(block: Block) -> float:
    return sum(kernel.flops for work in again(block) for kernel in work.kernels)


def test_all_layers_are_repeated_where_nothing_else_is_said() -> None:
    plan = plan_of()
    (block,) = backward(plan)

    assert block.repeat == recomputed_layers(plan.strategy, chunk_of(plan)) == DRY.n_layers
    assert again(block)


def test_the_first_layers_are_repeated_and_come_last_in_the_backward_pass() -> None:
    once, repeated = backward(plan_of(recompute_layers=1))

    assert (once.repeat, again(once)) == (DRY.n_layers - 1, [])
    assert repeated.repeat == 1
    assert again(repeated)


def test_without_recomputation_no_layer_is_repeated() -> None:
    assert not any(again(block) for block in backward(make_plan(DRY, recompute="none")))


@pytest.mark.parametrize("tp", [1, 2])
def test_recomputation_that_stops_early_leaves_out_the_last_product(tp: int) -> None:
    (whole,), (early,) = (backward(plan_of(tp=tp, recompute_stops_early=stops)) for stops in (False, True))
    plan = plan_of(tp=tp)
    rows = plan.training.micro_batch_size * plan.training.seq_length
    down = 2.0 * rows * DRY.intermediate_size * DRY.hidden_size / tp

    assert flops(whole) - flops(early) == pytest.approx(down, rel=1e-12)


def test_nor_is_the_result_of_the_last_product_added_up_among_its_ranks() -> None:
    def collectives(stops: bool) -> int:
        (block,) = backward(plan_of(tp=2, recompute_stops_early=stops))
        return sum(isinstance(item, Collective) for item in block.body)

    assert collectives(False) - collectives(True) == 1


def test_hardware_flops_count_what_is_repeated() -> None:
    none = flops_of(plan_of()).model
    whole = flops_of(plan_of()).hardware - none

    assert flops_of(plan_of(recompute_layers=1)).hardware - none == pytest.approx(whole / DRY.n_layers, rel=1e-12)
    early = flops_of(plan_of(recompute_stops_early=True)).hardware - none
    training = plan_of().training
    down = 2.0 * training.global_batch_size * training.seq_length * DRY.intermediate_size * DRY.hidden_size * DRY.n_layers
    assert whole - early == pytest.approx(down, rel=1e-12)


def test_layers_that_are_not_repeated_keep_their_activations() -> None:
    sizes = [held(plan, interval=FORWARD_TO_BACKWARD) for plan in (plan_of(), plan_of(recompute_layers=1), make_plan(DRY))]

    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[1] == pytest.approx((sizes[2] - sizes[0]) / DRY.n_layers, rel=1e-12)
