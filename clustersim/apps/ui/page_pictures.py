"""The pictures of the page: bars that a browser draws at once, and the timeline as a plotly figure in plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Final

from dash import html
from dash.development.base_component import Component

from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import memory_parts, memory_text
from clustersim.report.page.interactive_charts import timeline_chart
from clustersim.report.shares import IDLE_PARTS, PART_COLOURS, PART_LABELS, step_seconds, step_shares
from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_quantity

Figure = Mapping[str, object]

_NAMED: Final = 0.06
"""Least share of a bar whose name stands in it."""
_IDLE: Final = [PART_LABELS[key] for key in IDLE_PARTS]


def timeline_figure(timeline: Timeline) -> tuple[Figure, str]:
    """Return what ranks do over the step, and what to say above it."""
    chart = timeline_chart(timeline)
    return {"data": chart.data, "layout": {**chart.layout, "uirevision": "timeline"}}, chart.title


def breakdown_bars(runs: Sequence[tuple[str, Metrics]]) -> Component:
    """Return where the steps of runs go: a bar for each of them, the first on top."""
    rows = [
        (
            name,
            {PART_LABELS[key]: seconds for key, seconds in step_seconds(metrics).items()},
            {share.label: f"{format_quantity(share.seconds, 's')}, {share.percent_text}" for share in step_shares(metrics)},
        )
        for name, metrics in runs
    ]
    colours = {label: PART_COLOURS[key] for key, label in PART_LABELS.items()}
    return _bars(rows, colours)


def memory_bars(runs: Sequence[tuple[str, Metrics]]) -> Component:
    """Return what fills the memory of the fullest stage, and its capacity: a bar for each run, the first on top."""
    fullest = [(name, memory_parts(max(metrics.memory.by_stage, key=lambda stage: stage.peak_bytes))) for name, metrics in runs]
    rows = [(name, parts, {label: memory_text(size) for label, size in parts.items()}) for name, parts in fullest]
    capacities = [metrics.memory.capacity_bytes for _, metrics in runs]
    return _bars(rows, palette.MEMORY_COLOURS, capacities)


def _bars(
    rows: Sequence[tuple[str, Mapping[str, float], Mapping[str, str]]], colours: Mapping[str, str], marks: Sequence[float] = ()
) -> Component:
    """Return a stacked bar for each row, all on one scale, and a key with the figures.

    Parameters
    ----------
    rows
        A name, the size of each part, and the text of each that is there.
    marks
        A capacity for each row.
    """
    wholes = [fsum(parts.values()) for _, parts, _ in rows]
    longest = max(*wholes, *marks, 1e-300)
    shown = [label for label in colours if any(parts[label] > 1e-7 * whole for (_, parts, _), whole in zip(rows, wholes, strict=True))]
    texts = {label: " / ".join(told.get(label, "none") for _, _, told in rows) for label in shown}
    drawn: list[Component] = []
    for place, (name, parts, told) in enumerate(rows):
        cells: list[Component] = [
            html.Div(
                label.removeprefix("exposed ") if parts[label] > _NAMED * longest else "",
                title=f"{label}: {told.get(label, 'none')}",
                className="idle" if label in _IDLE else "",
                style={
                    "width": f"{100 * parts[label] / longest:.4f}%",
                    "background": colours[label],
                    "color": palette.text_colour(colours[label]),
                },
            )
            for label in shown
        ]
        if marks:
            limit = memory_text(marks[place])
            cells.append(html.Div(title=f"capacity: {limit}", className="limit", style={"left": f"{100 * marks[place] / longest:.4f}%"}))
            texts["capacity"] = limit
        drawn += [html.Span(name)] * (len(rows) > 1) + [html.Div(cells, className="bar")]
    key = [
        html.Li(
            [html.I(style={"background": colours.get(label, "#1a1a1a")}, className="idle" if label in _IDLE else ""), f"{label} {text}"]
        )
        for label, text in texts.items()
    ]
    return html.Div([*drawn, html.Ul(key)], className="bars")
