"""Pictures that can be zoomed: what ranks do, and how busy links are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Final

import numpy as np

from clustersim.measure.utilisation import utilisation_over_time
from clustersim.report import palette
from clustersim.report.facts import TIER_LABELS
from clustersim.report.page.content import InteractiveChart
from clustersim.report.plots.canvas import time_unit
from clustersim.report.plots.time_scales import drawn_part, excerpt_of, joined
from clustersim.trace.timeline import DIMENSIONS, Span, Timeline
from clustersim.units.grouping import grouped
from clustersim.units.quantity import format_quantity

MOST_SPANS: Final = 6000
"""Bars of one chart: a browser stays quick with them."""
MOST_RANKS: Final = 8
N_STRETCHES: Final = 400
_SEEN: Final = 1e-3
"""Least share of the time axis that can be seen."""
_POINTS: Final = 60
"""Points to hover over on a bar that fills the time axis."""
_PER_S: Final = {"s": 1.0, "ms": 1e3}
_ROW_PX: Final = 24
_BAR_PX: Final = 15
_AROUND_PX: Final = 150
_FONT: Final = {"family": "DejaVu Sans, sans-serif", "size": 12, "color": "#1A1A1A"}


def timeline_chart(timeline: Timeline) -> InteractiveChart:
    """Return what ranks of some classes do: a lane for computation, and one for each dimension of communication.

    Where there are more spans than :data:`MOST_SPANS`, those of its start and of its end are shown, and the title says how far.
    """
    excerpt, shown = excerpt_of(timeline), drawn_part(timeline)
    n_classes = len(shown.rank_classes)
    classes: list[int] = [round(place) for place in np.linspace(0.0, n_classes - 1.0, min(n_classes, MOST_RANKS)).tolist()]
    kept: list[Span] = [span for span in shown.spans if span.rank_class in classes]
    spans = sorted(kept, key=attrgetter("start_s"))
    until = ""
    if len(spans) > MOST_SPANS:
        first, last = spans[: MOST_SPANS // 2], spans[-MOST_SPANS // 2 :]
        spans, ends_s = [*first, *last], (first[-1].end_s, shown.step_time_s - last[0].start_s, shown.step_time_s)
        until = " The first {} and the last {} of {} are here.".format(*(format_quantity(each, "s") for each in ends_s))
    cells = joined([span for span in spans if span.kind != "communication"])
    beside = [span for span in spans if span.kind == "communication"]
    shown_lanes = [(index, lane) for index in classes for lane in ("compute", *_dimensions(beside))]
    lanes = {lane: place for place, lane in enumerate(shown_lanes)}
    groups = grouped((span.dimension or span.kind, span) for span in (*cells, *beside))
    # Recomputation is the beginning of a backward pass, and is drawn over it.
    if recomputed := [
        replace(span, end_s=span.start_s + span.recompute_s) for span in cells if span.recompute_s and span.kind != "recompute"
    ]:
        groups["recompute"] = [*groups.get("recompute", ()), *recomputed]
    unit, per_s = time_unit(shown.step_time_s)
    data = [
        *(_trace(kind, own, lanes, unit) for kind, own in groups.items()),
        _hover(spans=(*cells, *beside), lanes=lanes, until_s=shown.step_time_s),
    ]
    names = [f"{shown.rank_classes[index].name} {lane if lane == 'compute' else lane.upper()}" for index, lane in shown_lanes]
    left_out = f" {len(classes)} of {n_classes} classes of ranks." if len(classes) < n_classes else ""
    layout = _layout(_ROW_PX * len(lanes) + _AROUND_PX) | {
        "xaxis": {
            # The name of an axis would stand where a narrow page folds the legend.
            "ticksuffix": f" {unit}",
            "tickformat": ",",
            "range": [0, per_s * shown.step_time_s],
            "rangeslider": {"visible": False},
        },
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [len(names) - 0.5, -0.5],
            "fixedrange": True,
            "automargin": True,
            "zeroline": False,
        },
        "hovermode": "closest",
        "hoverdistance": 30,
        "margin": {"l": 60, "r": 20, "t": 20, "b": 90},
        "legend": {"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom"},
    }
    longest_s: dict[tuple[int, str], float] = {}
    for span in beside:
        lane = (span.rank_class, span.dimension or "")
        longest_s[lane] = max(longest_s.get(lane, 0.0), span.end_s - span.start_s)
    thin = any(seconds < _SEEN * shown.step_time_s for seconds in longest_s.values())
    short = " Lanes that look empty have very short transfers: zoom in." if thin else ""
    over = "Activity of ranks over the step" if excerpt is None else f"Activity of ranks in {excerpt.text}"
    return InteractiveChart(name="timeline", title=f"{over}.{left_out}{until}{short}", data=data, layout=layout)


def links_chart(timeline: Timeline) -> InteractiveChart | None:
    """Return how busy each tier of links is over the step; None where none is used."""
    excerpt, shown = excerpt_of(timeline), drawn_part(timeline)
    edges_s = np.linspace(0.0, shown.step_time_s, N_STRETCHES + 1)
    rows = utilisation_over_time(timeline, edges_s + (0.0 if excerpt is None else excerpt.start_s))
    if not rows:
        return None
    unit, _ = time_unit(shown.step_time_s)
    middles = [_rounded(float(value), unit) for value in (edges_s[1:] + edges_s[:-1]) / 2]
    scale = [[0.0, "#F0F2F4"], [1 / 3, "#A9CCE3"], [2 / 3, palette.FORWARD], [1.0, "#00304D"]]
    data: list[Mapping[str, object]] = [
        {
            "type": "heatmap",
            "x": middles,
            "y": [TIER_LABELS.get(tier, tier) for tier in rows],
            "z": [[round(100 * float(value), 3) for value in row] for row in rows.values()],
            "colorscale": scale,
            "zmin": 0,
            "colorbar": {"title": {"text": "%"}},
            "hovertemplate": f"%{{y}}<br>%{{x}} {unit}<br>%{{z}} %<extra></extra>",
        }
    ]
    layout = _layout(44 * len(rows) + _AROUND_PX) | {
        "xaxis": {"title": {"text": f"time, {unit}"}, "tickformat": ","},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "automargin": True},
    }
    which = "" if excerpt is None else f"{excerpt.text}: "
    title = (
        f"{which}utilisation of the links in use, mean over each tier; what an operation carries is spread evenly over the time it takes."
    )
    title = title[0].upper() + title[1:]
    return InteractiveChart(name="links", title=title, data=data, layout=layout)


def _dimensions(spans: Sequence[Span]) -> tuple[str, ...]:
    found = {span.dimension for span in spans}
    return tuple(dimension for dimension in DIMENSIONS if dimension in found)


def _rounded(time_s: float, unit: str) -> float:
    return round(_PER_S[unit] * time_s, 7)


def _trace(name: str, spans: Sequence[Span], lanes: Mapping[tuple[int, str], int], unit: str) -> Mapping[str, object]:
    """Return bars of one colour as one broken line, which a browser draws fast."""
    xs: list[float | None] = []
    ys: list[int | None] = []
    for span in spans:
        lane = lanes[span.rank_class, span.dimension or "compute"]
        xs += [_rounded(span.start_s, unit), _rounded(span.end_s, unit), None]
        ys += [lane, lane, None]
    dimension = name in palette.DIMENSION_COLOURS
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name.upper() if dimension else name,
        "x": xs,
        "y": ys,
        "line": {
            "color": palette.DIMENSION_COLOURS[name] if dimension else palette.KIND_COLOURS[name],
            "width": _BAR_PX,
            "simplify": False,
        },
        "hoverinfo": "skip",
        "connectgaps": False,
    }


def _hover(spans: Sequence[Span], lanes: Mapping[tuple[int, str], int], until_s: float) -> Mapping[str, object]:
    """Return points along each bar that tell of it and are not drawn; ends of bars would stand beside two of them."""
    unit, _ = time_unit(until_s)
    points = [
        (_rounded(span.start_s + (place + 0.5) / count * (span.end_s - span.start_s), unit), span)
        for span in spans
        for count in [max(1, ceil(_POINTS * (span.end_s - span.start_s) / until_s))]
        for place in range(count)
    ]
    return {
        "type": "scatter",
        "mode": "none",
        "showlegend": False,
        "x": [x for x, _ in points],
        "y": [lanes[span.rank_class, span.dimension or "compute"] for _, span in points],
        "text": [_told(span, unit) for _, span in points],
        "hovertemplate": "%{text}<extra></extra>",
    }


_written: Final = lru_cache(maxsize=4096)(format_quantity)
"""Many spans of a step last as long, or carry as much, as another."""


def _told(span: Span, unit: str) -> str:
    """Return name, micro-batch, start, duration and bytes of a span."""
    # Passes are named by a letter.
    name = span.kind if not span.dimension else f"{span.dimension.upper()} {span.name}"
    number = f", micro-batch {span.micro_batch}" if span.micro_batch >= 0 else ""
    size = f", {_written(span.bytes, 'B')}" if span.bytes else ""
    return f"{name}{number}: {_written(span.end_s - span.start_s, 's')} at {_PER_S[unit] * span.start_s:.6g} {unit}{size}"


def _layout(height_px: int) -> dict[str, object]:
    return {
        "height": height_px,
        "margin": {"l": 60, "r": 20, "t": 20, "b": 50},
        "font": _FONT,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "dragmode": "zoom",
    }
