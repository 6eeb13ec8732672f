"""ZeRO-2, ZeRO-3 and FSDP, layer by layer. What they move in closed form is in ``tests/analytical``."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from clustersim.parallel.lower import lower
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.program.program import Program
from clustersim.program.tasks import Communicate, Compute, Task, Work
from clustersim.workloads.kinds.call import Layer
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from clustersim.workloads.transformer import Transformer
from tests.rows import rows
from tests.unit.parallel.factories import GPT, chosen, collective, computes, layer_parameters, local_of, make_plan, tasks_of, waits_for

FOUR = replace(GPT, n_layers=4)
ENDS = FOUR.n_parameters - 4 * layer_parameters(FOUR)


def sharded(model: Transformer = FOUR, *, zero_stage: int = 3, **changes: object) -> Plan:
    return make_plan(model, zero_stage=zero_stage, **{"dp": 4, "global_batch_size": 4, "no_sync": False, **changes})


def dense(*sizes: int) -> Layered:
    layers: list[Layer] = [LinearLayer(input=(a,), features=b, bias=False) for a, b in pairwise(sizes)]
    return Layered(name="dense", input=sizes[:1], tokens_per_sample=1, layers=tuple(layers))


def gathers_of(plan: Plan) -> list[Task]:
    return tasks_of(plan, stream="dp_gather")


def the_passes(program: Program, rank_class: int = 0) -> list[Task]:
    return [task for task in computes(program, rank_class) if task.action.name in ("F", "B")]


def casts_of(task: Task) -> list[float]:
    assert isinstance(task.action, Compute)
    items = [item for block in task.action.blocks if block.name == "cast" for item in block.body]
    return [kernel.traffic_bytes for item in items if isinstance(item, Work) for kernel in item.kernels]


def test_each_layer_is_a_task_of_its_own_forward_and_back() -> None:
    program = lower(sharded(global_batch_size=8))

    assert [task.action.name for task in the_passes(program)] == (["F"] * 4 + ["B"] * 4) * 2
    assert [task.micro_batch for task in the_passes(program)] == [0] * 8 + [1] * 8


def test_a_layer_waits_for_its_weights_forward_and_backward() -> None:
    program = lower(sharded())
    ends_forward, *forward, ends_backward = (program.tasks.index(task) for task in chosen(program, stream="dp_gather")[:6])
    backward = [program.tasks.index(task) for task in chosen(program, stream="dp_gather")[6:]]

    for task, gather in zip(the_passes(program), forward + backward, strict=True):
        assert gather in task.after
    assert ends_forward in the_passes(program)[0].after
    assert ends_backward in the_passes(program)[4].after


def test_under_zero_2_a_layer_waits_for_no_weights() -> None:
    program = lower(sharded(zero_stage=2))

    assert chosen(program, stream="dp_gather") == []
    assert all(isinstance(before.action, Compute) for task in the_passes(program) for before in waits_for(program, task))


def test_without_overlap_a_gather_waits_for_all_computation_and_reduction() -> None:
    program = lower(sharded(overlap=False))
    gathers, passes = chosen(program, stream="dp_gather"), the_passes(program)

    for gather, before in zip(gathers[2:5] + gathers[6:], passes[:-1], strict=True):
        assert program.tasks.index(before) in gather.after
    assert "gradients" in [task.action.name for task in waits_for(program, gathers[-1])]


def test_gradients_of_a_layer_are_reduced_after_its_backward_pass_and_those_of_the_ends_at_the_end() -> None:
    program = lower(sharded())
    backward, reductions = the_passes(program)[4:], chosen(program, "gradients")

    assert [collective(task).bytes for task in reductions] == [4 * layer_parameters(FOUR)] * 4 + [4 * ENDS]
    for task, reduction in zip([*backward, backward[-1]], reductions, strict=True):
        assert program.tasks.index(task) in reduction.after
        assert collective(reduction).op == "reduce_scatter"


def test_zero_2_reduces_in_buckets() -> None:
    few = chosen(lower(sharded(zero_stage=2, bucket_bytes=1e12)), "gradients")
    many = chosen(lower(sharded(zero_stage=2, bucket_bytes=1.0)), "gradients")

    assert (len(few), len(many)) == (1, 4)
    assert collective(few[0]).bytes == sum(collective(task).bytes for task in many) == 4 * FOUR.n_parameters
    assert collective(many[1]).pieces == 6  # operations of a layer that have parameters


def test_each_unit_is_gathered_and_reduced_in_one_call() -> None:
    tasks = [task for task in lower(sharded(bucket_bytes=1e6)).tasks if isinstance(task.action, Communicate)]

    assert {collective(task).pieces for task in tasks} == {1}


def test_both_go_to_the_groups_of_data_parallelism() -> None:
    plan = sharded(tp=2)

    for name in ("gather weights", "gradients"):
        assert {rows(collective(task).group.members) for task in tasks_of(plan, name)} == {((0, 2, 4, 6), (1, 3, 5, 7))}


def test_hybrid_sharding_gathers_in_its_groups_and_adds_up_between_them_on_another_stream() -> None:
    program = lower(sharded(shard_degree=2))
    gathers, scattered = chosen(program, stream="dp_gather"), chosen(program, "gradients")
    added = chosen(program, "gradients of copies")

    assert {rows(collective(task).group.members) for task in gathers + scattered} == {((0, 1), (2, 3))}
    assert {(collective(task).op, rows(collective(task).group.members)) for task in added} == {("all_reduce", ((0, 2), (1, 3)))}
    assert [collective(task).bytes * 2 for task in added] == [collective(task).bytes for task in scattered]
    assert {task.lanes[0].stream for task in added} == {"dp_copies"}


def test_the_update_waits_for_the_last_reduction() -> None:
    for degree, name in ((4, "gradients"), (2, "gradients of copies")):
        program = lower(sharded(shard_degree=degree))
        (update,) = chosen(program, "optimizer")
        assert program.tasks.index(chosen(program, name)[-1]) in update.after


def test_zero_3_gathers_no_weights_after_the_update() -> None:
    program = lower(sharded())

    assert program.tasks[-1].action.name == "optimizer"
    assert lower(sharded(zero_stage=2)).tasks[-1].action.name == "gather weights"


@pytest.mark.parametrize("tp", [1, 2])
def test_equal_layers_share_their_actions(tp: int) -> None:
    program = lower(sharded(replace(GPT, n_layers=16), tp=tp, global_batch_size=16))
    actions = {id(task.action) for task in program.tasks}

    # Forward and backward of the first, the last and an inner layer, the first of the step by itself: nothing runs beside it; gather
    # and reduction of a layer and of the ends; host, update, norm.
    assert len(actions) == 13 + (tp > 1)
    assert len(program.tasks) > 200


def test_layers_of_a_list_move_their_own_parameters() -> None:
    plan = replace(sharded(), model=dense(16, 32, 64, 8))
    sizes = [16.0 * 32, 32.0 * 64, 64.0 * 8]

    assert [collective(task).bytes for task in gathers_of(plan)] == [2 * size for size in (*sizes, *reversed(sizes))]
    assert [collective(task).bytes for task in tasks_of(plan, "gradients")] == [4 * size for size in reversed(sizes)]


def test_weights_that_travel_in_8_bits_are_cast_before_and_after() -> None:
    plan = sharded(gather_precision="fp8")
    program = lower(plan)

    assert collective(gathers_of(plan)[1]).bytes == layer_parameters(FOUR)
    # A quarter of the layer is cast before it is sent, all of it when it has come: 2 bytes and 1.
    layer = layer_parameters(FOUR)
    with_ends, others = (layer + ENDS) * 1.25 * 3, [layer * 1.25 * 3] * 3
    assert [casts_of(task) for task in the_passes(program)] == [[size] for size in (with_ends, *others, with_ends, *others)]


def test_gradients_that_travel_in_16_bits_are_cast_on_the_compute_stream() -> None:
    plan = sharded(reduce_precision="bf16")
    casts = [casts_of(task) for task in the_passes(lower(plan))]

    assert [collective(task).bytes for task in tasks_of(plan, "gradients")] == [2 * layer_parameters(FOUR)] * 4 + [2 * ENDS]
    assert casts == [[]] * 4 + [[6 * layer_parameters(FOUR)]] * 3 + [[6 * (layer_parameters(FOUR) + ENDS)]]


def test_parts_with_shard_groups_of_their_own_gather_by_themselves() -> None:
    program = lower(sharded(shard_degree=2), [(0, 1), (2, 3)])

    for part in (0, 1):
        gathers = chosen(program, stream="dp_gather", rank_class=part)
        assert {rows(collective(task).group.members) for task in gathers} == {((2 * part, 2 * part + 1),)}
        assert all(len(task.lanes) == 1 for task in gathers)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_one_replica_has_nobody_to_gather_from(zero_stage: int) -> None:
    program = lower(sharded(zero_stage=zero_stage, dp=1))

    assert [task for task in program.tasks if isinstance(task.action, Communicate)] == []
    assert len(the_passes(program)) == 2 * 4


def test_shards_of_one_rank_are_reduced_as_without_sharding() -> None:
    tasks = [task for task in lower(sharded(shard_degree=1)).tasks if isinstance(task.action, Communicate)]

    assert {(collective(task).op, rows(collective(task).group.members)) for task in tasks} == {("all_reduce", ((0, 1, 2, 3),))}


def test_a_lone_rank_copies_its_gradients_and_fetches_its_parameters_too() -> None:
    offload = Offload(optimizer="host", gradients="host", parameters="host")

    program = lower(sharded(dp=1, global_batch_size=1, offload=offload))

    # Four layers and the ends: every unit forward and backward, and its gradients once.
    assert len(chosen(program, "parameters from host")) == 10
    assert len(chosen(program, "gradients to host")) == 5


def test_tensors_that_are_gathered_by_themselves_are_so_many_calls() -> None:
    together, apart = (gathers_of(sharded(gather=gather)) for gather in ("layer", "tensor"))

    tensors = sum(1 for operator in local_of(sharded()).layer(0) if operator.parameters)
    assert [collective(task).bytes for task in apart] == [collective(task).bytes for task in together]
    assert {collective(task).pieces for task in together} == {1}
    assert tensors in {collective(task).pieces for task in apart}


def test_gradients_of_tensors_by_themselves_travel_in_buckets() -> None:
    plan = sharded(gather="tensor", bucket_bytes=1e6)

    for task in tasks_of(plan, "gradients"):
        assert collective(task).pieces == ceil(collective(task).bytes / 1e6)
