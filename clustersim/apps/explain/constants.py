"""The figures of the world that a result stands on, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clustersim.config.build import Built
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Node, Source
from clustersim.hardware.provenance import SCENARIO
from clustersim.kernels.gemm import alignment
from clustersim.parallel.shard import head_vector_bytes
from clustersim.parallel.stage import Stage, stage_of
from clustersim.parallel.step_settings import Precision
from clustersim.units.quantity import format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One figure."""

    name: str
    """Profile and field, such as ``h100-sxm5-80g.memory_bandwidth``."""
    meaning: str
    value: str
    """With its unit."""
    sources: tuple[Source, ...]
    """Those that cover it; several where several measurements were fitted together."""


@dataclass(frozen=True, slots=True)
class _Figure:
    field: str
    meaning: str
    value: str


def constants_of(built: Built) -> tuple[Constant, ...]:
    """Return the inputs of the step time besides the scenario: data sheets and calibration, by kind of node."""
    found: dict[str, Constant] = {}
    for node, _ in built.cluster.kinds:
        calibration = calibration_for(node.accelerator)
        parts = (
            (node.accelerator.name, node.accelerator.sources, _of_accelerator(node, built.plan.training.precision)),
            (node.nic.name, node.nic.sources, _of_nic(node)),
            (calibration.name, calibration.sources, _of_calibration(calibration, stage_of(built.plan, 0))),
        )
        for name, sources, figures in parts:
            for figure in figures:
                full = f"{name}.{figure.field}"
                found[full] = Constant(name=full, meaning=figure.meaning, value=figure.value, sources=_covering(sources, figure.field))
    return tuple(found.values())


def served_constants(node: Node) -> tuple[Constant, ...]:
    """Return the data sheet that the steps of a serving run follow from."""
    parts = (
        (node.accelerator.name, node.accelerator.sources, _of_accelerator(node, "bf16")),
        (node.nic.name, node.nic.sources, _of_nic(node)),
    )
    return tuple(
        Constant(name=f"{name}.{each.field}", meaning=each.meaning, value=each.value, sources=_covering(sources, each.field))
        for name, sources, figures in parts
        for each in figures
    )


def _covering(sources: Sequence[Source], field: str) -> tuple[Source, ...]:
    path = field.split(".")
    covering = tuple(source for source in sources if any(path[: len(cover.split("."))] == cover.split(".") for cover in source.covers))
    # What the user gave replaces what a profile says.
    return tuple(source for source in covering if source.url == SCENARIO) or covering


def _of_accelerator(node: Node, precision: Precision) -> Iterator[_Figure]:
    card = node.accelerator
    yield _Figure(
        f"peak_flops.{precision}", f"dense matrix peak in {precision}", format_quantity(card.peak_flops_per_s[precision], "FLOP/s")
    )
    yield _Figure("memory", "memory of one accelerator", format_quantity(card.memory_bytes, "B"))
    yield _Figure("memory_bandwidth", "bandwidth of that memory", format_quantity(card.memory_bandwidth_bytes_per_s, "B/s"))
    if card.scale_up_bandwidth_bytes_per_s > 0:
        yield _Figure("scale_up.bandwidth", "all scale-up links of one accelerator, one way", _rate(card.scale_up_bandwidth_bytes_per_s))
    yield _Figure("multiprocessors", "multiprocessors, among which tiles of products are dealt out", str(card.n_multiprocessors))


def _of_nic(node: Node) -> Iterator[_Figure]:
    yield _Figure("bandwidth", f"one of {node.n_nics} adapters of a node, one way", _rate(node.nic.bandwidth_bytes_per_s))
    yield _Figure("latency", "of an adapter", format_quantity(node.nic.latency_s, "s"))


def _rate(bytes_per_s: float) -> str:
    return format_quantity(bytes_per_s, "B/s")


def _of_calibration(calibration: Calibration, stage: Stage) -> Iterator[_Figure]:
    gemm, precision, launch, network = calibration.gemm, stage.training.precision, calibration.launch, calibration.network
    for name, meaning, shares in (
        ("sustained_fraction", "share of the peak that full waves of deep tiles reach", gemm.sustained_fraction),
        ("under_load", "what is left of that under hours of load", gemm.under_load),
    ):
        key = precision if precision in shares else "default"
        yield _Figure(f"gemm.{name}.{key}", meaning, f"{shares[key]:.4g}")
    yield _Figure("gemm.depth_overhead", "steps of depth that fill and drain of a tile cost", f"{gemm.depth_overhead:.4g}")
    rows = alignment(head_vector_bytes(stage.local, precision))
    if rows != "whole":
        meaning = "what is left of the rate where rows are no multiples of 16 bytes"
        yield _Figure(f"gemm.unaligned_fraction.{rows}", meaning, f"{gemm.unaligned_fraction[rows]:.4g}")
    generation = calibration.attention.get(stage.training.attention)
    if generation is not None:
        best = next(name for name, each in calibration.attention.items() if each == generation and name != "flash")
        for way, each in (("forward", generation.forward), ("backward", generation.backward)):
            yield _Figure(
                f"attention.{best}.{way}.fraction", f"share of the peak that fused attention reaches {way}", f"{each.fraction:.4g}"
            )
    yield _Figure("memory_fraction", "share of the memory bandwidth that streaming kernels reach", f"{calibration.memory_fraction:.4g}")
    yield _Figure("launch.kernel", "from one kernel to the next on a busy stream", format_quantity(launch.kernel_s, "s"))
    yield _Figure("launch.dispatch", "time of the host to issue one kernel", format_quantity(launch.dispatch_s, "s"))
    yield _Figure("launch.step", "time of the host in each step that nothing hides", format_quantity(launch.step_s, "s"))
    for tier in ("nvlink", "nic", "leaf", "spine"):
        meaning = f"share of the bandwidth of {tier} links that messages reach"
        yield _Figure(f"network.efficiency.{tier}", meaning, f"{network.efficiency[tier]:.4g}")
    yield _Figure("network.multiprocessors", "multiprocessors that a collective holds while it runs", str(network.multiprocessors))
