"""The pictures of the page, as plotly figures in plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import memory_parts
from clustersim.report.page.interactive_charts import timeline_chart
from clustersim.report.shares import PART_COLOURS, PART_LABELS, step_seconds
from clustersim.trace.timeline import DIMENSIONS, Timeline

Figure = Mapping[str, object]

_FONT: Final = {"family": "system-ui, DejaVu Sans, sans-serif", "size": 12, "color": "#1A1A1A"}
_SPACE: Final = {"ticks": "outside", "ticklen": 6, "tickcolor": "white"}
_ROW_PX: Final = 34
_AROUND_PX: Final = 124
"""Room for three lines of the key above, and for the axis below."""
_GIB: Final = 2.0**30


def timeline_figure(timeline: Timeline) -> tuple[Figure, str]:
    """Return what ranks do over the step, and what to say above it."""
    chart = timeline_chart(timeline)
    return {"data": chart.data, "layout": {**chart.layout, "uirevision": "timeline"}}, chart.title


def breakdown_figure(runs: Sequence[tuple[str, Metrics]]) -> Figure:
    """Return where the steps of runs go: a bar for each of them, the first on top."""
    seconds = [step_seconds(metrics) for _, metrics in runs]
    names = [name for name, _ in runs]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": names,
            "x": [each[key] for each in seconds],
            # Colours are those of the other pictures; which communication it is stands in the bar.
            "marker": {"color": PART_COLOURS[key], "line": {"color": "white", "width": 1}}
            | ({"pattern": _HATCH} if key == "bubble" else {}),
            "text": [label.removeprefix("exposed ") if key in DIMENSIONS else ""] * len(runs),
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "hovertemplate": f"{label}: %{{x:.4s}}s<extra>%{{y}}</extra>",
        }
        for key, label in PART_LABELS.items()
        if any(each[key] > 1e-7 * sum(each.values()) for each in seconds)
    ]
    return {"data": data, "layout": _bars(len(runs), "seconds, mean over ranks")}


def memory_figure(runs: Sequence[tuple[str, Metrics]]) -> Figure:
    """Return what fills the memory of the fullest stage, and its capacity: a bar for each run, the first on top."""
    fullest = [memory_parts(max(metrics.memory.by_stage, key=lambda stage: stage.peak_bytes)) for _, metrics in runs]
    names = [name for name, _ in runs]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": part,
            "y": names,
            "x": [each[part] / _GIB for each in fullest],
            "marker": {"color": colour},
            "hovertemplate": f"{part}: %{{x:.1f}} GiB<extra>%{{y}}</extra>",
        }
        for part, colour in palette.MEMORY_COLOURS.items()
    ]
    lines = [
        {
            "type": "line",
            "x0": metrics.memory.capacity_bytes / _GIB,
            "x1": metrics.memory.capacity_bytes / _GIB,
            "y0": row - 0.48,
            "y1": row + 0.48,
            "line": {"color": "#1A1A1A", "width": 3},
        }
        for row, (_, metrics) in enumerate(runs)
    ]
    largest = max(max(metrics.memory.capacity_bytes, metrics.memory.peak_bytes) for _, metrics in runs) / _GIB
    title = "GiB of one GPU at its peak; black: capacity"
    return {"data": data, "layout": {**_bars(len(runs), title, until=1.05 * largest), "shapes": lines}}


_HATCH: Final = {"shape": "/", "fgcolor": palette.IDLE_HATCH_COLOUR, "bgcolor": palette.IDLE, "size": 7, "solidity": 0.35}


def _bars(n_rows: int, title: str, *, until: float | None = None) -> dict[str, object]:
    return {
        "barmode": "stack",
        "height": _ROW_PX * n_rows + _AROUND_PX,
        "margin": {"l": 10, "r": 10, "t": 64, "b": 44},
        "font": _FONT,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "bargap": 0.25,
        "xaxis": {"title": {"text": title}, "gridcolor": "#ECECEC", "zeroline": False, "fixedrange": True, "range": [0.0, until]},
        "yaxis": {
            "autorange": "reversed",
            "automargin": True,
            "fixedrange": True,
            "type": "category",
            "showticklabels": n_rows > 1,
            **_SPACE,
        },
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    }
