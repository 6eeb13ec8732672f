"""Passes and the transfers between them, built by hand for two stages."""

from __future__ import annotations

from clustersim.parallel.division import divided, place
from clustersim.parallel.pipeline import Piece, Pipeline
from clustersim.parallel.schedules.order import backward, forward
from clustersim.parallel.stages import places_of
from clustersim.program.program import Program, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Compute, Lane, Task
from tests.unit.parallel.factories import chosen, make_plan

F = Compute(name="F", phase="forward", blocks=())
B = Compute(name="B", phase="backward", blocks=())
SECOND_STAGE = (Lane(rank_class=1, stream=COMPUTE_STREAM),)


def two_stages(*, overlap: bool, pieces: int = 1, tp: int = 1) -> Program:
    """Return two micro-batches through two stages in the order of 1F1B, backward passes in so many pieces."""
    plan = make_plan(pp=2, tp=tp, global_batch_size=2)
    division, builder = divided(place(plan.strategy)), ProgramBuilder()
    pipeline = Pipeline(builder=builder, division=division, places=places_of(plan.strategy), pair_bytes=7.0, overlap=overlap)
    orders = ((forward(0), forward(1), backward(0), backward(1)), (forward(0), backward(0), forward(1), backward(1)))
    for stage, order in enumerate(orders):
        for step in order:
            pipeline.add_together(stage, [(step, [Piece(action=B)] * pieces if step.goes_back else [Piece(action=F)])])
    return builder.build(division.rank_classes())


def the(program: Program, name: str, micro_batch: int, *, rank_class: int | None = None) -> Task:
    (task,) = [task for task in chosen(program, name, rank_class=rank_class) if task.micro_batch == micro_batch]
    return task


def waits_for(program: Program, task: Task) -> list[tuple[str, int]]:
    """Return name and micro-batch of what a task waits for."""
    return sorted((program.tasks[index].action.name, program.tasks[index].micro_batch) for index in task.after)


def test_a_pass_waits_for_what_it_receives_and_for_the_pass_before() -> None:
    program = two_stages(overlap=True)

    assert waits_for(program, the(program, "F", 0, rank_class=0)) == []
    assert waits_for(program, the(program, "F", 0, rank_class=1)) == [("F 0->1", 0)]
    assert waits_for(program, the(program, "B", 0, rank_class=0)) == [("B 1->0", 0), ("F", 1)]
    assert waits_for(program, the(program, "F", 1, rank_class=1)) == [("B", 0), ("F 0->1", 1)]


def test_a_transfer_follows_its_pass_and_keeps_its_lane_in_order() -> None:
    program = two_stages(overlap=True)

    assert waits_for(program, the(program, "F 0->1", 0)) == [("F", 0)]
    assert waits_for(program, the(program, "F 0->1", 1)) == [("F", 1), ("F 0->1", 0)]


def test_a_transfer_occupies_the_lanes_of_both_ends() -> None:
    transfer = the(two_stages(overlap=True), "B 1->0", 0)

    assert [(lane.rank_class, lane.stream) for lane in transfer.lanes] == [(1, "send_backward"), (0, "recv_backward")]


def test_the_pieces_of_a_pass_run_in_order_and_the_first_one_receives() -> None:
    program = two_stages(overlap=True, pieces=2)
    first, second = (task for task in chosen(program, "B", rank_class=0) if task.micro_batch == 0)

    assert waits_for(program, first) == [("B 1->0", 0), ("F", 1)]
    assert waits_for(program, second) == [("B", 0)]


def test_the_result_is_sent_after_the_last_piece() -> None:
    program = two_stages(overlap=True, pieces=2)
    pieces = [index for index, task in enumerate(program.tasks) if task.action is B and task.lanes == SECOND_STAGE]

    assert the(program, "B 1->0", 0).after == (pieces[1],)


def test_passes_are_named_after_their_pieces() -> None:
    plan = make_plan(pp=2, global_batch_size=2)
    division = divided(place(plan.strategy))
    pipeline = Pipeline(builder=ProgramBuilder(), division=division, places=places_of(plan.strategy), pair_bytes=7.0, overlap=True)

    assert pipeline.add_together(1, [(backward(0), [Piece(action=B)] * 2)]) == [(("B", 1, 0, 0, 0), ("B", 1, 0, 0, 1))]


def test_equal_transfers_are_one_object() -> None:
    transfers = {id(task.action) for task in chosen(two_stages(overlap=True), "F 0->1")}

    assert len(transfers) == 1


def test_interleaved_activations_go_around_from_the_last_stage_to_the_first() -> None:
    plan = make_plan(pp=2, virtual_stages=2, schedule="interleaved_1f1b", global_batch_size=2)
    builder, division = ProgramBuilder(), divided(place(plan.strategy))
    pipeline = Pipeline(builder=builder, division=division, places=places_of(plan.strategy), pair_bytes=7.0, overlap=True)
    for chunk in (0, 1):
        for stage in (0, 1):
            pipeline.add_together(stage, [(forward(0, chunk), [Piece(action=F)])])
    program = builder.build(division.rank_classes())

    around = the(program, "F 1->0", 0)
    (second,) = [task for task in chosen(program, "F", rank_class=0) if task.chunk == 1]

    assert [(lane.rank_class, lane.stream) for lane in around.lanes] == [(1, "send_forward"), (0, "recv_forward")]
    assert program.tasks.index(around) in second.after
    assert len(chosen(program, "F 0->1")) == 2
