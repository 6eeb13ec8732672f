"""Contents and pictures of the page: bars that a browser draws at once, and the timeline as a plotly figure in plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import fsum
from secrets import token_hex
from typing import Any, Final

from dash import dcc, html
from dash.development.base_component import Component

from clustersim import __version__
from clustersim.apps.ui.controls import Control, controls
from clustersim.measure.metrics import Metrics
from clustersim.report import palette
from clustersim.report.facts import memory_parts, memory_text
from clustersim.report.shares import IDLE_PARTS, PART_COLOURS, PART_LABELS, step_seconds, step_shares
from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_quantity

Figure = Mapping[str, object]

_NAMED: Final = 0.06
"""Least share of a bar whose name stands in it."""
_IDLE: Final = [PART_LABELS[key] for key in IDLE_PARTS]


def timeline_figure(timeline: Timeline) -> tuple[Figure, str]:
    """Return what ranks do over the step, and what to say above it."""
    # Where the replay is: the page itself needs nothing that draws.
    from clustersim.report.page.interactive_charts import timeline_chart

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


TITLE: Final = "clustersim"
LOOK: Final = "Look for layouts"
_CONFIG: Final[dcc.Graph.Config] = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
_TICK_MS: Final = 500
"""Interval at which the progress of a search is asked for, in milliseconds."""
_PAUSE_S: Final = 0.25
"""Pause in typing before the page answers, in seconds."""


def page(starts: Sequence[str]) -> Component:
    """Return the page before anything is loaded.

    Parameters
    ----------
    starts
        What one can start from.
    """
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            *(dcc.Store(id=name) for name in ("base", "current", "kept", "plan-rows", "ignored")),
            dcc.Store(id="visit", data={"id": token_hex(8)}),
            html.A("To the result", href="#result", className="skip", id="skip"),
            html.Header([html.H1(TITLE), html.P("How long a training step takes, where the time goes, and whether it fits.")]),
            html.Div([_inputs(starts), _result()], className="columns"),
            html.Footer(f"clustersim {__version__}, on this machine only. Nothing is sent or stored."),
        ]
    )


def graph(name: str, figure: Figure) -> Component:
    """Return a picture that people can zoom into."""
    return dcc.Graph(id=name, figure=dict(figure), config=_CONFIG)


def error_name(control: Control) -> str:
    """Return how the page calls the place where a mistake in a control is shown."""
    return f"{control.name}-error"


def _inputs(starts: Sequence[str]) -> Component:
    groups = groupby(controls(), key=lambda control: control.group)
    return html.Section(
        [
            html.Div(
                [
                    html.Label("Start from", htmlFor="start"),
                    dcc.Input(id="start", type="text", list="start-choices", debounce=True, placeholder="an example or a run"),
                    _choices("start", starts),
                    html.Div(id="start-error", className="error", role="alert"),
                ],
                className="field wide",
            ),
            *(_group(name, list(found)) for name, found in groups),
        ],
        className="inputs",
        id="inputs",
        **_aria("label", "Scenario"),
    )


def _group(name: str, found: Sequence[Control]) -> Component:
    own = [control for control in found if control.own_model]
    parts: list[Component] = [_field(control) for control in found if not control.own_model]
    if own:
        fold = html.Details(
            [html.Summary("Your own model, in numbers"), html.Div([_field(control) for control in own], className="fields")],
            className="wide",
            id="own-model",
        )
        parts.insert(1, fold)
    return html.Fieldset([html.Legend(name), html.Div(parts, className="fields")])


def _field(control: Control) -> Component:
    return html.Div(
        [
            html.Label(control.label, htmlFor=control.name, id=f"{control.name}-label"),
            *_input(control),
            html.Div(id=error_name(control), className="error", role="alert"),
        ],
        className="field wide" if control.wide else "field",
    )


def _input(control: Control) -> list[Component]:
    if control.closed:
        return [dcc.Dropdown(id=control.name, options=list(control.choices), placeholder=control.example, searchable=False)]
    choices = f"{control.name}-choices"
    written = dcc.Input(id=control.name, type="text", debounce=_PAUSE_S, placeholder=control.example, autoComplete="off", list=choices)
    return [written, _choices(control.name, control.choices)]


def _choices(name: str, values: Sequence[str]) -> Component:
    return html.Datalist([html.Option(value=value) for value in values], id=f"{name}-choices")


def _result() -> Component:
    return html.Main(
        [
            html.Div("simulating ...", id="busy", className="busy", role="status", hidden=True),
            html.Div(id="load-error", className="mistake", role="alert"),
            html.Div(id="mistake", className="mistake", role="alert"),
            html.Div(
                [
                    html.Div(id="verdict", className="verdict", **_aria("live", "polite")),
                    html.Div(id="figures", className="figures"),
                    _picture("breakdown", "Where the step goes"),
                    _picture("memory", "Memory"),
                    _picture("timeline", "Timeline"),
                ],
                id="answer",
            ),
            _comparison(),
            _plan(),
            _share(),
        ],
        id="result",
        tabIndex=-1,
    )


def _section(name: str, heading: str, *parts: Component) -> Component:
    return html.Section([html.H2(heading, id=f"{name}-heading"), *parts], **_aria("labelledby", f"{name}-heading"))


def _buttons(*parts: Component) -> Component:
    return html.Div(list(parts), className="buttons")


def _button(name: str, text: str, *, quiet: bool = False) -> Component:
    return html.Button(text, id=name, type="button", className="quiet" if quiet else "")


def _picture(name: str, heading: str) -> Component:
    # Drawn with the first answer: until then a browser need not load what draws the timeline.
    return _section(name, heading, html.P(id=f"{name}-said", className="said"), html.Div(id=f"{name}-picture", className="picture"))


def _comparison() -> Component:
    return _section(
        "comparison",
        "Side by side",
        html.P("Keep this result, change the scenario, and compare both.", className="said"),
        _buttons(
            _button("keep", "Keep this result"),
            _button("forget", "Forget kept", quiet=True),
            _button("go-back", "Load kept", quiet=True),
        ),
        html.Div(id="comparison"),
    )


def _plan() -> Component:
    searching = [_button("stop", "Stop", quiet=True), html.Span(id="progress", role="status")]
    return _section(
        "plan",
        "Layouts",
        html.P("The fastest layouts that fit. Click one to load it.", className="said"),
        _buttons(_button("plan", LOOK)),
        html.Div(searching, id="searching", className="buttons", hidden=True),
        dcc.Interval(id="tick", interval=_TICK_MS, disabled=True),
        html.Div(id="plan-table"),
    )


def _share() -> Component:
    return _section(
        "share",
        "Share",
        html.P("The link contains the whole scenario. The address of this page is always that link.", className="said"),
        _buttons(
            html.A("Link to this scenario", id="link", href="#"), _button("copy", "Copy the link"), html.Span(id="copied", role="status")
        ),
        html.Details([html.Summary("The scenario as a file"), html.Pre(id="yaml", tabIndex=0)]),
    )


def _aria(name: str, value: str) -> dict[str, Any]:
    # Components take attributes that are no names of Python, and say so to no type checker.
    return {f"aria-{name}": value}
