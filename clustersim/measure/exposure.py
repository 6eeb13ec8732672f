"""Which collectives are waited for, and which are overlapped with computation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clustersim.measure.metrics import Metrics, by_dimension
from clustersim.trace.timeline import Span, Timeline

FloatArray = NDArray[np.float64]


def busy_intervals(spans: Sequence[Span]) -> FloatArray:
    """Return the union of spans as disjoint intervals.

    Returns
    -------
    ndarray of shape (n, 2)
        Starts and ends in seconds, sorted.
    """
    merged: list[list[float]] = []
    for start_s, end_s in sorted((span.start_s, span.end_s) for span in spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end_s)
        else:
            merged.append([start_s, end_s])
    return np.array(merged, dtype=np.float64).reshape(-1, 2)


def split_by(span: Span, busy: FloatArray) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return the stretches of a span inside and outside the busy intervals: hidden and exposed communication."""
    first = int(np.searchsorted(busy[:, 1], span.start_s, side="right"))
    last = int(np.searchsorted(busy[:, 0], span.end_s, side="left"))
    inside: list[tuple[float, float]] = []
    outside: list[tuple[float, float]] = []
    at_s = span.start_s
    for start_s, end_s in busy[first:last].tolist():
        if start_s > at_s:
            outside.append((at_s, start_s))
        inside.append((max(start_s, span.start_s), min(end_s, span.end_s)))
        at_s = min(end_s, span.end_s)
    if at_s < span.end_s:
        outside.append((at_s, span.end_s))
    return inside, outside


_PLACES: Final = re.compile(r"\s*(\d+->\d+.*|\d+)$")
_MOST_NAMED: Final = 2
_WAYS: Final[Mapping[str, str]] = {"F": "activations", "B": "gradients sent back", "I": "gradients sent back"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """One kind of communication: mean over ranks and steps."""

    dimension: str
    label: str
    exposed_s: float
    hidden_s: float


def exposures(metrics: Metrics, timeline: Timeline) -> tuple[Exposure, ...]:
    """Return exposed and overlapped seconds of each kind of communication; those of a dimension sum to the metrics.

    What runs beside passes goes by the names of its spans, what runs inside them by its operations. Where several are in flight along
    one dimension at a time, the metrics count the moment once, and each gets its share by its length.
    """
    inside = _inside(timeline)
    beside = _beside(timeline)
    exposed, hidden = by_dimension(metrics.breakdown_s.exposed_communication), by_dimension(metrics.overlapped_communication_s)
    found: list[Exposure] = []
    for dimension in exposed:
        own = {label: times for (of, label), times in (*inside.items(), *beside.items()) if of == dimension}
        totals = [sum(times[way] for times in own.values()) for way in (0, 1)]
        for label, times in own.items():
            shares = [times[way] / totals[way] if totals[way] > 0.0 else 1.0 / len(own) for way in (0, 1)]
            entry = Exposure(
                dimension=dimension,
                label=label if label != _IN_PASSES else _operations(metrics, dimension),
                exposed_s=shares[0] * exposed[dimension],
                hidden_s=shares[1] * hidden[dimension],
            )
            if entry.exposed_s + entry.hidden_s > 1e-9 * metrics.step_time_s:
                found.append(entry)
    return tuple(sorted(found, key=lambda each: -(each.exposed_s + each.hidden_s)))


_IN_PASSES: Final = "inside passes"


def _inside(timeline: Timeline) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for span in timeline.spans:
        n_ranks = timeline.rank_classes[span.rank_class].n_ranks
        for way, pairs in enumerate((span.exposed_s, span.hidden_s)):
            for dimension, seconds in pairs:
                found.setdefault((dimension, _IN_PASSES), [0.0, 0.0])[way] += n_ranks * seconds
    return found


def _beside(timeline: Timeline) -> dict[tuple[str, str], list[float]]:
    computing: list[list[Span]] = [[] for _ in timeline.rank_classes]
    for span in timeline.spans:
        if span.kind != "communication":
            computing[span.rank_class].append(span)
    busy = [busy_intervals(spans) for spans in computing]
    found: dict[tuple[str, str], list[float]] = {}
    for span in timeline.spans:
        if span.kind != "communication" or span.end_s <= span.start_s:
            continue
        inside, outside = split_by(span, busy[span.rank_class])
        times = found.setdefault((span.dimension, _label(span)), [0.0, 0.0])
        n_ranks = timeline.rank_classes[span.rank_class].n_ranks
        for way, pieces in enumerate((outside, inside)):
            times[way] += n_ranks * sum(end_s - start_s for start_s, end_s in pieces)
    return found


def _label(span: Span) -> str:
    """Return what spans have in common that do the same at other places."""
    name = _PLACES.sub("", span.name)
    return _WAYS.get(name, name) if span.dimension == "pp" else name


def _operations(metrics: Metrics, dimension: str) -> str:
    names = dict.fromkeys(choice.op.replace("_", "-") for choice in metrics.collectives if choice.dimension == dimension)
    shown = [*names] if len(names) <= _MOST_NAMED else ["collectives"]
    return f"{', '.join(shown)} in passes" if names else _IN_PASSES
