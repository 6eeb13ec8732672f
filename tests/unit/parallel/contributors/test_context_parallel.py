"""Exchange around attention between ranks with parts of every sequence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.parallel.contributors.context_parallel import ContextParallelism, SharedAttention
from clustersim.parallel.division import divided, place
from clustersim.parallel.groups import parallel_groups
from clustersim.parallel.shard import numerics
from clustersim.parallel.training_plan import Plan
from clustersim.program.tasks import Collective, Item, Overlapped, Work
from clustersim.workloads.operators import FlashAttention, Operator, Stream
from clustersim.workloads.shapes import ContextKind
from clustersim.workloads.transformer_shape import Window
from tests.unit.parallel.factories import BERT, LLAMA, collectives_of, local_of, make_plan, works_of

S = 1024


def plan_of(cp: int, kind: ContextKind = "ring", **changes: object) -> Plan:
    model = changes.pop("model", LLAMA)
    return make_plan(model, cp=cp, context_parallel=kind, seq_length=S, attention="flash", **changes)  # pyright: ignore[reportArgumentType] a model


def core(plan: Plan, layer: int = 0) -> Operator:
    attention, *_ = plan.model.sublayers(layer, local_of(plan).shape(), numerics(plan.training))
    return next(operator for operator in attention.operators if operator.name == "attention")


def parallel(plan: Plan) -> SharedAttention:
    technique = ContextParallelism.inside(
        local_of(plan), plan.strategy, parallel_groups(plan.model, plan.strategy, divided(place(plan.strategy)), stage=0, part=0)
    )
    assert isinstance(technique, SharedAttention)
    return technique


def shapes(items: tuple[Item, ...]) -> list[str]:
    """Return what each item is, work with what runs beside it in brackets."""
    names = {Work: "work", Collective: "move", Overlapped: "beside"}
    return [names[type(item)] for item in items]


def test_a_ring_computes_on_what_is_here_while_the_next_keys_come() -> None:
    plan = plan_of(4)
    items = parallel(plan).attention_forward(core(plan))

    assert shapes(items) == ["beside"] * 3 + ["work"]
    assert {each.op for each in collectives_of(items)} == {"send_recv"}


def test_backward_gradients_of_keys_go_one_hop_further_and_are_waited_for() -> None:
    plan = plan_of(4)
    items = parallel(plan).attention_backward(core(plan))
    once = parallel(plan).attention_forward(core(plan))[0]
    assert isinstance(once, Overlapped)

    assert shapes(items) == ["beside"] * 4 + ["work", "move"]
    assert [each.bytes / once.collectives[0].bytes for each in collectives_of(items)] == [1, 2, 2, 1, 1]


def test_the_first_step_is_the_causal_one_and_the_others_half_of_whole_blocks() -> None:
    first, *others, merge = core(plan_of(4)).kernels("forward")
    assert isinstance(first, FlashAttention)
    assert isinstance(merge, Stream)

    assert (first.causal, first.query_length, first.key_length) == (True, S // 4, S // 4)
    assert len(others) == 3
    for other in others:
        assert isinstance(other, FlashAttention)
        assert (other.causal, other.query_length, other.key_length) == (False, S // 4, S // 8)


def test_steps_of_a_causal_ring_do_as_much_as_a_rank_has_of_the_triangle() -> None:
    whole = core(make_plan(LLAMA, seq_length=S, attention="flash")).kernels("forward")[0]
    steps = [kernel for kernel in core(plan_of(8)).kernels("forward") if isinstance(kernel, FlashAttention)]
    assert isinstance(whole, FlashAttention)

    assert sum(step.flops * step.done_fraction for step in steps) == pytest.approx(whole.flops * whole.done_fraction / 8, rel=1e-12)


def test_without_a_mask_every_step_takes_all_keys_of_another_rank() -> None:
    steps = [kernel for kernel in core(plan_of(4, model=BERT)).kernels("forward") if isinstance(kernel, FlashAttention)]

    assert {(step.query_length, step.key_length, step.causal) for step in steps} == {(S // 4, S // 4, False)}


@pytest.mark.parametrize(("direction", "ops"), [("forward", ["all_gather"]), ("backward", ["all_gather", "reduce_scatter"])])
def test_gathered_keys_are_gathered_again_for_their_gradients(direction: str, ops: list[str]) -> None:
    plan = plan_of(4, "all_gather")
    both = parallel(plan)
    items = both.attention_forward(core(plan)) if direction == "forward" else both.attention_backward(core(plan))

    assert [each.op for each in collectives_of(items)] == ops
    keys = core(plan).kernels("forward")[0]
    assert isinstance(keys, FlashAttention)
    assert (keys.query_length, keys.key_length) == (S // 4, S)


def test_ulysses_attends_over_whole_sequences_with_a_part_of_the_heads() -> None:
    plan = plan_of(4, "ulysses")
    items = parallel(plan).attention_forward(core(plan))
    (kernel,) = core(plan).kernels("forward")
    assert isinstance(kernel, FlashAttention)

    assert shapes(items) == ["move", "work", "move"]
    assert (kernel.n_heads, kernel.n_kv_heads, kernel.query_length, kernel.key_length) == (LLAMA.n_heads // 4, 1, S, S)


def test_heads_fewer_than_ranks_are_sent_to_all_that_need_them() -> None:
    plans = [plan_of(8, "ulysses", model=replace(LLAMA, n_kv_heads=heads)) for heads in (2, 8)]
    sent = [collectives_of(parallel(plan).attention_forward(core(plan)))[0].bytes for plan in plans]

    assert sent[0] == sent[1]


def test_a_window_bounds_the_keys_of_a_rank() -> None:
    windowed = replace(LLAMA, window=Window(tokens=64))
    plan = plan_of(4, "all_gather", model=windowed)
    (kernel,) = core(plan).kernels("forward")
    assert isinstance(kernel, FlashAttention)

    assert kernel.seen_length == 64
    assert core(plan).forward_flops == pytest.approx(
        core(make_plan(windowed, seq_length=S, attention="flash")).forward_flops / 4, rel=1e-12
    )


@pytest.mark.parametrize("kind", ["ring", "all_gather", "ulysses"])
def test_each_rank_keeps_its_part_of_queries_keys_and_values(kind: ContextKind) -> None:
    whole = core(make_plan(LLAMA, seq_length=S, attention="flash")).saved_bytes

    assert core(plan_of(8, kind)).saved_bytes == pytest.approx(whole / 8, rel=1e-12)


def test_recomputation_of_attention_repeats_its_communication() -> None:
    plan = plan_of(4)
    items = parallel(plan).attention_forward(core(plan), "recompute")

    assert {work.phase for work in works_of(items)} == {"recompute"}
    assert len(collectives_of(items)) == 3
