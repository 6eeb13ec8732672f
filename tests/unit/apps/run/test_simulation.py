"""One run from a plan to its metrics: figures that follow from each other, and equal runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.run.simulation import memory_report
from clustersim.measure.step_breakdown import breakdown
from clustersim.parallel.stage import stages_of
from clustersim.parallel.training_plan import Recompute
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import KINDS
from tests.unit.config.simulated import PLAN, cluster_of, metrics_of, run
from tests.unit.parallel.factories import GPT, LLAMA, flops_of, make_plan, peak


def test_figures_of_a_run_follow_from_its_step_its_work_and_its_machine() -> None:
    metrics = metrics_of(PLAN)
    # A100: 312e12 dense FLOP/s in 16 bits, from the data sheet that the profile names.
    could_have_done = metrics.step_time_s * 16 * 312e12
    degrees = metrics.parallelism

    assert (metrics.schema_version, metrics.scenario, metrics.ranks, metrics.gpus) == (1, "a run", 16, 16)
    assert (degrees.dp, degrees.tp, degrees.pp, degrees.cp, degrees.ep) == (2, 2, 4, 1, 1)
    assert metrics.samples_per_s == pytest.approx(32 / metrics.step_time_s, rel=1e-12)
    assert metrics.tokens_per_s == pytest.approx(32 * 256 / metrics.step_time_s, rel=1e-12)
    assert metrics.tokens_per_s_per_gpu == pytest.approx(metrics.tokens_per_s / 16, rel=1e-12)
    assert (metrics.model_flops_per_step, metrics.hardware_flops_per_step) == (flops_of(PLAN).model, flops_of(PLAN).hardware)
    assert metrics.mfu == pytest.approx(flops_of(PLAN).model / could_have_done, rel=1e-12)
    assert metrics.hfu == pytest.approx(flops_of(PLAN).hardware / could_have_done, rel=1e-12)
    assert metrics.tflops_per_gpu == pytest.approx(metrics.mfu * 312, rel=1e-12)
    assert 0.0 < metrics.bubble_fraction == metrics.breakdown_s.bubble / metrics.step_time_s < 1.0
    assert metrics_of(make_plan(dp=8)).bubble_fraction == 0.0


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_hfu_exceeds_mfu_by_what_is_recomputed(recompute: Recompute) -> None:
    metrics = metrics_of(replace(PLAN, strategy=PLAN.strategy.changed(recompute=recompute)))

    assert (metrics.hfu > metrics.mfu) is (recompute != "none")
    assert 0.0 < metrics.mfu < 1.0


def test_the_peak_is_that_of_the_training_precision() -> None:
    narrow, wide = (metrics_of(make_plan(dp=8, precision=precision)) for precision in ("bf16", "tf32"))

    # tf32 has half the peak: the same FLOPs in a given time are twice the utilisation.
    assert narrow.mfu * narrow.step_time_s * 2 == pytest.approx(wide.mfu * wide.step_time_s, rel=1e-12)


def test_the_step_ends_with_the_last_span() -> None:
    metrics, timeline = run(PLAN)

    assert metrics.step_time_s == timeline.step_time_s == max(span.end_s for span in timeline.spans)
    assert {span.kind for span in timeline.spans} <= set(KINDS)


def test_every_tier_that_the_cluster_has_is_reported_and_none_is_overbooked() -> None:
    metrics = metrics_of(PLAN)

    assert "nic" not in [use.tier for use in metrics_of(make_plan(tp=8)).links]
    assert [use.tier for use in metrics.links] == ["nvlink", "pcie", "socket", "nic", "leaf", "memory", "storage"]
    for use in metrics.links:
        assert 0.0 <= use.mean_utilisation <= use.peak_utilisation <= 1.0


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
        assert held.peak_bytes == peak(PLAN, stage)
        assert held.activations_bytes == peak(PLAN, stage, category="activations")


def test_a_plan_fits_up_to_the_last_byte() -> None:
    cluster = cluster_of("dgx-a100-80g", 1)
    peak_bytes = memory_report(stages_of(make_plan(dp=8)), cluster).peak_bytes

    def with_memory(memory_bytes: float) -> Cluster:
        accelerator = replace(cluster.node.accelerator, memory_bytes=memory_bytes)
        return build_cluster(replace(cluster.node, accelerator=accelerator), 1)

    assert memory_report(stages_of(make_plan(dp=8)), with_memory(peak_bytes)).fits
    assert not memory_report(stages_of(make_plan(dp=8)), with_memory(peak_bytes - 1)).fits


def test_a_plan_that_does_not_fit_is_simulated_all_the_same() -> None:
    large = replace(GPT, n_layers=96, hidden_size=12288, n_heads=96, n_kv_heads=96, head_dim=128, intermediate_size=49152)

    metrics = metrics_of(make_plan(large, tp=8, global_batch_size=1))

    assert not metrics.memory.fits
    assert metrics.step_time_s > 0.0


# Flags


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
