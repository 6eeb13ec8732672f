"""Parameters of stages: what is gathered for which pass, and when. Volumes and times are in ``tests/analytical``."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.engine.simulate import replay
from clustersim.parallel.contributors.state_sharding import ParameterSharding, gatherings
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import StageOrder, backward, forward, input_gradient, weight_gradient
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.tasks import Communicate, Compute, Task
from clustersim.workloads.operators import Interference
from clustersim.workloads.transformer_shape import Experts
from tests.unit.engine.factories import make_machine
from tests.unit.parallel.factories import LLAMA, chosen, computes, kernels_of, layer_parameters, make_plan, waits_for

EIGHT = replace(LLAMA, n_layers=8)
LAYER = layer_parameters(EIGHT)
TWO: StageOrder = (forward(0), forward(1), backward(0), backward(1))


def sharded(**changes: object) -> Plan:
    return make_plan(EIGHT, **{"pp": 2, "dp": 4, "zero_stage": 3, "global_batch_size": 16, **changes})


def layers_of(plan: Plan, order: StageOrder, stage: int = 0) -> list[list[float]]:
    """Return the units that are gathered for each pass, in layers; of the ends, in whole ones."""
    found = gatherings(stage_of(plan, stage), order)
    return [[unit.weights.total // LAYER for unit in each.units] for each in found]


def bytes_of(task: Task) -> float:
    assert isinstance(task.action, Communicate)
    return task.action.collective.bytes


def test_every_pass_gathers_the_ends_and_then_layer_by_layer() -> None:
    ends = EIGHT.vocab_size * EIGHT.hidden_size // LAYER

    assert layers_of(sharded(), TWO) == [[ends, 1, 1, 1, 1]] * 4


def test_kept_parameters_are_gathered_for_the_first_pass_only() -> None:
    found = layers_of(sharded(reshard_after_forward=False), TWO)

    assert [len(units) for units in found] == [5, 0, 0, 0]


def test_kept_ends_are_gathered_again_behind_a_backward_pass() -> None:
    found = layers_of(sharded(keep_ends=True), (forward(0), backward(0), forward(1), backward(1)))

    assert [len(units) for units in found] == [5, 4, 5, 4]


def test_weight_gradients_need_no_parameters() -> None:
    found = layers_of(sharded(schedule="zb_h1"), (forward(0), input_gradient(0), weight_gradient(0)))

    assert [len(units) for units in found] == [5, 5, 0]


@pytest.mark.parametrize("changes", [{"zero_stage": 2}, {"dp": 1}])
def test_nothing_is_gathered_where_every_rank_has_all_parameters(changes: dict[str, object]) -> None:
    assert not ParameterSharding.applies(sharded(**changes).strategy)


def test_passes_side_by_side_gather_at_once() -> None:
    order = (replace(forward(1, 0), beside_next=True), backward(0, 1))

    assert [len(units) for units in layers_of(sharded(schedule="dualpipe"), order)] == [1, 1]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_so_many_layers_are_gathered_ahead_also_across_passes(prefetch: int) -> None:
    program = lower(sharded(schedule="gpipe", prefetch=prefetch))
    gathers, passes = chosen(program, stream="dp_gather", rank_class=0), computes(program, 0)[1:]
    layers = [gather for number, gather in enumerate(gathers) if number % 5]  # every pass gathers the ends first

    assert len(layers) == 4 * 2 * 4
    for number, (gather, own) in enumerate(zip(layers, passes, strict=False)):
        assert gather in waits_for(program, own)
        awaited = [task for task in waits_for(program, gather) if task in passes]
        assert awaited == passes[max(0, number - 1 - prefetch) : max(0, number - prefetch)]


def test_without_overlap_the_next_pass_of_a_stage_waits_for_the_reduction() -> None:
    program = lower(sharded(zero_stage=2, schedule="gpipe", overlap=False, no_sync=False))
    backward = [task for task in computes(program, 0) if task.action.name == "B"]
    reductions = chosen(program, "gradients", rank_class=0)

    assert len(reductions) == len(backward) == 4
    assert all(reduction in waits_for(program, after) for reduction, after in zip(reductions, backward[1:], strict=False))


def test_passes_side_by_side_wait_for_the_reductions_of_the_pass_before() -> None:
    program = lower(sharded(schedule="dualpipe", overlap=False, no_sync=False))
    passes = [task for task in computes(program, 0) if task.micro_batch >= 0]
    reductions = chosen(program, "gradients", rank_class=0)

    # Of the 4 layers of both copies and their ends, in 2 passes back each; behind the last pass comes the update.
    waited = [
        reduction for own, later in pairwise(passes) for reduction in reductions if own in waits_for(program, reduction)
        and reduction in waits_for(program, later)
    ]  # fmt: skip
    behind_last = [reduction for reduction in reductions if passes[-1] in waits_for(program, reduction)]
    assert len(waited) + len(behind_last) == len(reductions) > 0


def kernels(plan: Plan) -> list[str]:
    program = lower(plan)
    actions = [task.action for stage in range(plan.strategy.pp) for task in computes(program, stage) if task.micro_batch >= 0]
    found = [kernel for action in actions if isinstance(action, Compute) for kernel in kernels_of(action.blocks)]
    return sorted(repr(kernel) for kernel in found if not isinstance(kernel, Interference))


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if not SCHEDULES[name].in_pairs])
def test_pieces_do_the_work_of_undivided_passes(schedule: str) -> None:
    changes: dict[str, object] = {"schedule": schedule, "virtual_stages": SCHEDULES[schedule].n_chunks or 2, "recompute": "full"}
    cut = kernels(sharded(offload=Offload(activations="host"), **changes))

    assert cut == kernels(sharded(zero_stage=0, **changes))


def test_parts_gather_together_and_compute_apart() -> None:
    program = lower(sharded(), [(0, 1, 2), (3,)])

    assert all(len(task.lanes) == 2 for task in chosen(program, stream="dp_gather"))
    assert replay(program, make_machine())[0].step_time_s > 0.0


def test_offloaded_parameters_of_stages_are_fetched_first_and_gradients_leave_as_they_are_reduced() -> None:
    away = Offload(optimizer="host", gradients="host", parameters="host")
    program = lower(sharded(offload=away, no_sync=False))
    fetches, gathers = chosen(program, "parameters from host"), chosen(program, stream="dp_gather")

    assert len(fetches) == len(gathers)
    assert all(fetch in waits_for(program, gather) for fetch, gather in zip(fetches, gathers, strict=True))
    # Gradients of all micro-batches but the first are added to what is there.
    copies, sums = chosen(program, "gradients to host"), chosen(program, "gradients so far")
    assert len(copies) * 3 == len(sums) * 4
    assert replay(program, make_machine())[0].step_time_s > 0.0


def test_experts_are_gathered_in_groups_of_their_own() -> None:
    sparse = replace(EIGHT, experts=Experts(n_experts=4, top_k=2, intermediate_size=96))
    plan = make_plan(sparse, pp=2, dp=4, ep=2, zero_stage=3, global_batch_size=4, attention="flash")
    gathers = chosen(lower(plan), stream="dp_gather", rank_class=0)
    names = {task.action.collective.group.name for task in gathers if isinstance(task.action, Communicate)}

    assert names == {"shards of stage 0", "expert shards of stage 0"}
    # Forward and backward: the ends, and of four layers those of all ranks and the experts.
    assert len(gathers) == 2 * (1 + 4 * 2)
    assert all(bytes_of(task) > 0.0 for task in gathers)
