"""One process for all accelerators of a node: what moves through the first of them, and who computes what."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, fsum

import pytest

from clustersim.parallel.contributors.single_process import root_and_others
from clustersim.parallel.lower import lower
from clustersim.parallel.shard import numerics
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.program import Program
from clustersim.program.tasks import Communicate, Compute, Work
from clustersim.workloads.kinds.normalization import LinearLayer
from clustersim.workloads.layered import Layered
from tests.unit.parallel.factories import held, kernels_of, make_plan

N = 4


def plan_of(n: int = N, *, n_micro_batches: int = 1) -> Plan:
    return make_plan(dp=n, global_batch_size=n * n_micro_batches, single_process=True)


def program_of(plan: Plan) -> Program:
    return lower(plan, root_and_others(plan.strategy.dp))


def moves(program: Program) -> list[tuple[str, str, float]]:
    actions = [task.action for task in program.tasks if isinstance(task.action, Communicate)]
    return [(action.name, action.collective.op, action.collective.bytes) for action in actions]


def passes(program: Program, rank_class: int) -> list[str]:
    tasks = [task for task in program.tasks if isinstance(task.action, Compute)]
    return [task.action.name for task in tasks if task.lanes[0].rank_class == rank_class]


def test_the_first_accelerator_sends_the_model_out_and_takes_its_gradients_in() -> None:
    plan = plan_of()
    parameters, number = stage_of(plan, 0).weights.total, numerics(plan.training)

    found = moves(program_of(plan))

    assert [name for name, _, _ in found] == [
        "scatter inputs", "parameters", "gather outputs", "scatter gradients", "gradients",
    ]  # fmt: skip
    sizes = {name: (op, size) for name, op, size in found}
    assert sizes["parameters"] == ("broadcast", parameters * number.element_bytes)
    assert sizes["gradients"] == ("reduce", parameters * number.gradient_bytes)
    logits = N * plan.training.micro_batch_size * plan.training.seq_length * plan.model.vocab_size
    assert sizes["gather outputs"] == ("gather", pytest.approx(logits * number.element_bytes, rel=1e-12))


def test_images_are_scattered_as_numbers_and_tokens_as_indices() -> None:
    image = Layered(name="image", input=(3, 8, 8), tokens_per_sample=1, layers=(LinearLayer(input=(192,), features=10, bias=True),))
    words, pixels = plan_of(), replace(plan_of(), model=image)

    sizes = [{name: size for name, _, size in moves(program_of(plan))}["scatter inputs"] for plan in (words, pixels)]

    assert sizes == [8.0 * N * words.training.micro_batch_size * words.training.seq_length, 4.0 * N * 192]


def test_parameters_travel_again_with_every_micro_batch() -> None:
    found = moves(program_of(plan_of(n_micro_batches=3)))

    assert [name for name, _, _ in found].count("parameters") == 3
    assert [name for name, _, _ in found].count("gradients") == 3


def test_the_loss_and_the_update_are_the_work_of_the_first_accelerator() -> None:
    program = program_of(plan_of())

    assert passes(program, 0) == ["host", "F", "loss", "loss gradient", "B", "optimizer"]
    assert passes(program, 1) == ["host", "F", "B"]


def test_nothing_overlaps() -> None:
    program = program_of(plan_of(n_micro_batches=2))
    waits = {index: set(task.after) for index, task in enumerate(program.tasks)}
    for _ in waits:
        waits = {index: known | {earlier for each in known for earlier in waits[each]} for index, known in waits.items()}

    moving = [index for index, task in enumerate(program.tasks) if isinstance(task.action, Communicate)]
    others = [index for index, task in enumerate(program.tasks) if not isinstance(task.action, Communicate)]

    assert all(moved in waits[other] or other in waits[moved] for moved in moving for other in others)


def test_a_lone_accelerator_moves_nothing() -> None:
    program = program_of(plan_of(1))

    assert moves(program) == []
    assert passes(program, 0) == ["host", "F", "loss", "loss gradient", "B", "optimizer"]


def test_the_work_of_all_accelerators_is_that_of_the_whole_batch() -> None:
    single, alone = plan_of(), plan_of(1)

    def flops(plan: Plan) -> float:
        program = program_of(plan)
        weights = {index: each.n_ranks for index, each in enumerate(program.rank_classes)}
        return fsum(
            weights[task.lanes[0].rank_class] * kernel.flops
            for task in program.tasks
            if isinstance(task.action, Compute)
            for kernel in kernels_of(task.action.blocks)
        )

    assert flops(single) == pytest.approx(N * flops(alone), rel=1e-12)


def test_the_first_accelerator_keeps_the_outputs_of_all() -> None:
    plan = plan_of()
    logits = plan.training.micro_batch_size * plan.training.seq_length * plan.model.vocab_size
    alone = make_plan(global_batch_size=1)

    assert held(plan, category="optimizer") == held(alone, category="optimizer")
    # The loss of the three others in fp32, and the outputs of all four as they came.
    assert held(plan, owner="single_process") == pytest.approx(logits * (3 * 4 + 4 * 2), rel=1e-12)
    assert held(alone, owner="single_process") == 0.0


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_what_is_recomputed_takes_time_on_every_replica(recompute: str) -> None:
    plan = plan_of()
    again = replace(plan, strategy=plan.strategy.changed(recompute=recompute))

    def repeated(plan: Plan) -> list[set[str]]:
        actions = [task.action for task in program_of(plan).tasks if isinstance(task.action, Compute) and task.action.name == "B"]
        return [{work.phase for block in action.blocks for work in block.body if isinstance(work, Work)} for action in actions]

    assert repeated(plan) == [{"backward"}] * 2
    assert repeated(again) == [{"recompute", "backward"}] * 2


def test_parameters_are_broadcast_in_the_precision_of_the_wire() -> None:
    plan = plan_of()
    wide = replace(plan, strategy=plan.strategy.changed(data_parallel=plan.strategy.data_parallel.changed(gather_precision="fp32")))

    assert ("parameters", "broadcast", 4 * stage_of(plan, 0).weights.total) in moves(program_of(wide))


def test_what_moves_is_cut_into_buckets() -> None:
    plan = make_plan(dp=N, global_batch_size=N, single_process=True, bucket_bytes=2e6)
    pieces = {task.action.name: task.action.collective.pieces for task in program_of(plan).tasks if isinstance(task.action, Communicate)}

    assert pieces["gradients"] == ceil(stage_of(plan, 0).weights.total * numerics(plan.training).gradient_bytes / 2e6) > 1
    assert pieces["gather outputs"] == 1
