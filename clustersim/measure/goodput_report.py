"""Goodput of a job, as a result and as lines of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clustersim.measure.error_bars import ErrorBar, with_ends
from clustersim.reliability import Shares
from clustersim.units.quantity import format_alike, format_quantity, format_range

PART_WORDS: Final = (
    ("checkpoint", "checkpoints"),
    ("lost_work", "repeated work"),
    ("detection", "detection"),
    ("restart", "restarts"),
    ("waiting", "waiting for repair"),
    ("shrunk", "missing replicas"),
)


MOST_SHOWN: Final = 0.999
"""Share of time above which its digits say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """Size and duration of a checkpoint."""

    size_bytes: float
    """Weights, master copy and moments of the whole model."""
    bandwidth_bytes_per_s: float
    """Total storage bandwidth of all nodes, in bytes/s."""
    write_s: float
    stall_s: float
    """Training stall at each checkpoint, in seconds."""
    interval_s: float
    """Training between two."""
    asynchronous: bool
    n_copies: int = 1
    """On the drives of as many nodes: 2 where a node that fails may take one along."""
    lost_with_node: bool = False
    """Whether a node that fails may take the only copy along; goodput counts on it all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Closed-form goodput, with a spare node whenever one is needed."""

    goodput_fraction: float
    """Exact for exponential failures."""
    parts_fraction: Shares
    first_order_fraction: float
    """The effective training time ratio of the literature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPoint:
    """Goodput at one interval between checkpoints, replayed."""

    interval_s: float
    goodput_fraction: float
    confidence_interval_fraction: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestInterval:
    """Best checkpoint interval."""

    young_s: float
    """First order."""
    daly_s: float
    """Higher order."""
    closed_form_s: float
    """The exact optimum, of what formulas cover."""
    goodput_fraction: float
    """With it, by the closed form."""
    replayed_s: float
    """The best of those that were replayed."""
    replayed: tuple[IntervalPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesReport:
    """Whether nodes that stand by are enough."""

    spares: int
    short_fraction: float
    """Share of time in which more nodes are in repair than there are spares, while nodes go on failing."""
    enough: int
    """Number of samples for which that share is at most 1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTime:
    """Duration of the whole training with failures, in seconds."""

    mean_s: float
    confidence_interval_s: tuple[float, float]
    """95 % interval of the mean."""
    p5_s: float
    p95_s: float
    interruptions: float
    """Mean of the replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionSource:
    """One cause of interruptions, over all of the job's parts of that kind."""

    name: str
    per_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputReport:
    """Goodput of a job, replayed with failures, and by formulas."""

    goodput_fraction: float
    confidence_interval_fraction: tuple[float, float]
    """95 % interval of the mean."""
    parts_fraction: Shares
    mean_time_to_interruption_s: float | None
    """None where nothing fails."""
    interruptions_per_day: float
    """Sum of the rates of all sources."""
    interruption_sources: tuple[InterruptionSource, ...]
    checkpoint: CheckpointReport
    closed_form: ClosedForm
    best_interval: BestInterval | None
    """None where checkpoints cost nothing, or nothing fails."""
    spares: SparesReport | None
    """None where there is always a spare."""
    time_to_train: TrainingTime | None
    """None without a budget of tokens."""
    replays: int
    replayed_work_s: float
    """Training without failures in each replay."""


def goodput_lines(report: GoodputReport | None, bar: ErrorBar | None = None) -> tuple[str, ...]:
    """Return goodput, losses, remedies and confidence as lines of text; nothing without a reliability section.

    Parameters
    ----------
    bar
        Interval of the step time, with which the whole training scales.
    """
    if report is None:
        return ()
    low, high = report.confidence_interval_fraction
    lines = [
        f"goodput {_percent(report.goodput_fraction)} of the time (replayed, 95 % confidence {_percent(low)} to"
        f" {_percent(high)}; closed form {_percent(report.closed_form.goodput_fraction)})"
        + (", if checkpoints survive on the node that fails" if report.checkpoint.lost_with_node else ""),
    ]
    shares = [(getattr(report.parts_fraction, name), words) for name, words in PART_WORDS]
    lost = [f"{words} {_percent(share)}" for share, words in sorted(shares, key=lambda part: -part[0]) if share >= 5e-5]
    lines += [f"lost to {', '.join(lost)}"] if lost else []
    if report.mean_time_to_interruption_s is not None:
        every = format_quantity(report.mean_time_to_interruption_s, "s")
        parts = [f"{source.name} {source.per_day:.3g}" for source in report.interruption_sources]
        added = (
            f", the sum of the rates of {', '.join(parts)}"
            if len(parts) > 1
            else f", all from {report.interruption_sources[0].name}"
            if parts
            else ""
        )
        lines.append(f"an interruption every {every}: {report.interruptions_per_day:.3g} a day{added}")
    lines.append(_checkpoint_line(report))
    if report.best_interval is not None:
        best = report.best_interval
        lines.append(
            f"best interval {format_quantity(best.closed_form_s, 's')}, for {_percent(best.goodput_fraction)} (Young"
            f" {format_quantity(best.young_s, 's')}, Daly {format_quantity(best.daly_s, 's')}, best of {len(best.replayed)} replayed"
            f" {format_quantity(best.replayed_s, 's')})"
        )
    if report.spares is not None:
        count = report.spares.spares
        nodes = "1 spare node suffices" if count == 1 else f"{count} spare nodes suffice"
        lines.append(
            f"{nodes} {_most(1 - report.spares.short_fraction)} of the time while nodes go on failing; {report.spares.enough} would"
            " suffice 99 % of it"
        )
    return (*lines, *_time_lines(report.time_to_train, bar))


def _checkpoint_line(report: GoodputReport) -> str:
    point = report.checkpoint
    size, write = format_quantity(point.size_bytes, "B"), format_quantity(point.write_s, "s")
    stall = f" and stalls training for {format_quantity(point.stall_s, 's')}" if point.asynchronous else ""
    copies = ", a copy on another node included" if point.n_copies > 1 else ""
    return f"a checkpoint of {size} every {format_quantity(point.interval_s, 's')} takes {write} to write{copies}{stall}"


def _time_lines(time: TrainingTime | None, bar: ErrorBar | None) -> tuple[str, ...]:
    if time is None:
        return ()
    # Of a long training the draws differ by little.
    ends = (time.p5_s, time.p95_s)
    digits = next((digits for digits in range(3, 8) if len(set(format_alike(ends, "s", digits))) > 1), 3)
    drawn = format_range(time.p5_s, time.p95_s, "s", digits)
    return (f"the whole training takes {with_ends(time.mean_s, 's', bar)}; at one step time, one in ten is outside {drawn}",)


def _most(fraction: float) -> str:
    return "more than 99.9 %" if fraction > MOST_SHOWN else _percent(fraction)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"
