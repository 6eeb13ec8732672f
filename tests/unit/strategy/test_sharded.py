"""ZeRO-2 and ZeRO-3, layer by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Task
from clustersim.strategy.lower import lower
from clustersim.strategy.memory import stage_parameters
from clustersim.strategy.plan import Plan
from clustersim.workload.parameters import layer_parameters, total_parameters
from clustersim.workload.transformer import Transformer
from tests.unit.strategy.factories import GPT, LLAMA, chosen, computes, kernels_of, make_plan, tasks_of

FOUR = replace(GPT, n_layers=4)


def sharded(model: Transformer = FOUR, *, zero_stage: int = 3, **changes: object) -> Plan:
    return make_plan(model, dp=4, zero_stage=zero_stage, **{"global_batch_size": 4, **changes})


def collective(task: Task) -> Collective:
    assert isinstance(task.action, Communicate)
    return task.action.collective


def moved_bytes(plan: Plan, name: str | None = None) -> float:
    return sum(
        collective(task).bytes for task in lower(plan).tasks if isinstance(task.action, Communicate) and name in (None, task.action.name)
    )


def the_passes(program: Program) -> list[Task]:
    return [task for task in computes(program, 0) if task.action.name in ("F", "B")]


def waits_for(program: Program, task: Task) -> list[Task]:
    return [program.tasks[index] for index in task.after]


def test_each_layer_is_a_task_of_its_own_forward_and_back() -> None:
    program = lower(sharded(global_batch_size=8))

    assert [task.action.name for task in the_passes(program)] == (["F"] * 4 + ["B"] * 4) * 2
    assert [task.micro_batch for task in the_passes(program)] == [0] * 8 + [1] * 8


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_layers_do_the_work_of_the_undivided_passes(recompute: str) -> None:
    def kernels(plan: Plan) -> list[str]:
        actions = [task.action for task in the_passes(lower(plan))]
        return sorted(repr(kernel) for action in actions if isinstance(action, Compute) for kernel in kernels_of(action.blocks))

    assert kernels(sharded(recompute=recompute)) == kernels(make_plan(FOUR, dp=4, global_batch_size=4, recompute=recompute))


def test_zero_3_moves_three_numbers_a_parameter() -> None:
    # Rajbhandari et al., ZeRO, SC 2020, section 7: gathered forward, gathered backward, reduced and scattered: 3 Psi.
    assert moved_bytes(sharded(LLAMA, gradient_precision="same")) == pytest.approx(3 * 2 * total_parameters(LLAMA), rel=1e-12)


def test_zero_2_moves_two_numbers_a_parameter() -> None:
    plan = sharded(LLAMA, zero_stage=2, gradient_precision="same")

    assert moved_bytes(plan) == pytest.approx(2 * 2 * total_parameters(LLAMA), rel=1e-12)


def test_gradients_travel_in_the_precision_in_which_they_are_accumulated() -> None:
    assert moved_bytes(sharded(LLAMA), "gradients") == pytest.approx(4 * total_parameters(LLAMA), rel=1e-12)
    assert moved_bytes(sharded(LLAMA, gradient_precision="same"), "gradients") == pytest.approx(2 * total_parameters(LLAMA), rel=1e-12)


def test_zero_3_moves_everything_again_for_each_micro_batch() -> None:
    assert moved_bytes(sharded(LLAMA, global_batch_size=12)) == pytest.approx(3 * moved_bytes(sharded(LLAMA)), rel=1e-12)


def test_zero_2_reduces_for_each_micro_batch_and_gathers_weights_once() -> None:
    one, three = (sharded(LLAMA, zero_stage=2, global_batch_size=size) for size in (4, 12))

    assert moved_bytes(three, "gradients") == pytest.approx(3 * moved_bytes(one, "gradients"), rel=1e-12)
    assert moved_bytes(three, "gather weights") == moved_bytes(one, "gather weights") == 2 * stage_parameters(one, 0)


def test_an_inner_layer_moves_its_own_parameters_and_the_outer_ones_half_of_the_ends_each() -> None:
    plan = sharded()
    gathers = [collective(task).bytes for task in tasks_of(plan, stream="dp_gather")]
    ends = 2 * (total_parameters(FOUR) - 4 * layer_parameters(FOUR))

    assert gathers[1] == gathers[2] == 2 * layer_parameters(FOUR)
    assert gathers[0] == gathers[3] == 2 * layer_parameters(FOUR) + ends / 2


def test_a_single_layer_moves_both_ends() -> None:
    one = replace(LLAMA, n_layers=1)

    assert moved_bytes(sharded(one, gradient_precision="same")) == pytest.approx(3 * 2 * total_parameters(one), rel=1e-12)


def test_a_layer_waits_for_its_weights_forward_and_backward() -> None:
    program = lower(sharded())

    for task in the_passes(program):
        assert [before.action.name for before in waits_for(program, task) if isinstance(before.action, Communicate)] == ["gather weights"]


def test_under_zero_2_a_layer_waits_for_no_weights() -> None:
    program = lower(sharded(zero_stage=2))

    assert chosen(program, stream="dp_gather") == []
    assert all(isinstance(before.action, Compute) for task in the_passes(program) for before in waits_for(program, task))


def test_one_layer_is_gathered_while_the_layer_before_it_computes() -> None:
    program = lower(sharded())
    gathers, forward = chosen(program, stream="dp_gather"), the_passes(program)[:4]

    # The third gather waits for the first layer, not for the second, which computes meanwhile.
    assert program.tasks.index(forward[0]) in gathers[2].after
    assert program.tasks.index(forward[1]) not in gathers[2].after


def test_without_overlap_a_gather_waits_for_all_computation_and_reduction() -> None:
    program = lower(sharded(overlap=False))
    gathers, passes = chosen(program, stream="dp_gather"), the_passes(program)

    for gather, before in zip(gathers[1:], passes, strict=False):
        assert program.tasks.index(before) in gather.after
    assert "gradients" in [task.action.name for task in waits_for(program, gathers[-1])]


def test_gradients_of_a_layer_are_reduced_after_its_backward_pass() -> None:
    program = lower(sharded())
    backward, reductions = the_passes(program)[4:], chosen(program, "gradients")

    assert len(reductions) == 4
    for task, reduction in zip(backward, reductions, strict=True):
        assert program.tasks.index(task) in reduction.after
        assert collective(reduction).op == "reduce_scatter"


def test_without_overlap_the_next_layer_waits_for_the_reduction() -> None:
    program = lower(sharded(zero_stage=2, overlap=False))
    backward, reductions = the_passes(program)[4:], chosen(program, "gradients")

    for reduction, after in zip(reductions, backward[1:], strict=False):
        assert program.tasks.index(reduction) in after.after


def test_weights_are_gathered_parameter_by_parameter_and_gradients_in_buckets() -> None:
    (gather, *_), (reduction, *_) = (tasks_of(sharded(bucket_bytes=1e6), stream=stream) for stream in ("dp_gather", "dp"))

    # Weights of two norms and four matrices, with their biases.
    assert collective(gather).pieces == 6
    assert collective(reduction).pieces == -(-collective(reduction).bytes // 1e6)


def test_both_go_to_the_groups_of_data_parallelism() -> None:
    plan = sharded(tp=2)

    for name in ("gather weights", "gradients"):
        assert {collective(task).group.members for task in tasks_of(plan, name)} == {((0, 2, 4, 6), (1, 3, 5, 7))}


def test_the_update_waits_for_the_last_reduction() -> None:
    program = lower(sharded())
    (update,) = chosen(program, "optimizer")

    assert program.tasks.index(chosen(program, "gradients")[-1]) in update.after


def test_zero_3_gathers_no_weights_after_the_update() -> None:
    program = lower(sharded())

    assert program.tasks[-1].action.name == "optimizer"
    assert lower(sharded(zero_stage=2)).tasks[-1].action.name == "gather weights"
