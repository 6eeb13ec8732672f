"""One run from a plan to its metrics: figures that follow from each other, flags, and equal runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from clustersim.documents.spots import Data
from clustersim.hardware.catalog import load_node
from clustersim.report.measure import breakdown
from clustersim.report.metrics import Flag, Metrics
from clustersim.scenario.run import run as run_scenario
from clustersim.scenario.simulate import algorithm_flags, memory_report, simulate
from clustersim.strategy.flops import hardware_flops, model_flops
from clustersim.strategy.memory import stage_memory
from clustersim.strategy.plan import Plan, Recompute
from clustersim.topology.build import build_cluster
from clustersim.topology.wired import WiredCluster
from clustersim.trace.timeline import KINDS, Timeline
from clustersim.workload.transformer import Experts
from tests.unit.scenario.samples import small
from tests.unit.strategy.factories import GPT, LLAMA, make_plan


@cache
def cluster_of(node: str, n_nodes: int) -> WiredCluster:
    return build_cluster(load_node(node), n_nodes)


def run(plan: Plan, node: str = "dgx-a100-80g", *, flags: Sequence[Flag] = ()) -> tuple[Metrics, Timeline]:
    return simulate(plan, cluster_of(node, max(1, plan.n_ranks // 8)), name="a run", flags=flags)


def metrics_of(plan: Plan, node: str = "dgx-a100-80g") -> Metrics:
    return run(plan, node)[0]


def codes(metrics: Metrics) -> list[str]:
    return [flag.code for flag in metrics.flags]


PLAN = make_plan(LLAMA, dp=2, tp=2, pp=4, recompute="full", global_batch_size=32)


def test_rates_are_work_over_step_time() -> None:
    metrics = metrics_of(PLAN)

    assert metrics.samples_per_s == pytest.approx(32 / metrics.step_time_s, rel=1e-12)
    assert metrics.tokens_per_s == pytest.approx(32 * 256 / metrics.step_time_s, rel=1e-12)
    assert metrics.tokens_per_s_per_gpu == pytest.approx(metrics.tokens_per_s / 16, rel=1e-12)


def test_utilisation_is_flops_over_what_all_accelerators_could_have_done() -> None:
    metrics = metrics_of(PLAN)
    # A100: 312e12 dense FLOP/s in 16 bits, from the data sheet that the profile names.
    could_have_done = metrics.step_time_s * 16 * 312e12

    assert metrics.model_flops_per_step == model_flops(PLAN)
    assert metrics.hardware_flops_per_step == hardware_flops(PLAN)
    assert metrics.mfu == pytest.approx(model_flops(PLAN) / could_have_done, rel=1e-12)
    assert metrics.hfu == pytest.approx(hardware_flops(PLAN) / could_have_done, rel=1e-12)
    assert metrics.tflops_per_gpu == pytest.approx(metrics.mfu * 312, rel=1e-12)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_hfu_exceeds_mfu_by_what_is_recomputed(recompute: Recompute) -> None:
    metrics = metrics_of(replace(PLAN, strategy=replace(PLAN.strategy, recompute=recompute)))

    assert (metrics.hfu > metrics.mfu) is (recompute != "none")
    assert 0.0 < metrics.mfu < 1.0


def test_the_peak_is_that_of_the_training_precision() -> None:
    narrow, wide = (metrics_of(make_plan(dp=8, precision=precision)) for precision in ("bf16", "tf32"))

    # tf32 has half the peak: the same FLOPs in a given time are twice the utilisation.
    assert narrow.mfu * narrow.step_time_s * 2 == pytest.approx(wide.mfu * wide.step_time_s, rel=1e-12)


def test_the_run_is_named_and_described() -> None:
    metrics = metrics_of(PLAN)

    assert (metrics.schema_version, metrics.scenario, metrics.ranks, metrics.gpus) == (1, "a run", 16, 16)
    degrees = metrics.parallelism
    assert (degrees.dp, degrees.tp, degrees.pp, degrees.cp, degrees.ep) == (2, 2, 4, 1, 1)


def test_the_bubble_fraction_is_the_bubble_over_the_step() -> None:
    metrics = metrics_of(PLAN)

    assert metrics.bubble_fraction == metrics.breakdown_s.bubble / metrics.step_time_s
    assert 0.0 < metrics.bubble_fraction < 1.0
    assert metrics_of(make_plan(dp=8)).bubble_fraction == 0.0


def test_the_step_ends_with_the_last_span() -> None:
    metrics, timeline = run(PLAN)

    assert metrics.step_time_s == timeline.step_time_s == max(span.end_s for span in timeline.spans)
    assert {span.kind for span in timeline.spans} <= set(KINDS)


def test_classes_stand_for_ranks_and_say_so() -> None:
    engine = metrics_of(PLAN).engine

    assert (engine.ranks, engine.rank_classes, engine.folded) == (16, 4, True)
    assert engine.events > 0


def test_nothing_is_folded_where_every_rank_is_a_class() -> None:
    engine = metrics_of(make_plan(pp=8)).engine

    assert (engine.ranks, engine.rank_classes, engine.folded) == (8, 8, False)


@pytest.mark.parametrize("plan", [PLAN, make_plan(dp=8, zero_stage=3), make_plan(tp=8, sequence_parallel=True)])
def test_equal_runs_are_equal_but_for_their_wall_time(plan: Plan) -> None:
    (first, first_timeline), (second, second_timeline) = run(plan), run(plan)

    assert replace(first, engine=replace(first.engine, wall_s=0.0)) == replace(second, engine=replace(second.engine, wall_s=0.0))
    assert first_timeline.spans == second_timeline.spans
    assert first_timeline.links == second_timeline.links


def test_every_tier_that_the_cluster_has_is_reported_and_none_is_overbooked() -> None:
    metrics = metrics_of(PLAN)

    assert [use.tier for use in metrics.links] == ["nvlink", "pcie", "socket", "nic", "leaf", "memory", "storage"]
    for use in metrics.links:
        assert 0.0 <= use.mean_utilisation <= use.peak_utilisation <= 1.0


def test_one_node_uses_no_network() -> None:
    links = {use.tier: use.bytes for use in metrics_of(make_plan(tp=8)).links}

    assert "nic" not in links
    assert links["nvlink"] > 0.0


def test_the_links_of_a_node_carry_what_the_collectives_move() -> None:
    metrics = metrics_of(make_plan(LLAMA, dp=8, global_batch_size=8))
    gradients_bytes = metrics.memory.by_stage[0].gradients_bytes

    carried = {use.tier: use.bytes for use in metrics.links}["nvlink"]

    # Each of 8 ranks sends 2 (n - 1) / n S over its way up, and as much comes down.
    assert {(choice.algorithm, choice.protocol) for choice in metrics.collectives} == {("ring", "simple")}
    assert carried == pytest.approx(8 * 2 * (2 * 7 / 8 * gradients_bytes), rel=1e-9)


def test_sends_that_overlap_do_not_count_as_exposed() -> None:
    plan = make_plan(pp=8, overlap_p2p=True)
    metrics, timeline = run(plan)

    assert metrics.breakdown_s == breakdown(timeline, sends_block=False, pipelined=True)[0]
    assert metrics.breakdown_s != breakdown(timeline, sends_block=True, pipelined=True)[0]


# Memory


def test_the_peak_is_that_of_the_stage_that_needs_most() -> None:
    memory = metrics_of(PLAN).memory

    assert [stage.stage for stage in memory.by_stage] == [0, 1, 2, 3]
    assert memory.peak_bytes == max(stage.peak_bytes for stage in memory.by_stage)
    for stage, held in enumerate(memory.by_stage):
        holds = stage_memory(PLAN, stage)
        assert held.peak_bytes == holds.peak_bytes
        assert held.activations_bytes == holds.activations_bytes


def test_the_parts_of_a_stage_s_memory_sum_to_its_peak() -> None:
    for stage in metrics_of(PLAN).memory.by_stage:
        parts = stage.parameters_bytes + stage.gradients_bytes + stage.optimizer_bytes + stage.activations_bytes + stage.buffers_bytes
        assert stage.peak_bytes == pytest.approx(parts, rel=1e-12)


def test_a_plan_fits_up_to_the_last_byte() -> None:
    cluster = cluster_of("dgx-a100-80g", 1)
    peak_bytes = memory_report(make_plan(dp=8), cluster).peak_bytes

    def with_memory(memory_bytes: float) -> WiredCluster:
        accelerator = replace(cluster.node.accelerator, memory_bytes=memory_bytes)
        return build_cluster(replace(cluster.node, accelerator=accelerator), 1)

    assert memory_report(make_plan(dp=8), with_memory(peak_bytes)).fits
    assert not memory_report(make_plan(dp=8), with_memory(peak_bytes - 1)).fits


def test_a_plan_that_does_not_fit_is_simulated_all_the_same() -> None:
    large = replace(GPT, n_layers=96, hidden_size=12288, n_heads=96, n_kv_heads=96, head_dim=128, intermediate_size=49152)

    metrics = metrics_of(make_plan(large, tp=8, global_batch_size=1))

    assert not metrics.memory.fits
    assert metrics.step_time_s > 0.0


# Flags


def test_the_reserve_is_always_flagged() -> None:
    (flag,) = [flag for flag in metrics_of(make_plan(tp=8)).flags if flag.code == "assumed_reserve"]

    assert "1.5 GB" in flag.message


@pytest.mark.parametrize(("spare_fraction", "flagged"), [(0.03, True), (0.10, False), (-0.01, False)])
def test_what_only_an_allocator_would_not_fit_is_flagged(spare_fraction: float, flagged: bool) -> None:
    plan = make_plan(tp=8, micro_batch_size=16)
    allocated_bytes = metrics_of(plan).memory.peak_bytes
    node = load_node("dgx-a100-80g")
    small = replace(node, accelerator=replace(node.accelerator, memory_bytes=allocated_bytes + spare_fraction * (allocated_bytes - 1.5e9)))

    metrics, _ = simulate(plan, build_cluster(small, 1), name="tight", flags=())

    assert ("allocator_reserve" in codes(metrics)) is flagged
    assert metrics.memory.fits is (spare_fraction > 0)


def test_what_was_assumed_before_comes_first() -> None:
    metrics, _ = run(make_plan(tp=8), flags=(Flag(code="before", message="an assumption"),))

    assert codes(metrics)[0] == "before"


def test_a_measured_accelerator_is_not_flagged_and_a_borrowed_or_related_one_is() -> None:
    plan = make_plan(dp=8, precision="fp16")

    assert not {"borrowed_calibration", "related_calibration"} & set(codes(metrics_of(plan)))
    assert "borrowed_calibration" in codes(metrics_of(plan, "dgx1-p100"))
    assert "related_calibration" in codes(metrics_of(plan, "hgx-a800"))


def test_experts_say_that_their_products_were_not_measured() -> None:
    mixture = replace(LLAMA, experts=Experts(n_experts=8, top_k=2, intermediate_size=256))

    assert "uncalibrated_experts" in codes(metrics_of(make_plan(mixture, dp=8)))
    assert "uncalibrated_experts" not in codes(metrics_of(make_plan(LLAMA, dp=8)))


def test_kernels_that_join_experts_say_that_they_are_counted() -> None:
    plan = make_plan(replace(LLAMA, experts=Experts(n_experts=8, top_k=2, intermediate_size=256)), dp=8)
    for grouped in (True, "fused"):
        found = codes(metrics_of(replace(plan, training=replace(plan.training, grouped_experts=grouped))))
        assert ("joined_experts" in found) is (grouped == "fused")


def test_fp8_says_what_it_leaves_out() -> None:
    assert "fp8_products_only" in codes(metrics_of(make_plan(dp=8, precision="fp8"), "dgx-h100"))
    assert "fp8_products_only" not in codes(metrics_of(make_plan(dp=8), "dgx-h100"))


@pytest.mark.parametrize(
    ("changes", "flagged"),
    [
        ({"dp": 8}, False),
        ({"tp": 8}, True),
        ({"tp": 8, "overlap_tp": "none"}, False),
        ({"pp": 8, "overlap_p2p": True}, True),
        ({"pp": 8}, False),
    ],
)
def test_communication_that_slows_nobody_is_named(changes: dict[str, object], flagged: bool) -> None:
    assert ("no_interference" in codes(metrics_of(make_plan(**changes)))) is flagged


@pytest.mark.parametrize(("changes", "flagged"), [({}, True), ({"tp": 8}, False), ({"vocabulary_multiple": 64}, False)])
def test_a_vocabulary_that_slows_the_head_is_named_with_what_mends_it(changes: dict[str, object], flagged: bool) -> None:
    metrics = metrics_of(make_plan(replace(GPT, vocab_size=50257), **changes))

    assert [
        flag.message.endswith("training.vocabulary_multiple: 64 pads them") for flag in metrics.flags if flag.code == "unaligned_vocabulary"
    ] == ([True] if flagged else [])


def test_algorithms_that_nobody_measured_are_named() -> None:
    (flag,) = algorithm_flags(["ring", "pat", "nvls", "hierarchical", "pat"])

    assert flag.code == "uncalibrated_algorithm"
    assert "no measurements of hierarchical, pat;" in flag.message


def test_a_run_with_collectives_that_were_measured_has_no_algorithm_to_name() -> None:
    metrics = metrics_of(make_plan(dp=8))

    assert {choice.algorithm for choice in metrics.collectives} == {"ring"}
    assert "uncalibrated_algorithm" not in codes(metrics)


def test_constants_that_nobody_measured_are_named() -> None:
    (flag,) = [flag for flag in metrics_of(make_plan(dp=8)).flags if flag.code == "assumed_constants"]

    assert "ampere.launch.kernel" in flag.message
    assert "gemm" not in flag.message


def test_groups_that_lie_unevenly_are_named() -> None:
    # Six ranks a stage on nodes of eight: the second stage has two on one node and four on the next.
    uneven = make_plan(LLAMA, dp=6, pp=4, global_batch_size=24)

    messages = [flag.message for flag in metrics_of(uneven).flags if flag.code == "uneven_placement"]

    assert any("'dp of stage 1'" in message for message in messages)
    assert "uneven_placement" not in codes(metrics_of(PLAN))


def test_fp8_leaves_attention_in_16_bits() -> None:
    # Sequences so long, and an MLP so narrow, that nearly all the time goes into fused attention.
    long = replace(LLAMA, n_layers=1, intermediate_size=64)
    times = [
        metrics_of(make_plan(long, dp=8, precision=precision, attention="flash", seq_length=65536), "dgx-h100").breakdown_s.compute
        for precision in ("bf16", "fp8")
    ]

    assert times[1] > 0.9 * times[0]


# Physics that any model of a cluster must show


def test_fp8_is_faster_than_bf16() -> None:
    wide = replace(LLAMA, hidden_size=4096, head_dim=512, intermediate_size=14336)

    assert (
        metrics_of(make_plan(wide, dp=8, micro_batch_size=16, global_batch_size=128, precision="fp8"), "dgx-h100").step_time_s
        < metrics_of(make_plan(wide, dp=8, micro_batch_size=16, global_batch_size=128), "dgx-h100").step_time_s
    )


def test_recomputation_takes_longer_and_needs_less_memory() -> None:
    none, full = (metrics_of(make_plan(dp=8, recompute=recompute)) for recompute in ("none", "full"))

    assert full.step_time_s > none.step_time_s
    assert full.memory.peak_bytes < none.memory.peak_bytes


def test_gradients_are_hidden_by_overlap() -> None:
    apart, together = (metrics_of(make_plan(dp=16, overlap=overlap)) for overlap in (False, True))

    assert together.step_time_s < apart.step_time_s
    assert together.breakdown_s.exposed_communication.dp < apart.breakdown_s.exposed_communication.dp
    assert apart.overlapped_communication_s.dp == 0.0 < together.overlapped_communication_s.dp


def test_more_micro_batches_shrink_the_bubble() -> None:
    few, many = (metrics_of(make_plan(pp=8, global_batch_size=size)) for size in (8, 64))

    assert many.bubble_fraction < few.bubble_fraction


def test_tensor_parallelism_across_nodes_is_slower_than_inside_one() -> None:
    inside = make_plan(tp=8, dp=2)
    across = make_plan(tp=8, dp=2, placement=("dp", "cp", "ep", "tp", "pp"))

    assert metrics_of(across).breakdown_s.exposed_communication.tp > metrics_of(inside).breakdown_s.exposed_communication.tp


def test_a_faster_accelerator_takes_less_time_for_the_same_work() -> None:
    old, new = (metrics_of(make_plan(dp=8), node) for node in ("dgx-a100-80g", "dgx-h100"))

    assert new.step_time_s < old.step_time_s
    assert new.model_flops_per_step == old.model_flops_per_step


def test_captured_kernels_do_not_wait_for_the_host() -> None:
    issued, captured = (
        metrics_of(make_plan(LLAMA, dp=2, tp=2, pp=4, global_batch_size=32, cuda_graphs=graphs)) for graphs in (False, True)
    )

    assert captured.step_time_s < issued.step_time_s
    assert captured.breakdown_s.host < issued.breakdown_s.host
    assert captured.breakdown_s.compute == pytest.approx(issued.breakdown_s.compute, rel=1e-9)


def test_launches_that_block_cost_the_host_in_full() -> None:
    free, held = (
        metrics_of(make_plan(LLAMA, dp=2, tp=2, pp=4, global_batch_size=32, blocking_launches=blocks)) for blocks in (False, True)
    )

    assert held.step_time_s > free.step_time_s
    assert held.breakdown_s.host > free.breakdown_s.host
    # Idle while others are held up is a bubble, not work of the host; what is computed is the same.
    assert held.breakdown_s.compute == pytest.approx(free.breakdown_s.compute, rel=1e-9)


@pytest.mark.parametrize("recompute", ["none", "selective", "alternate", "full"])
def test_chunks_hide_more_than_weight_gradients_do(recompute: Recompute) -> None:
    plans = [
        make_plan(
            LLAMA, dp=2, tp=4, sequence_parallel=True, recompute=recompute, overlap_tp=overlap, micro_batch_size=4, global_batch_size=32
        )
        for overlap in ("none", "weight_gradient", "async_tp", "gemm_chunks")
    ]
    alone, beside, products, chunked = (metrics_of(plan).breakdown_s.exposed_communication.tp for plan in plans)

    assert chunked < min(beside, products) <= max(beside, products) < alone


@pytest.mark.parametrize(("seq_length", "flagged"), [(1024, False), (65536, True)])
def test_attention_that_a_mask_spares_is_told_where_it_is_much(seq_length: int, flagged: bool) -> None:
    training: Data = {"global_batch_size": 32, "seq_length": seq_length, "precision": "bf16"}
    flags = {flag.code: flag.message for flag in run_scenario(small(training=training)).metrics.flags}

    assert ("masked_attention_counted" in flags) is flagged
