"""What happens on the page when something is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypedDict, TypeVar

from dash import ALL, ClientsideFunction, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from clustersim.documents.spots import Data
from clustersim.errors import DeadlockError, InfeasibleError, ScenarioError
from clustersim.report.bottleneck import find_bottleneck
from clustersim.report.facts import gpus_text, headline, interval_line, layout_line, memory_verdict
from clustersim.scenario.result import Result
from clustersim.scenario.verdict import verdict_sections
from clustersim.scenario.yaml_text import yaml_text
from clustersim.studies.side_by_side import side_by_side
from clustersim.studies.side_by_side_text import tables, verdicts
from clustersim.studies.ui.answering import Mistake, answer, mistake, result_of, run_of
from clustersim.studies.ui.contained import check_contained
from clustersim.studies.ui.controls import controls, values_of
from clustersim.studies.ui.layouts import COLUMNS, Row, layout_rows, with_layout
from clustersim.studies.ui.link import PREFIX, document_of, link_of
from clustersim.studies.ui.page import error_name, graph
from clustersim.studies.ui.pictures import breakdown_figure, memory_figure, timeline_figure
from clustersim.studies.ui.starting import start

Document = dict[str, Data]
_KEPT: Final = "kept"
_NOW: Final = "now"


P = ParamSpec("P")
R = TypeVar("R")


class Page(Protocol):
    """What is needed of Dash, which says little of its types."""

    def callback(self, *outputs_and_inputs: object, **options: object) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return what connects a function."""
        ...

    def clientside_callback(self, clientside_function: ClientsideFunction, *args: object, **kwargs: object) -> None:
        """Connect a function of ``assets/page.js``."""
        ...


class Asked(TypedDict):
    """What asks for another scenario."""

    address: str | None
    """Its last part, from the sign ``#``."""
    name: str | None
    picked: list[int | None]
    back: int | None


class Held(TypedDict):
    """What the page holds."""

    rows: list[Document] | None
    """Layouts that were found, as changes."""
    kept: Document | None
    base: Document | None
    current: Document | None
    """The last that could run."""


class Shown(TypedDict):
    """What the page shows of a scenario."""

    current: object
    mistake: object
    errors: list[str]
    stale: object
    verdict: object
    figures: object
    breakdown: object
    memory: object
    memory_said: object
    timeline: object
    timeline_said: object
    link: object
    yaml: object


def register(app: Page, runs: Path, first: str) -> None:
    """Connect inputs and results.

    Parameters
    ----------
    runs
        Folder of runs.
    first
        What the page starts from where its address holds no scenario.
    """
    inputs = [control.name for control in controls()]
    _register_loading(app, inputs, runs, first)
    _register_answer(app, inputs)
    _register_keeping(app)
    _register_plan(app)
    for function, output, given in (
        ("address", Output("ignored", "data"), [Input("link", "href")]),
        ("copy", Output("copied", "children"), [Input("copy", "n_clicks"), State("link", "href")]),
        ("mark", Output("skip", "title"), [Input(error_name(control), "children") for control in controls()]),
    ):
        app.clientside_callback(ClientsideFunction("clustersim", function), output, *given, prevent_initial_call=function == "copy")


def _register_loading(app: Page, inputs: Sequence[str], runs: Path, first: str) -> None:
    @app.callback(
        output={
            "base": Output("base", "data"),
            "values": [Output(name, "value") for name in inputs],
            "start_error": Output("start-error", "children"),
            "load_error": Output("load-error", "children"),
        },
        inputs={
            "asked": {
                "address": Input("address", "hash"),
                "name": Input("start", "value"),
                "picked": Input({"type": "load", "index": ALL}, "n_clicks"),
                "back": Input("go-back", "n_clicks"),
            }
        },
        state={
            "held": {
                "rows": State("plan-rows", "data"),
                "kept": State("kept", "data"),
                "base": State("base", "data"),
                "current": State("current", "data"),
            }
        },
    )
    def load(*, asked: Asked, held: Held) -> Mapping[str, object]:
        errors = {"start_error": "", "load_error": ""}
        found: Mapping[str, Data] | None = None
        try:
            found = _asked_for(_trigger(), asked, held, runs)
        except (ScenarioError, InfeasibleError) as caught:
            errors["start_error" if _trigger() == "start" else "load_error"] = mistake(caught).text
        if found is None and held["base"] is None:
            found = start(first, runs)
        if found is None:
            return {"base": no_update, "values": [no_update] * len(inputs), **errors}
        return {"base": found, "values": _shown_values(found), **errors}


def _shown_values(document: Mapping[str, Data]) -> list[str | None]:
    # A list to choose from takes an empty text for a choice.
    return [None if control.closed and not value else value for control, value in zip(controls(), values_of(document), strict=True)]


def _trigger() -> str | Mapping[str, object] | None:
    """Return what was used: an input, by its name, or a button of a table, by its place."""
    return ctx.triggered_id  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - Dash says only dict


def _asked_for(trigger: str | Mapping[str, object] | None, asked: Asked, held: Held, runs: Path) -> Mapping[str, Data] | None:
    """Return the scenario that is to be loaded; None where nothing is."""
    if isinstance(trigger, Mapping):
        # Buttons that have just been drawn count as triggers too.
        rows = held["rows"] or []
        index = next((place for place, clicks in enumerate(asked["picked"][: len(rows)]) if clicks and place == trigger.get("index")), None)
        return with_layout(held["current"], rows[index]) if held["current"] and index is not None else None
    if trigger == "go-back":
        return held["kept"]
    if trigger == "start":
        return start(asked["name"], runs) if asked["name"] else None
    if asked["address"] is None or not asked["address"].startswith(PREFIX):
        return None
    found = document_of(asked["address"])
    check_contained(found)
    return found


def _register_answer(app: Page, inputs: Sequence[str]) -> None:
    @app.callback(
        output={
            "current": Output("current", "data"),
            "mistake": Output("mistake", "children"),
            "errors": [Output(error_name(control), "children") for control in controls()],
            "stale": Output("answer", "className"),
            "verdict": Output("verdict", "children"),
            "figures": Output("figures", "children"),
            "breakdown": Output("breakdown-picture", "figure"),
            "memory": Output("memory-picture", "figure"),
            "memory_said": Output("memory-said", "children"),
            "timeline": Output("timeline-picture", "figure"),
            "timeline_said": Output("timeline-said", "children"),
            "link": Output("link", "href"),
            "yaml": Output("yaml", "children"),
        },
        inputs={"values": [Input(name, "value") for name in inputs], "base": Input("base", "data")},
        running=[(Output("busy", "hidden"), False, True)],
        prevent_initial_call=True,
    )
    def show(*, values: list[str | None], base: Document | None) -> Shown:
        answered = answer(base or {}, values)
        if isinstance(answered, Mistake):
            return _mistaken(answered)
        return shown(answered.document, answered.result)


def _mistaken(found: Mistake) -> Shown:
    """Return the page with a mistake at its control, and the last result pale."""
    kept = dict.fromkeys(Shown.__annotations__, no_update)
    errors = [found.text if control.key == found.key else "" for control in controls()]
    return Shown(**{**kept, "errors": errors, "mistake": "" if found.key else found.text, "stale": "stale"})  # pyright: ignore[reportArgumentType] - keys are those of Shown


def shown(document: Mapping[str, Data], result: Result) -> Shown:
    """Return all that the page shows of a scenario and its result."""
    metrics = result.metrics
    timeline, timeline_said = timeline_figure(result.spans)
    return Shown(
        current=dict(document),
        mistake="",
        errors=[""] * len(controls()),
        stale="" if result.ok else "failing",
        verdict=_verdict(result),
        figures=[html.Div([html.Span(name), html.Strong(value)]) for name, value in headline(metrics)],
        breakdown=breakdown_figure([(metrics.scenario, metrics)]),
        memory=memory_figure([(metrics.scenario, metrics)]),
        memory_said=f"The plan {memory_verdict(metrics)}.",
        timeline=timeline,
        timeline_said=timeline_said,
        link=link_of(document),
        yaml=yaml_text(document),
    )


def _verdict(result: Result) -> list[Component]:
    metrics = result.metrics
    lines = [html.P(f"{layout_line(metrics, result.spans)}."), html.P(find_bottleneck(metrics).sentence)]
    if not metrics.memory.fits:
        lines.insert(0, html.P(f"The plan {memory_verdict(metrics)}.", className="bad"))
    lines += [html.P(f"{flag.message}.", className="bad") for flag in result.host_shortages]
    lines += [html.P(f"{check.check} is false ({check.shown()}).", className="bad") for check in result.checks if not check.holds]
    told = [html.Li(f"{heading}: {sentence}") for heading, sentences in verdict_sections(result) for sentence in sentences]
    if metrics.step_time_interval_s is not None:
        told.insert(0, html.Li(interval_line(metrics)))
    flags = [html.Li(f"Not certain: {flag.message}") for flag in result.flags]
    return [*lines, html.Details([html.Summary("More of it"), html.Ul([*told, *flags])])]


def _register_keeping(app: Page) -> None:
    @app.callback(
        Output("kept", "data"),
        Input("keep", "n_clicks"),
        Input("forget", "n_clicks"),
        State("current", "data"),
        prevent_initial_call=True,
    )
    def keep(_keep: int | None, _forget: int | None, current: Document | None) -> Document | None:
        return current if _trigger() == "keep" else None

    @app.callback(Output("comparison", "children"), Input("kept", "data"), Input("current", "data"), prevent_initial_call=True)
    def compare(kept: Document | None, current: Document | None) -> list[Component]:
        if not kept or not current:
            return []
        try:
            return _compared(kept, current)
        except (ScenarioError, InfeasibleError, DeadlockError) as error:
            return [html.P(mistake(error).text, className="bad")]


def _compared(kept: Document, current: Document) -> list[Component]:
    runs = [(_KEPT, result_of(kept).metrics), (_NOW, result_of(current).metrics)]
    compared = side_by_side([run_of(kept, _KEPT), run_of(current, _NOW)])
    parts: list[Component] = [html.P(f"{line}.", className="finding") for line in verdicts(compared)]
    parts += [graph("kept-breakdown", breakdown_figure(runs)), graph("kept-memory", memory_figure(runs))]
    told = [_table(table.heading, table.columns, table.rows) for table in tables(compared)]
    return [*parts, html.Div(told, className="tables")]


def _table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str | Component]]) -> Component:
    sides = ["number" if name.startswith(">") else "" for name in columns]
    head = [html.Th(name.removeprefix(">"), className=side, scope="col") for name, side in zip(columns, sides, strict=True)]
    body = [html.Tr([html.Td(cell, className=side) for cell, side in zip(row, sides, strict=True)]) for row in rows]
    return html.Div(html.Table([html.Caption(heading), html.Thead(html.Tr(head)), html.Tbody(body)]), className="wide-table")


def _register_plan(app: Page) -> None:
    @app.callback(
        Output("plan-table", "children"),
        Output("plan-rows", "data"),
        Input("plan", "n_clicks"),
        Input("start", "value"),
        State("current", "data"),
        prevent_initial_call=True,
    )
    def look(_clicks: int | None, _name: str | None, current: Document | None) -> tuple[Component | None, list[Document]]:
        if _trigger() == "start":
            return None, []
        try:
            rows = layout_rows(current or {})
        except (ScenarioError, InfeasibleError, DeadlockError) as error:
            return html.P(mistake(error).text, className="bad"), []
        if not rows:
            return html.P("No layout of the common schedules fits. `clustersim plan` looks at more of them.", className="bad"), []
        return _plan_table(_found_for(current or {}), rows), [dict(row.changes) for row in rows]


def _plan_table(heading: str, rows: Sequence[Row]) -> Component:
    columns = (COLUMNS[0], *(f">{name}" for name in COLUMNS[1:]))
    cells = [
        (html.Button(row.cells[0], id={"type": "load", "index": index}, type="button", className="load"), *row.cells[1:])
        for index, row in enumerate(rows)
    ]
    return _table(heading, columns, cells)


def _found_for(document: Document) -> str:
    """Return what layouts were found for: figures in the table are of that, whatever is changed later."""
    result = result_of(document)
    plan = result.built.plan
    return f"Found for {plan.model.name} on {gpus_text(result.metrics)}, batch {plan.training.global_batch_size:,}; fastest first"
