"""Contents of the page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from secrets import token_hex
from typing import Any, Final

from dash import dcc, html
from dash.development.base_component import Component

from clustersim import __version__
from clustersim.apps.ui.controls import Control, controls
from clustersim.apps.ui.page_pictures import Figure

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
            [html.Summary("A model of your own, in numbers"), html.Div([_field(control) for control in own], className="fields")],
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


def _picture(name: str, heading: str) -> Component:
    # Drawn with the first answer: until then a browser need not load what draws the timeline.
    said, drawn = html.P(id=f"{name}-said", className="said"), html.Div(id=f"{name}-picture", className="picture")
    return html.Section([html.H2(heading, id=f"{name}-heading"), said, drawn], **_aria("labelledby", f"{name}-heading"))


def _comparison() -> Component:
    return html.Section(
        [
            html.H2("Side by side", id="comparison-heading"),
            html.P("Keep what you see, change something, and look at both.", className="said"),
            html.Div(
                [
                    html.Button("Keep this one", id="keep", type="button"),
                    html.Button("Forget it", id="forget", type="button", className="quiet"),
                    html.Button("Go back to it", id="go-back", type="button", className="quiet"),
                ],
                className="buttons",
            ),
            html.Div(id="comparison"),
        ],
        **_aria("labelledby", "comparison-heading"),
    )


def _plan() -> Component:
    return html.Section(
        [
            html.H2("Layouts", id="plan-heading"),
            html.P("The fastest that fit. A click on one loads it.", className="said"),
            html.Div(html.Button(LOOK, id="plan", type="button"), className="buttons"),
            html.Div(
                [html.Button("Stop", id="stop", type="button", className="quiet"), html.Span(id="progress", role="status")],
                id="searching",
                className="buttons",
                hidden=True,
            ),
            dcc.Interval(id="tick", interval=_TICK_MS, disabled=True),
            html.Div(id="plan-table"),
        ],
        **_aria("labelledby", "plan-heading"),
    )


def _share() -> Component:
    return html.Section(
        [
            html.H2("Share", id="share-heading"),
            html.P("The link is the scenario itself; the address of this page always is that link.", className="said"),
            html.Div(
                [
                    html.A("Link to this scenario", id="link", href="#"),
                    html.Button("Copy the link", id="copy", type="button"),
                    html.Span(id="copied", role="status"),
                ],
                className="buttons",
            ),
            html.Details([html.Summary("The scenario as a file"), html.Pre(id="yaml", tabIndex=0)]),
        ],
        **_aria("labelledby", "share-heading"),
    )


def _aria(name: str, value: str) -> dict[str, Any]:
    # Components take attributes that are no names of Python, and say so to no type checker.
    return {f"aria-{name}": value}
