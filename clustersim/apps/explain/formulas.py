"""Each metric with its formula and what goes into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from clustersim.apps.run.result import Result
from clustersim.measure.metrics import ByDimension, Metrics
from clustersim.parallel.schedules import SCHEDULES

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
        remark="no recomputation, attention in full; with what is recomputed it is hardware_flops_per_step; docs/theory/flops.md",
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
        remark=f"of stage {fullest.stage}, the fullest; capacity {metrics.memory.capacity_bytes / 1e9:.1f} GB; docs/theory/memory.md",
    )
