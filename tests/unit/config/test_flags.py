"""Flags of a run: assumed, borrowed, extrapolated and omitted figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.run.running import run as run_scenario
from clustersim.apps.run.simulation import algorithm_flags, simulate
from clustersim.documents.text import Data
from clustersim.hardware.catalog import load_node
from clustersim.notices import Flag
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.workloads.transformer_shape import Experts
from tests.unit.config.samples import small
from tests.unit.config.simulated import PLAN, codes, metrics_of, run
from tests.unit.parallel.factories import GPT, LLAMA, make_plan


def test_the_reserve_is_always_flagged() -> None:
    (flag,) = [flag for flag in metrics_of(make_plan(tp=8)).flags if flag.code == "assumed_reserve"]

    assert "1.4 GiB" in flag.message


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
        found = codes(metrics_of(replace(plan, training=plan.training.changed(grouped_experts=grouped))))
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


@pytest.mark.parametrize(("position", "kernels", "flagged"), [("yarn", "fused", True), ("yarn", "eager", False), ("rope", "fused", False)])
def test_separate_kernels_of_rotation_are_named(position: str, kernels: str, flagged: bool) -> None:
    assert ("unfused_rotation" in codes(metrics_of(make_plan(replace(LLAMA, position=position), kernels=kernels)))) is flagged


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


@pytest.mark.parametrize(("seq_length", "flagged"), [(1024, False), (65536, True)])
def test_attention_that_a_mask_spares_is_told_where_it_is_much(seq_length: int, flagged: bool) -> None:
    training: Data = {"global_batch_size": 32, "seq_length": seq_length, "precision": "bf16"}
    flags = {flag.code: flag.message for flag in run_scenario(small(training=training)).metrics.flags}

    assert ("masked_attention_counted" in flags) is flagged


def test_times_after_36_hours_are_said_to_be_rounded() -> None:
    length = {"training.seq_length": 2**17, "training.micro_batch_size": 2}
    long, short = (run_scenario("gpt-22b-one-node", {**length, "training.global_batch_size": batch}) for batch in (2**16, 2))

    assert "rounded_ticks" in codes(long.metrics)
    assert "rounded_ticks" not in codes(short.metrics)
