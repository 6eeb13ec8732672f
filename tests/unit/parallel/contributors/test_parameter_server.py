"""A step with parameter servers: who keeps what, what moves when, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest

from clustersim.parallel.contributors.parameter_server import LayerSlice, model_tensors, served_slices, served_updates
from clustersim.parallel.division import divided, place
from clustersim.parallel.lower import lower
from clustersim.parallel.optimizer import update_bytes
from clustersim.parallel.stage import stage_of
from clustersim.parallel.step_settings import DataParallel
from clustersim.parallel.training_plan import Plan
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Compute
from clustersim.workloads.transformer import Transformer
from tests.rows import rows
from tests.unit.parallel.factories import (
    BERT,
    GPT,
    LLAMA,
    chosen,
    collective,
    computes,
    held,
    kernels_of,
    layer_parameters,
    local_of,
    make_plan,
    servers,
    tasks_of,
    waits_for,
)

SERVICE = servers(0, 2, reduce_in_node=True)
FOUR = replace(GPT, n_layers=4)
LAYER_BYTES = 4.0 * layer_parameters(GPT)


def served(**changes: object) -> Plan:
    defaults = {"dp": 4, "global_batch_size": 8, "bucket_bytes": LAYER_BYTES, "service": SERVICE}
    return make_plan(FOUR, **(defaults | changes))


def moved(plan: Plan, name: str) -> list[Collective]:
    return [collective(task) for task in tasks_of(plan, name)]


def layer_by_layer(plan: Plan, service: DataParallel) -> tuple[LayerSlice, ...]:
    return served_slices(local_of(plan), service, [(layer, layer + 1) for layer in range(plan.model.n_layers)])


@pytest.mark.parametrize("model", [GPT, LLAMA, BERT], ids=lambda model: model.name)
@pytest.mark.parametrize("tp", [1, 4])
def test_the_tensors_are_all_parameters_of_a_rank(model: Transformer, tp: int) -> None:
    plan = make_plan(model, tp=tp)

    tensors = model_tensors(local_of(plan))

    assert len(tensors) == model.n_layers + 2
    assert fsum(size for sizes in tensors for size in sizes) == stage_of(plan, 0).weights.total
    assert all(size > 0 for sizes in tensors for size in sizes)


def test_key_ranges_put_an_even_part_of_every_slice_on_every_server() -> None:
    slices = layer_by_layer(served(), SERVICE)

    assert [(each.start, each.stop) for each in slices] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    for each in slices:
        (holding,) = each.holdings
        assert (holding.servers.hosts, holding.servers.share, holding.servers.per_node) == ((0, 2), 0.5, True)
    assert fsum(each.holdings[0].parameters for each in slices) == FOUR.n_parameters


def test_round_robin_deals_out_tensors_in_the_order_in_which_they_are_created() -> None:
    service = SERVICE.changed(assignment="round_robin")
    sizes = [size for group in model_tensors(local_of(served())) for size in group]

    (whole,) = served_slices(local_of(served()), service, [(0, 4)])

    kept = {holding.servers.hosts: holding.parameters for holding in whole.holdings}
    assert kept == {(0,): fsum(sizes[0::2]), (2,): fsum(sizes[1::2])}


def test_greedy_evens_out_what_round_robin_leaves_uneven() -> None:
    def fullest(assignment: str) -> float:
        service = SERVICE.changed(assignment=assignment)
        return held(served(service=service), place="server")

    assert fullest("key_ranges") <= fullest("greedy") < fullest("round_robin")


@pytest.mark.parametrize("assignment", ["round_robin", "greedy"])
def test_a_tensor_stays_where_it_is_however_the_model_is_cut(assignment: str) -> None:
    service = SERVICE.changed(hosts=(0, 1, 2), assignment=assignment)

    def kept(slices: tuple[LayerSlice, ...]) -> dict[tuple[int, ...], float]:
        total: dict[tuple[int, ...], float] = {}
        for each in slices:
            for holding in each.holdings:
                total[holding.servers.hosts] = total.get(holding.servers.hosts, 0.0) + holding.parameters
        return dict(sorted(total.items()))

    assert kept(layer_by_layer(served(), service)) == kept(served_slices(local_of(served()), service, [(0, 4)]))


def test_the_fullest_server_keeps_weights_optimizer_state_and_the_sum_of_gradients() -> None:
    # bf16: a copy in 16 bits 2, master weight and moments 12, gradient in fp32 4.
    assert held(served(), place="server") == pytest.approx(FOUR.n_parameters / 2 * 18, rel=1e-12)


def test_servers_keep_the_parts_of_all_tensor_parallel_ranks() -> None:
    plan = served(tp=4)

    assert held(plan, place="server") == pytest.approx(4 * stage_of(plan, 0).weights.total / 2 * 18, rel=1e-12)


def test_a_step_begins_with_pulls_in_the_order_of_the_forward_pass() -> None:
    program = lower(served())

    pulls = chosen(program, stream="pull")
    passes = [task for task in computes(program, 0) if task.action.name == "F" and task.micro_batch == 0]
    assert [task.after for task in pulls[:1]] == [()]
    assert len(pulls) == len(passes) == 4
    for pull, following in zip(pulls, passes, strict=True):
        assert pull in waits_for(program, following)


def test_without_priority_nothing_starts_before_all_has_come() -> None:
    program = lower(served(service=SERVICE.changed(priority="none")))

    (pull,) = chosen(program, "pull")
    first = next(task for task in computes(program, 0) if task.action.name == "F")
    assert pull in waits_for(program, first)
    assert collective(pull).bytes == 2 * FOUR.n_parameters
    assert collective(pull).pieces == 1


def test_only_the_first_micro_batch_waits_for_pulls_and_only_the_last_one_pushes() -> None:
    program = lower(served(global_batch_size=12))

    order = [(task.action.name, task.micro_batch) for task in computes(program, 0)[1:]]
    assert order == [("F", 0)] * 4 + [("B", 0), ("F", 1), ("B", 1), ("F", 2)] + [("B", 2)] * 4
    assert {before.micro_batch for push in chosen(program, "push") for before in waits_for(program, push) if before.action.name == "B"} == {
        2
    }


def test_slices_are_pushed_as_soon_as_they_are_through_last_layers_first() -> None:
    program = lower(served())

    pushes = chosen(program, stream="push")
    slices = [task for task in computes(program, 0) if task.action.name == "B" and task.micro_batch == 1]
    assert len(pushes) == len(slices) == 4
    for push, through in zip(pushes, slices, strict=True):
        assert through in waits_for(program, push)


def test_without_overlap_pushes_follow_the_backward_pass() -> None:
    program = lower(served(overlap=False))

    (backward,) = [task for task in computes(program, 0) if task.action.name == "B" and task.micro_batch == 1]
    pushes = chosen(program, stream="push")
    assert len(pushes) == 4
    assert all(backward in waits_for(program, push) for push in pushes)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("priority", ["layers", "none"])
def test_the_slices_do_the_work_of_the_undivided_passes(overlap: bool, priority: str) -> None:
    def kernels(plan: Plan) -> list[str]:
        actions = [task.action for task in computes(lower(plan), 0) if task.action.name in ("F", "B")]
        return sorted(repr(kernel) for action in actions if isinstance(action, Compute) for kernel in kernels_of(action.blocks))

    plan = served(service=SERVICE.changed(priority=priority), overlap=overlap)
    assert kernels(plan) == kernels(make_plan(FOUR, dp=4, global_batch_size=8, overlap=False))


def test_gradients_are_pushed_in_their_precision_and_weights_pulled_in_that_of_training() -> None:
    plan = served()

    assert fsum(each.bytes for each in moved(plan, "push")) == 4 * FOUR.n_parameters
    assert fsum(each.bytes for each in moved(plan, "pull")) == 2 * FOUR.n_parameters
    assert {(each.op, each.algorithm, each.group.dimension) for each in moved(plan, "push")} == {("push", "parameter_server", "ps")}


def test_a_slice_larger_than_a_bucket_moves_in_pieces() -> None:
    plan = served(bucket_bytes=LAYER_BYTES / 2.5)

    inner = [each for each in moved(plan, "push") if each.bytes == LAYER_BYTES]
    assert {each.pieces for each in inner} == {3}


def test_the_replicas_of_each_tensor_parallel_part_push_among_themselves() -> None:
    (push, *_) = moved(served(tp=2), "push")

    assert rows(push.group.members) == ((0, 2, 4, 6), (1, 3, 5, 7))


@pytest.mark.parametrize("assignment", ["round_robin", "greedy"])
def test_servers_that_keep_whole_tensors_have_queues_of_their_own(assignment: str) -> None:
    program = lower(served(service=SERVICE.changed(assignment=assignment)))

    streams = {lane.stream for task in program.tasks for lane in task.lanes}
    assert streams == {"compute", "pull from 0", "pull from 2", "push to 0", "push to 2", "server 0", "server 2"}
    for task in chosen(program, stream="push to 2"):
        assert collective(task).servers is not None
        assert collective(task).servers.hosts == (2,)  # pyright: ignore[reportOptionalMemberAccess] - just asserted


def test_a_pass_waits_for_all_servers_that_keep_a_part_of_its_layers() -> None:
    program = lower(served(service=SERVICE.changed(assignment="round_robin")))

    first = next(task for task in computes(program, 0) if task.action.name == "F")
    assert [task.action.name for task in waits_for(program, first)] == ["pull", "pull", "host"]


def test_a_server_updates_a_slice_when_it_has_been_pushed_one_after_the_other() -> None:
    program = lower(served())

    updates, pushes = chosen(program, stream="server"), chosen(program, stream="push")
    for update, push in zip(updates, pushes, strict=True):
        assert push in waits_for(program, update)
    assert updates[0] in waits_for(program, updates[1])


def test_an_update_reads_and_writes_what_servers_keep_in_their_memory() -> None:
    plan = served()

    # Adam in bf16: 28 bytes, the master weight read to be copied 4, and written in 16 bits 2.
    assert update_bytes(plan.training) == 34
    assert fsum(each.bytes for each in moved(plan, "update")) == 34 * FOUR.n_parameters
    assert {(each.op, rows(each.group.members)) for each in moved(plan, "update")} == {("update", ((0, 1, 2, 3),))}


def test_workers_neither_update_nor_take_the_norm() -> None:
    plan = served(tp=4)

    assert tasks_of(plan, "optimizer") == tasks_of(plan, "gradient norm") == tasks_of(plan, "gradients") == []


def test_one_worker_alone_pulls_and_pushes_too() -> None:
    plan = served(dp=1, global_batch_size=1)

    assert {rows(each.group.members) for each in moved(plan, "push")} == {((0,),)}


def apart(*parts: tuple[int, ...], **changes: object) -> Program:
    return lower(served(**changes), parts)


def test_workers_of_two_paces_push_apart_and_are_updated_together() -> None:
    program = apart((0, 1, 2), (3,), bucket_bytes=1e12)

    pushes, updates = chosen(program, "push"), chosen(program, "update")

    assert [rows(collective(task).group.members) for task in pushes] == [((0, 1, 2),), ((3,),)]
    (update,) = updates
    assert [lane.rank_class for lane in update.lanes] == [0, 1]
    assert list(update.after) == [program.tasks.index(task) for task in pushes]
    assert rows(collective(update).group.members) == ((0, 1, 2, 3),)


@pytest.mark.parametrize("pace", [{"mode": "async"}, {"mode": "ssp", "staleness": 2}], ids=["async", "ssp"])
def test_a_worker_at_its_own_pace_has_what_it_pushes_applied_at_once(pace: dict[str, object]) -> None:
    program = apart((0, 1), (2, 3), bucket_bytes=1e12, **pace)

    for update, push in zip(chosen(program, "update"), chosen(program, "push"), strict=True):
        assert update.lanes[0].rank_class == push.lanes[0].rank_class
        assert waits_for(program, update) == [push]
    assert all(len({lane.rank_class for lane in task.lanes}) == 1 for task in program.tasks)


def test_with_backup_workers_the_update_is_not_part_of_anybodys_step() -> None:
    plan = served(backup_workers=1)
    program = lower(plan, ((0, 1), (2, 3)))

    assert chosen(program, "update") == []
    updates = served_updates(stage_of(plan, 0), divided(place(plan.strategy), ((0, 1), (2, 3))))
    assert [each.op for each in updates] == ["update"]
    assert fsum(each.bytes for each in updates) == stage_of(plan, 0).weights.total * update_bytes(plan.training)
