"""Formulas of metrics, and the constants behind a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from clustersim.apps.run.result import Result
from clustersim.config.build import Built
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.models import Node, Source
from clustersim.hardware.provenance import SCENARIO, is_within
from clustersim.kernels.gemm import alignment
from clustersim.measure.metrics import ByDimension, Metrics
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.shard import head_vector_bytes
from clustersim.parallel.stage import Stage, stage_of
from clustersim.parallel.step_settings import Precision
from clustersim.report.facts import memory_text
from clustersim.units.quantity import format_quantity, line_rate


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


_Figure = tuple[str, str, str]
"""Field, meaning and value of a constant."""


def constants_of(built: Built) -> tuple[Constant, ...]:
    """Return the inputs of the step time besides the scenario: data sheets and calibration, by kind of node."""
    found: list[Constant] = []
    for node, _ in built.cluster.kinds:
        calibration = calibration_for(node.accelerator)
        found += served_constants(node, built.plan.training.precision)
        found += _constants(calibration.name, calibration.sources, _of_calibration(calibration, stage_of(built.plan, 0)))
    return tuple({each.name: each for each in found}.values())


def served_constants(node: Node, precision: Precision = "bf16") -> tuple[Constant, ...]:
    """Return the data sheets of a node that steps follow from."""
    card, nic = node.accelerator, node.nic
    return (*_constants(card.name, card.sources, _of_accelerator(node, precision)), *_constants(nic.name, nic.sources, _of_nic(node)))


def _constants(name: str, sources: Sequence[Source], figures: Iterable[_Figure]) -> Iterator[Constant]:
    for field, meaning, value in figures:
        yield Constant(name=f"{name}.{field}", meaning=meaning, value=value, sources=_covering(sources, field))


def _covering(sources: Sequence[Source], field: str) -> tuple[Source, ...]:
    covering = tuple(source for source in sources if any(is_within(field, cover) for cover in source.covers))
    # What the user gave replaces what a profile says.
    return tuple(source for source in covering if source.url == SCENARIO) or covering


def _of_accelerator(node: Node, precision: Precision) -> Iterator[_Figure]:
    card = node.accelerator
    yield (f"peak_flops.{precision}", f"dense matrix peak in {precision}", format_quantity(card.peak_flops_per_s[precision], "FLOP/s"))
    yield ("memory", "memory of one accelerator", memory_text(card.memory_bytes))
    yield ("memory_bandwidth", "bandwidth of that memory", format_quantity(card.memory_bandwidth_bytes_per_s, "B/s"))
    if card.scale_up_bandwidth_bytes_per_s > 0:
        yield (
            "scale_up.bandwidth",
            "all scale-up links of one accelerator, one way",
            format_quantity(card.scale_up_bandwidth_bytes_per_s, "B/s"),
        )
    yield ("multiprocessors", "multiprocessors, among which tiles of products are dealt out", str(card.n_multiprocessors))


def _of_nic(node: Node) -> Iterator[_Figure]:
    yield ("bandwidth", f"one of {node.n_nics} adapters of a node, one way", line_rate(node.nic.bandwidth_bytes_per_s))
    yield ("latency", "of an adapter", format_quantity(node.nic.latency_s, "s"))


def _of_calibration(calibration: Calibration, stage: Stage) -> Iterator[_Figure]:
    gemm, precision, launch, network = calibration.gemm, stage.training.precision, calibration.launch, calibration.network
    for name, meaning, shares in (
        ("sustained_fraction", "share of the peak that full waves of deep tiles reach", gemm.sustained_fraction),
        ("under_load", "what is left of that under hours of load", gemm.under_load),
    ):
        key = precision if precision in shares else "default"
        yield (f"gemm.{name}.{key}", meaning, f"{shares[key]:.4g}")
    yield ("gemm.depth_overhead", "steps of depth that fill and drain of a tile cost", f"{gemm.depth_overhead:.4g}")
    rows = alignment(head_vector_bytes(stage.local, precision))
    if rows != "whole":
        meaning = "what is left of the rate where rows are no multiples of 16 bytes"
        yield (f"gemm.unaligned_fraction.{rows}", meaning, f"{gemm.unaligned_fraction[rows]:.4g}")
    generation = calibration.attention.get(stage.training.attention)
    if generation is not None:
        best = next(name for name, each in calibration.attention.items() if each == generation and name != "flash")
        for way, each in (("forward", generation.forward), ("backward", generation.backward)):
            yield (f"attention.{best}.{way}.fraction", f"share of the peak that fused attention reaches {way}", f"{each.fraction:.4g}")
    yield ("memory_fraction", "share of the memory bandwidth that streaming kernels reach", f"{calibration.memory_fraction:.4g}")
    yield ("launch.kernel", "from one kernel to the next on a busy stream", format_quantity(launch.kernel_s, "s"))
    yield ("launch.dispatch", "time of the host to issue one kernel", format_quantity(launch.dispatch_s, "s"))
    yield ("launch.step", "time of the host in each step that nothing hides", format_quantity(launch.step_s, "s"))
    strategy = stage.strategy
    if strategy.pp > 1 and strategy.sync_p2p and not strategy.overlap_p2p:
        yield ("launch.waited_send", "time of the host to wait for a send between stages", format_quantity(launch.waited_send_s, "s"))
    for tier in ("nvlink", "nic", "leaf", "spine"):
        meaning = f"share of the bandwidth of {tier} links that messages reach"
        yield (f"network.efficiency.{tier}", meaning, f"{network.efficiency[tier]:.4g}")
    yield ("network.multiprocessors", "multiprocessors that a collective holds while it runs", str(network.multiprocessors))


ROUND_OFF: Final = 1e-9
"""Share of a step time up to which a part of it is nothing but round-off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One metric."""

    name: str
    """As in ``results.json``."""
    value: float
    formula: str
    """In the names of the inputs."""
    inputs: tuple[tuple[str, float], ...]
    """Names end in units."""
    remark: str = ""
    """Note on where it is described, or what to compare it with."""


def explained(result: Result) -> tuple[Explained, ...]:
    """Return how the figures of a run follow from each other, the step time first."""
    return (*_step(result), *_speed(result), *_pipeline(result), *_memory(result.metrics))


def _step(result: Result) -> Iterator[Explained]:
    parts, metrics = result.metrics.breakdown_s, result.metrics
    exposed = {f"exposed_communication.{field.name}": getattr(parts.exposed_communication, field.name) for field in fields(ByDimension)}
    named = {"compute": parts.compute, **exposed, "bubble": parts.bubble, "stall": parts.stall, "optimizer": parts.optimizer}
    inputs = {
        f"breakdown_s.{name}": seconds
        for name, seconds in {**named, "host": parts.host}.items()
        if seconds > ROUND_OFF * metrics.step_time_s
    }
    yield Explained(
        name="step_time_s",
        value=metrics.step_time_s,
        formula=" + ".join(inputs),
        inputs=tuple(inputs.items()),
        remark="the end of the last task of the replay; the parts are means over ranks",
    )


def _speed(result: Result) -> Iterator[Explained]:
    metrics, plan = result.metrics, result.built.plan
    precision = plan.training.precision
    # With several kinds of accelerators the peak of the job is that of all of them.
    peak = metrics.model_flops_per_step / metrics.step_time_s / metrics.mfu / metrics.gpus if metrics.mfu > 0.0 else 0.0
    batch, length = float(plan.training.global_batch_size), float(plan.training.seq_length)
    step, gpus = ("step_time_s", metrics.step_time_s), ("gpus", float(metrics.gpus))
    yield Explained(
        name="tokens_per_s",
        value=metrics.tokens_per_s,
        formula="global_batch_size * seq_length / step_time_s",
        inputs=(("global_batch_size", batch), ("seq_length", length), step),
    )
    yield Explained(
        name="model_flops_per_step",
        value=metrics.model_flops_per_step,
        formula="3 * forward FLOPs of every product and of attention",
        inputs=(("hardware_flops_per_step", metrics.hardware_flops_per_step),),
        remark="no recomputation, attention in full; with products and attention that are recomputed it is hardware_flops_per_step:"
        " norms and activations take time when they are recomputed, and count no FLOPs; docs/theory/flops.md",
    )
    for name, flops in (("mfu", "model_flops_per_step"), ("hfu", "hardware_flops_per_step")):
        yield Explained(
            name=name,
            value=getattr(metrics, name),
            formula=f"{flops} / (step_time_s * gpus * peak_flops_per_s)",
            inputs=((flops, getattr(metrics, flops)), step, gpus, ("peak_flops_per_s", peak)),
            remark=f"dense peak in {precision}",
        )


def _pipeline(result: Result) -> Iterator[Explained]:
    metrics, plan = result.metrics, result.built.plan
    strategy = plan.strategy
    if strategy.pp == 1:
        return
    n_micro_batches = plan.training.global_batch_size / strategy.dp / plan.training.micro_batch_size
    ideal = (strategy.pp - 1) / (n_micro_batches * strategy.virtual_stages + strategy.pp - 1)
    known = strategy.schedule in SCHEDULES and strategy.schedule in ("gpipe", "1f1b", "interleaved_1f1b")
    closed = f"; equal stages and free sends give (pp - 1) / (virtual_stages * micro_batches + pp - 1) = {ideal:.4f}" if known else ""
    yield Explained(
        name="bubble_fraction",
        value=metrics.bubble_fraction,
        formula="breakdown_s.bubble / step_time_s",
        inputs=(
            ("breakdown_s.bubble", metrics.breakdown_s.bubble),
            ("step_time_s", metrics.step_time_s),
            ("pp", float(strategy.pp)),
            ("micro_batches", n_micro_batches),
            ("virtual_stages", float(strategy.virtual_stages)),
        ),
        remark=f"mean over ranks{closed}",
    )


def _memory(metrics: Metrics) -> Iterator[Explained]:
    fullest = max(metrics.memory.by_stage, key=lambda stage: stage.peak_bytes)
    names = ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "buffers_bytes")
    yield Explained(
        name="memory.peak_bytes",
        value=metrics.memory.peak_bytes,
        formula=" + ".join(names),
        inputs=tuple((name, float(getattr(fullest, name))) for name in names),
        remark=f"of stage {fullest.stage}, the fullest; capacity {memory_text(metrics.memory.capacity_bytes)}; docs/theory/memory.md",
    )
