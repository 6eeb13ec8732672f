"""Exchange of a stage with its hosts: bytes, stream and order."""

from __future__ import annotations

import pytest

from clustersim.parallel.division import divided, place
from clustersim.parallel.offload import (
    FROM_HOST,
    FROM_NVME,
    HOST_UPDATE,
    NVME_TILES,
    TILE_PARAMETERS,
    TO_HOST,
    TO_NVME,
    HostSide,
    host_update_bytes,
    offloads,
    state_bytes,
    tiles,
)
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Offload, Plan
from clustersim.parallel.weights import Weights
from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import Action, Compute, HostCopy, HostUpdate, Task
from tests.unit.parallel.factories import local_of, make_plan

HOST = Offload(optimizer="host", gradients="host")
NVME = Offload(optimizer="nvme", gradients="nvme", parameters="nvme")
START: Key = ("backward",)
N = 3 * TILE_PARAMETERS
"""Parameters of three tiles."""


def plan_of(offload: Offload, **changes: object) -> Plan:
    return make_plan(**{"offload": offload, "zero_stage": 2, "global_batch_size": 1, "no_sync": False, **changes})


def side_of(plan: Plan) -> HostSide:
    division = divided(place(plan.strategy))
    builder = ProgramBuilder()
    builder.add(START, Compute(name="B", phase="backward", blocks=()), division.lanes(0))
    return HostSide(builder=builder, division=division, stage=stage_of(plan, 0), n_micro_batches=plan.n_micro_batches)


def built(side: HostSide) -> Program:
    return side.builder.build(side.division.rank_classes())


def moved(program: Program, stream: str) -> list[Action]:
    return [task.action for task in program.tasks if task.lanes[0].stream == stream]


def sizes(program: Program, stream: str) -> list[float]:
    return [action.bytes for action in moved(program, stream) if isinstance(action, HostCopy | HostUpdate)]


def updated(offload: Offload = HOST, *, parameters: float = N, **changes: object) -> Program:
    side = side_of(plan_of(offload, **changes))
    side.add_update(Weights(dense=parameters), after=[START])
    return built(side)


def waits_for(program: Program, task: Task) -> list[str]:
    return [program.tasks[index].lanes[0].stream for index in task.after]


def test_only_an_optimizer_elsewhere_offloads() -> None:
    assert not offloads(make_plan().strategy)
    assert offloads(plan_of(HOST).strategy)
    assert offloads(plan_of(NVME).strategy)


def test_gradients_leave_in_the_numbers_in_which_they_add_up() -> None:
    for precision, number_bytes in (("fp32", 4.0), ("same", 2.0)):
        side = side_of(plan_of(HOST, gradient_precision=precision))
        side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=0)

        (copy,) = moved(built(side), TO_HOST)
        assert isinstance(copy, HostCopy)
        assert (copy.bytes, copy.source, copy.destination) == (100.0 * number_bytes, "accelerator", "host")


def test_every_rank_copies_its_shard() -> None:
    side = side_of(plan_of(HOST, dp=4, global_batch_size=4))
    side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=0)

    (copy,) = moved(built(side), TO_HOST)
    assert isinstance(copy, HostCopy)
    assert (copy.ranks.tolist(), copy.bytes) == ([0, 1, 2, 3], 100.0)


def test_without_sharding_every_rank_copies_all() -> None:
    side = side_of(plan_of(Offload(optimizer="host"), dp=4, zero_stage=0, global_batch_size=4))
    side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=0)

    assert sizes(built(side), TO_HOST) == [400.0]


def test_gradients_on_the_accelerator_leave_in_the_last_micro_batch() -> None:
    side = side_of(plan_of(Offload(optimizer="host"), global_batch_size=2))

    assert side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=0) == ()
    assert len(side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=1)) == 1
    assert sizes(built(side), TO_HOST) == [400.0]


def test_sums_on_the_host_are_fetched_before_more_is_added() -> None:
    side = side_of(plan_of(HOST, global_batch_size=2))
    for micro_batch in (0, 1):
        side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=micro_batch)
    program = built(side)

    assert (sizes(program, TO_HOST), sizes(program, FROM_HOST)) == ([400.0, 400.0], [400.0])
    assert waits_for(program, program.tasks[-1]) == [FROM_HOST, TO_HOST]
    assert program.tasks[-1].micro_batch == 1


def test_gradients_that_add_up_before_they_are_reduced_leave_once() -> None:
    side = side_of(plan_of(HOST, global_batch_size=2, no_sync=True))
    side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=1)

    assert sizes(built(side), TO_HOST) == [400.0]
    assert not moved(built(side), FROM_HOST)


def test_only_final_gradients_go_to_the_drives() -> None:
    side = side_of(plan_of(NVME, zero_stage=3, global_batch_size=2))
    for micro_batch in (0, 1):
        side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=micro_batch)

    copies = [action for action in moved(built(side), TO_HOST) if isinstance(action, HostCopy)]
    assert [copy.destination for copy in copies] == ["host", "nvme"]


@pytest.mark.parametrize("home", ["host", "nvme"])
def test_parameters_come_from_where_they_live(home: str) -> None:
    side = side_of(plan_of(Offload(optimizer="host", gradients="host", parameters=home), zero_stage=3, dp=2, global_batch_size=2))  # pyright: ignore[reportArgumentType] # both are places
    (key,) = side.add_parameter_fetch(Weights(dense=100.0), after=[START], label=(0, 0))
    program = built(side)

    (copy,) = moved(program, FROM_HOST)
    assert isinstance(copy, HostCopy)
    assert (copy.source, copy.destination, copy.bytes) == (home, "accelerator", 100.0)
    assert side.builder.last(program.tasks[-1].lanes[0]) == (key,)


def test_the_update_goes_by_tiles_and_so_do_new_parameters() -> None:
    program = updated()

    assert sizes(program, HOST_UPDATE) == [TILE_PARAMETERS * host_update_bytes(plan_of(HOST).training)] * 3
    assert sizes(program, FROM_HOST) == [TILE_PARAMETERS * 2.0] * 3
    assert not moved(program, FROM_NVME)
    assert not moved(program, TO_NVME)


def test_each_copy_waits_for_its_tile_alone() -> None:
    program = updated()

    copies = [task for task in program.tasks if task.lanes[0].stream == FROM_HOST]
    tiles_done = [index for index, task in enumerate(program.tasks) if task.lanes[0].stream == HOST_UPDATE]
    assert [max(index for index in task.after if index in tiles_done) for task in copies] == tiles_done


def test_the_update_waits_for_all_gradients() -> None:
    side = side_of(plan_of(HOST))
    side.add_gradient_copy(Weights(dense=100.0), after=[START], micro_batch=0)
    side.add_update(Weights(dense=N), after=[START])
    program = built(side)

    first = next(task for task in program.tasks if task.lanes[0].stream == HOST_UPDATE)
    assert waits_for(program, first) == ["compute", TO_HOST]


def test_parameters_that_live_on_the_host_are_not_copied_back() -> None:
    program = updated(Offload(optimizer="host", gradients="host", parameters="host"), zero_stage=3)

    assert not moved(program, FROM_HOST)
    assert len(moved(program, HOST_UPDATE)) == 3


def test_drives_give_and_take_all_of_the_state() -> None:
    program = updated(NVME, zero_stage=3)

    # fp32 weight and two moments; gradients are read, and parameters in 16 bits are written beside them.
    assert sizes(program, FROM_NVME) == [TILE_PARAMETERS * (12.0 + 4.0)] * 3
    assert sizes(program, TO_NVME) == [TILE_PARAMETERS * (12.0 + 2.0)] * 3


def test_parameters_on_drives_are_written_though_the_optimizer_is_in_memory() -> None:
    program = updated(Offload(optimizer="host", gradients="host", parameters="nvme"), zero_stage=3)

    assert sizes(program, TO_NVME) == [TILE_PARAMETERS * 2.0] * 3
    assert not moved(program, FROM_NVME)


def test_memory_holds_few_tiles_of_what_is_on_drives() -> None:
    program = updated(NVME, zero_stage=3, parameters=5 * TILE_PARAMETERS)

    reads = [index for index, task in enumerate(program.tasks) if task.lanes[0].stream == FROM_NVME]
    writes = [index for index, task in enumerate(program.tasks) if task.lanes[0].stream == TO_NVME]
    for number, read in enumerate(reads):
        waited = [index for index in program.tasks[read].after if index in writes]
        assert waited == ([writes[number - NVME_TILES]] if number >= NVME_TILES else [])


def test_what_has_ended_is_all_that_follows_a_tile() -> None:
    side = side_of(plan_of(Offload(optimizer="nvme", gradients="nvme"), zero_stage=3))

    keys = side.add_update(Weights(dense=2 * TILE_PARAMETERS), after=[START])

    assert [key[0] for key in keys] == [TO_NVME, FROM_HOST, TO_NVME, FROM_HOST]


@pytest.mark.parametrize(("shard", "count"), [(1.0, 1), (TILE_PARAMETERS, 1), (TILE_PARAMETERS + 1, 2), (10e9, 75)])
def test_tiles_are_equal_and_fill_the_shard(shard: float, count: int) -> None:
    cut = tiles(shard)

    assert cut.count == count
    assert cut.count * cut.parameters == pytest.approx(shard, rel=1e-12)


def test_adam_moves_38_bytes_of_memory_for_each_parameter_in_16_bits() -> None:
    # Clipping 4 + 4, Adam 16 + 12, and 2 for the copy that the accelerator gets.
    assert host_update_bytes(plan_of(HOST).training) == 38.0
    assert host_update_bytes(plan_of(HOST, precision="fp32").training) == 36.0
    assert host_update_bytes(plan_of(HOST, gradient_precision="same").training) == 36.0


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"), [("bf16", "adam", 12.0), ("fp32", "adam", 12.0), ("bf16", "momentum", 8.0)]
)
def test_the_host_keeps_a_weight_in_fp32_whatever_the_accelerator_keeps(precision: str, optimizer: str, expected: float) -> None:
    plan = plan_of(HOST, precision=precision, optimizer=optimizer)

    assert state_bytes(plan.training, local_of(plan)) == expected
