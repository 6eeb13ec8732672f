"""Plans by schedule: chunks on stages, passes in two parts, copies of the model, stages of unequal length."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from clustersim.parallel.gradients import gradient_buckets
from clustersim.parallel.lower import lower
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.interleaved import interleaved_1f1b
from clustersim.parallel.schedules.one_f_one_b import one_f_one_b
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.stages import in_pairs, model_chunks, orders_of, places_of
from clustersim.parallel.training_plan import Plan
from clustersim.program.holds import FORWARD_TO_BACKWARD, INPUT_TO_WEIGHT
from clustersim.program.tasks import Communicate, Compute, Transfer
from clustersim.workloads.operators import Gemm, Kernel
from clustersim.workloads.transformer_shape import Experts
from tests.unit.parallel.factories import (
    GPT,
    LLAMA,
    chosen,
    chunk_passes,
    collectives_of,
    computes,
    held,
    kernels_of,
    local_of,
    make_plan,
    peak,
)

NEW = [name for name in SCHEDULES if name not in ("naive", "gpipe", "1f1b", "interleaved_1f1b")]
UNTIED = replace(GPT, tied_embeddings=False)
MIXED = replace(LLAMA, experts=Experts(n_experts=8, top_k=2, intermediate_size=128, dense_layers=(0, 1)))


def plan_of(schedule: str, **changes: object) -> Plan:
    fixed: dict[str, object] = {"pp": 4, "global_batch_size": 8, "virtual_stages": SCHEDULES[schedule].n_chunks or 2, "overlap_p2p": True}
    return make_plan(changes.pop("model", GPT), schedule=schedule, **(fixed | changes))  # pyright: ignore[reportArgumentType]


def multiset(kernels: list[Kernel]) -> Counter[str]:
    return Counter(map(repr, kernels))


def passes_of(plan: Plan) -> ChunkPasses:
    return chunk_passes(plan)


def test_layers_lie_in_a_v() -> None:
    plan = plan_of("zb_v")
    chunks = model_chunks(plan.strategy, plan.model.n_layers)

    assert [[list(chunk.layers) for chunk in stage] for stage in chunks] == [
        [[0, 1], [14, 15]],
        [[2, 3], [12, 13]],
        [[4, 5], [10, 11]],
        [[6, 7], [8, 9]],
    ]
    assert [(chunk.first, chunk.last, chunk.beside_first) for chunk in chunks[0]] == [(True, False, True), (False, True, True)]


def test_both_copies_of_a_model_lie_on_opposite_stages() -> None:
    plan = plan_of("dualpipe")
    chunks = model_chunks(plan.strategy, plan.model.n_layers)

    assert [[chunk.layers.start for chunk in stage] for stage in chunks] == [[0, 12], [4, 8], [8, 4], [12, 0]]
    assert [len(places_of(plan.strategy).micro_batches(chunk.way, plan.n_micro_batches)) for chunk in chunks[0]] == [4, 4]


def test_stages_may_have_layers_as_listed() -> None:
    plan = make_plan(pp=4, stage_layers=(3, 5, 5, 3))

    assert [chunk.layers for (chunk,) in model_chunks(plan.strategy, plan.model.n_layers)] == [
        range(3),
        range(3, 8),
        range(8, 13),
        range(13, 16),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tp": 4},
        {"tp": 4, "sequence_parallel": True},
        {"recompute": "full"},
        {"recompute": "selective"},
        {"model": MIXED},
        {"model": MIXED, "recompute": "full"},
    ],
)
def test_the_two_parts_of_a_backward_pass_are_the_whole_kernel_by_kernel(changes: dict[str, object]) -> None:
    plan = plan_of("zb_h1", **changes)
    passes = passes_of(plan)

    for (chunk,) in model_chunks(plan.strategy, plan.model.n_layers):
        parts = [*kernels_of(passes.of("input").backward(chunk)), *kernels_of(passes.of("weight").backward(chunk))]
        assert multiset(parts) == multiset(kernels_of(passes.backward(chunk)))


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_collectives_of_input_gradients_go_with_the_input_and_gathered_inputs_with_the_weights(sequence_parallel: bool) -> None:
    passes = passes_of(plan_of("zb_h1", tp=4, sequence_parallel=sequence_parallel))

    whole, inputs, weights = (collectives_of(passes.of(part).layer_backward()) for part in ("all", "input", "weight"))

    assert [each.op for each in weights] == (["all_gather"] * 2 if sequence_parallel else [])
    assert len(inputs) + len(weights) == len(whole)


def test_all_that_is_put_off_are_products_and_what_follows_them() -> None:
    (chunk,) = stage_of(plan_of("zb_h1"), 0).chunks
    layer = passes_of(plan_of("zb_h1")).of("weight").backward(chunk)[0].body

    # Four products of a GPT layer, each with a bias.
    kernels = [kernel for item in layer for kernel in getattr(item, "kernels", ())]
    assert sum(isinstance(kernel, Gemm) for kernel in kernels) == 4


def test_what_waits_for_weight_gradients_is_32_sbh() -> None:
    plan = plan_of("zb_h1")

    # P. Qi et al., ICLR 2024, table 1: M_W, for each layer; a middle stage has four.
    assert stage_of(plan, 0).activations.chunk_weight_bytes(stage_of(plan, 1).chunks[0]) == 4 * 32 * 256 * 512


def test_the_input_gradient_frees_what_only_it_needs() -> None:
    plan = plan_of("zb_h1")

    assert held(plan, 1, interval=INPUT_TO_WEIGHT) < held(plan, 1, interval=FORWARD_TO_BACKWARD)
    assert peak(plan, 1, category="activations") < peak(plan_of("1f1b"), category="activations")


def test_recomputation_saves_nothing_of_weight_gradients_that_wait() -> None:
    full, none = (held(plan_of("zb_h1", recompute=recompute), 1, interval=INPUT_TO_WEIGHT) for recompute in ("full", "none"))

    assert full == none > 0.0


def test_a_stage_with_both_ends_holds_a_tied_table_once() -> None:
    tied, untied = plan_of("zb_v"), plan_of("zb_v", model=UNTIED)

    assert stage_of(untied, 0).weights.total - stage_of(tied, 0).weights.total == local_of(tied).tied_parameters
    assert sum(stage_of(tied, stage).weights.total for stage in range(4)) == stage_of(make_plan(), 0).weights.total
    buckets = [
        bucket for chunk in stage_of(tied, 0).chunks for bucket in gradient_buckets(local_of(tied), tied.strategy.data_parallel, chunk)
    ]
    assert sum(bucket.parameters for bucket in buckets) == stage_of(tied, 0).weights.total


@pytest.mark.parametrize(("schedule", "sums"), [("1f1b", 1), ("zb_h1", 1), ("zb_v", 0), ("dualpipe_v", 0), ("dualpipe", 0)])
def test_a_tied_gradient_crosses_a_wire_only_between_stages(schedule: str, sums: int) -> None:
    assert len(chosen(lower(plan_of(schedule)), "embedding gradient")) == sums


def test_copies_of_the_model_add_up_their_gradients() -> None:
    plan = plan_of("dualpipe")
    sums = chosen(lower(plan), "gradients of copies")

    assert [sorted(lane.rank_class for lane in task.lanes) for task in sums] == [[0, 3], [1, 2]]
    for stage, task in enumerate(sums):
        assert isinstance(task.action, Communicate)
        assert task.action.collective.bytes == 4.0 * stage_of(plan, stage).weights.total == 4.0 * stage_of(plan, 3 - stage).weights.total


def test_a_stage_of_two_copies_holds_two_parts_of_the_model() -> None:
    plan = plan_of("dualpipe", model=UNTIED)

    whole = stage_of(make_plan(UNTIED), 0).weights.total
    assert sum(stage_of(plan, stage).weights.total for stage in range(4)) == 2 * whole


@pytest.mark.parametrize("schedule", NEW)
def test_stages_compute_in_the_order_of_their_schedule(schedule: str) -> None:
    plan = plan_of(schedule)
    program = lower(plan)

    for stage, order in enumerate(orders_of(plan.strategy, plan.n_micro_batches)):
        done = [(task.action.name, task.micro_batch, task.chunk) for task in computes(program, stage) if task.micro_batch >= 0]
        assert done == [(step.kind, step.micro_batch, step.chunk) for step in order]


@pytest.mark.parametrize(("schedule", "borders"), [("zb_h1", 3), ("zb_v", 6), ("dualpipe_v", 6), ("dualpipe", 3), ("breadth_first", 7)])
def test_what_follows_on_the_same_stage_is_not_sent(schedule: str, borders: int) -> None:
    transfers = [task for task in lower(plan_of(schedule)).tasks if isinstance(task.action, Transfer)]

    assert len(transfers) == 2 * 8 * borders


@pytest.mark.parametrize(
    ("schedule", "settings", "waits"),
    [
        ("1f1b", {"overlap_p2p": True}, 0.0),
        ("1f1b", {"overlap_p2p": False}, 1.0),
        ("1f1b", {"overlap_p2p": False, "sync_p2p": False}, 0.0),
        ("interleaved_1f1b", {"overlap_p2p": False}, 0.5),
        ("zb_h1", {"overlap_p2p": False}, 1.0),
    ],
)
def test_hosts_wait_for_sends_that_overlap_with_nothing(schedule: str, settings: dict[str, object], waits: float) -> None:
    transfers = [task.action for task in lower(plan_of(schedule, **settings)).tasks if isinstance(task.action, Transfer)]

    assert {transfer.waits_per_transfer for transfer in transfers} == {waits}


def test_transfers_up_and_down_the_stages_have_streams_of_their_own() -> None:
    transfers = [task for task in lower(plan_of("zb_v")).tasks if isinstance(task.action, Transfer)]

    streams = {tuple(lane.stream for lane in task.lanes) for task in transfers}
    assert streams == {
        ("send_forward", "recv_forward"),
        ("send_forward_up", "recv_forward_up"),
        ("send_backward", "recv_backward"),
        ("send_backward_down", "recv_backward_down"),
    }


def test_passes_side_by_side_start_with_all_that_they_need_and_send_when_both_are_through() -> None:
    program = lower(plan_of("dualpipe"))
    order = stage_of(plan_of("dualpipe"), 1).order
    tasks = [task for task in computes(program, 1) if task.micro_batch >= 0]
    index = {id(task): number for number, task in enumerate(program.tasks)}

    pairs = [(one, other) for (step, _), (one, other) in zip(pairwise(order), pairwise(tasks), strict=True) if step.beside_next]

    assert pairs
    for one, other in pairs:
        assert sum(isinstance(program.tasks[number].action, Transfer) for number in one.after) >= 1
        assert other.after == (index[id(one)],)
        sent = [task for task in program.tasks if isinstance(task.action, Transfer) and index[id(one)] in task.after]
        assert not sent


@pytest.mark.parametrize("schedule", ["zb_h1", "zb_v", "dualpipe"])
@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_are_reduced_behind_the_last_weight_gradient_of_their_chunk(schedule: str, overlap: bool) -> None:
    plan = plan_of(schedule, dp=2, global_batch_size=16, overlap=overlap)
    program = lower(plan)

    for stage in range(4):
        reduced = chosen(program, "gradients", rank_class=stage)
        sizes = [task.action.collective.bytes for task in reduced if isinstance(task.action, Communicate)]
        assert sum(sizes) == pytest.approx(4.0 * stage_of(plan, stage).weights.total, rel=1e-12)
        for task in reduced:
            before = [program.tasks[number].action for number in task.after]
            assert any(isinstance(action, Compute) and action.name in ("W", "B") for action in before)


def test_a_norm_that_is_checked_later_holds_nobody_up() -> None:
    assert not chosen(lower(plan_of("zb_h1", optimizer_post_validation=True)), "gradient norm")
    assert len(chosen(lower(plan_of("zb_h1")), "gradient norm")) == 1


def test_a_chunk_without_layers_holds_an_end_of_the_model() -> None:
    plan = plan_of("interleaved_1f1b", dp=2, global_batch_size=16, stage_layers=(0, 2, 3, 3, 3, 3, 2, 0))
    first, last = stage_of(plan, 0).chunks[0], stage_of(plan, 3).chunks[1]

    assert [block.name for block in passes_of(plan).forward(first)] == ["embedding"]
    assert [block.name for block in passes_of(plan).backward(last)] == ["head"]
    assert peak(plan) > 0
    assert len(lower(plan).tasks) > 0


def test_each_backward_pass_runs_beside_a_forward_pass_of_another_micro_batch() -> None:
    (alone,) = in_pairs(one_f_one_b(1, 4, 1))

    assert [f"{step.kind}{step.micro_batch}{'&' if step.beside_next else ''}" for step in alone] == [
        "F0",
        "F1&",
        "B0",
        "F2&",
        "B1",
        "F3&",
        "B2",
        "B3",
    ]
    for plain, paired in zip(interleaved_1f1b(2, 4, 2), in_pairs(interleaved_1f1b(2, 4, 2)), strict=True):
        assert Counter(plain) == Counter(paired)
        met = [(one, other) for one, other in pairwise(paired) if one.beside_next]
        assert met
        assert all((one.kind, other.kind) == ("F", "B") and one.micro_batch != other.micro_batch for one, other in met)
