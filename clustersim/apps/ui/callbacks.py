"""Callbacks of the page, which run when something is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypedDict, TypeVar

from dash import ALL, ClientsideFunction, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from clustersim.apps.ui.contained import check_contained, start
from clustersim.apps.ui.controls import changed, controls, values_of
from clustersim.apps.ui.desk import PLACES, Desk, Mistake, Seen, Shown, Visit, mistake
from clustersim.apps.ui.link import PREFIX, document_of, link_of
from clustersim.apps.ui.page_contents import LOOK, breakdown_bars, error_name, memory_bars
from clustersim.apps.ui.workers import LimitError, WorkerError
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data
from clustersim.errors import DeadlockError, InfeasibleError, ScenarioError

if TYPE_CHECKING:
    from clustersim.apps.ui.layouts import Looked

# Modules of a replay are imported where they are used: the page answers before it has one.
Document = dict[str, Data]
_KEPT: Final = "kept"
_NOW: Final = "now"


P = ParamSpec("P")
R = TypeVar("R")


class DashPage(Protocol):
    """Interface needed of Dash, which says little of its types."""

    def callback(self, *outputs_and_inputs: object, **options: object) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return what connects a function."""
        ...

    def clientside_callback(self, clientside_function: ClientsideFunction, *args: object, **kwargs: object) -> None:
        """Connect a function of ``assets/page.js``."""
        ...


class PageRequest(TypedDict):
    """Inputs that ask for another scenario."""

    address: str | None
    """Its last part, from the sign ``#``."""
    name: str | None
    picked: list[int | None]
    back: int | None


class Held(TypedDict):
    """State that the page holds."""

    rows: list[Document] | None
    """Layouts that were found, as changes."""
    kept: Document | None
    base: Document | None
    current: Document | None
    """The last that could run."""


def register(app: DashPage, runs: Path, first: str) -> Callable[[], None]:
    """Connect inputs and results, and return what answers the first question before a page asks it.

    Parameters
    ----------
    runs
        Folder of runs.
    first
        What the page starts from where its address holds no scenario.
    """
    desk = Desk()
    inputs = [control.name for control in controls()]
    _register_loading(app, inputs, runs, first)
    _register_answer(app, inputs, desk)
    _register_keeping(app, desk)
    _register_plan(app, desk)
    for function, output, given in (
        ("address", Output("ignored", "data"), [Input("link", "href")]),
        ("copy", Output("copied", "children"), [Input("copy", "n_clicks"), State("link", "href")]),
        ("mark", Output("skip", "title"), [Input(error_name(control), "children") for control in controls()]),
    ):
        app.clientside_callback(ClientsideFunction("clustersim", function), output, *given, prevent_initial_call=function == "copy")
    begun = start(first, runs)
    return partial(desk.prepare, begun, _shown_values(begun))


def _register_loading(app: DashPage, inputs: Sequence[str], runs: Path, first: str) -> None:
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
    def load(*, asked: PageRequest, held: Held) -> Mapping[str, object]:
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


def _asked_for(trigger: str | Mapping[str, object] | None, asked: PageRequest, held: Held, runs: Path) -> Mapping[str, Data] | None:
    """Return the scenario that is to be loaded; None where nothing is."""
    if isinstance(trigger, Mapping):
        # Buttons that have just been drawn count as triggers too.
        from clustersim.apps.ui.layouts import with_layout

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


def _register_answer(app: DashPage, inputs: Sequence[str], desk: Desk) -> None:
    @app.callback(
        output={
            "errors": [Output(error_name(control), "children") for control in controls()],
            **{name: Output(*place) for name, place in PLACES.items()},
        },
        inputs={"values": [Input(name, "value") for name in inputs], "base": Input("base", "data")},
        state={"visit": State("visit", "data")},
        # Shown until an answer hides it: an older request that a newer one has replaced ends too.
        running=[(Output("busy", "hidden"), False, False)],
        prevent_initial_call=True,
    )
    def show(*, values: list[str | None], base: Document | None, visit: Visit) -> Shown:
        try:
            seen = desk.seen(visit, base or {}, values)
        except (LimitError, WorkerError) as error:
            return _too_much(error, changed(base or {}, values))
        return _mistaken(seen) if isinstance(seen, Mistake) else seen.shown


def _too_much(error: LimitError | WorkerError, document: Mapping[str, Data]) -> Shown:
    """Return the page with what it cannot run, as a file for the command line."""
    shown = _mistaken(Mistake(text=_unanswered(error, "run"), key=None))
    return {**shown, "link": link_of(document), "yaml": yaml_text(document)}


def _mistaken(found: Mistake) -> Shown:
    """Return the page with a mistake at its control, and the last result pale."""
    errors = [found.text if control.key == found.key else "" for control in controls()]
    text = "Not simulated: correct the marked input. The last result is below." if found.key else found.text
    said = {"idle": True, "errors": errors, "mistake": text, "stale": "stale"}
    return {**dict.fromkeys(PLACES, no_update), **said}


def _register_keeping(app: DashPage, desk: Desk) -> None:
    @app.callback(
        Output("kept", "data"),
        Input("keep", "n_clicks"),
        Input("forget", "n_clicks"),
        State("current", "data"),
        prevent_initial_call=True,
    )
    def keep(_keep: int | None, _forget: int | None, current: Document | None) -> Document | None:
        return current if _trigger() == "keep" else None

    @app.callback(
        Output("comparison", "children"), Input("kept", "data"), Input("current", "data"), State("visit", "data"), prevent_initial_call=True
    )
    def compare(kept: Document | None, current: Document | None, visit: Visit) -> list[Component]:
        if not kept or not current:
            return []
        try:
            return _compared(*desk.compared(visit, (kept, current)))
        except (LimitError, WorkerError) as error:
            return [html.P(_unanswered(error, "run"), className="bad")]
        except (ScenarioError, InfeasibleError, DeadlockError) as error:
            return [html.P(mistake(error).text, className="bad")]


def _compared(kept: Seen, current: Seen) -> list[Component]:
    from clustersim.apps.compare.compared_runs import side_by_side

    runs = [(_with_model(_KEPT, kept), kept.metrics), (_with_model(_NOW, current), current.metrics)]
    compared = side_by_side([replace(seen.run, source=name, name=name) for seen, name in ((kept, _KEPT), (current, _NOW))])
    parts: list[Component] = [html.P(f"{line}.", className="finding") for line in compared.verdicts]
    parts += [breakdown_bars(runs), memory_bars(runs)]
    told = [_table(table.heading, table.columns, table.rows) for table in compared.tables(short=False)]
    return [*parts, html.Div(told, className="tables")]


def _with_model(name: str, seen: Seen) -> str:
    model = seen.run.resolved.get("model")
    own = model.get("name") if isinstance(model, Mapping) else None
    return f"{name}: {own}" if own else name


def _table(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str | Component]]) -> Component:
    sides = ["number" if name.startswith(">") else "" for name in columns]
    head = [html.Th(name.removeprefix(">"), className=side, scope="col") for name, side in zip(columns, sides, strict=True)]
    body = [html.Tr([html.Td(cell, className=side) for cell, side in zip(row, sides, strict=True)]) for row in rows]
    table = html.Div(html.Table([html.Thead(html.Tr(head)), html.Tbody(body)]), className="wide-table")
    # A caption would be as wide as its table, beyond a narrow screen.
    return html.Div([html.P(heading, className="caption"), table])


def _register_plan(app: DashPage, desk: Desk) -> None:
    @app.callback(
        Output("plan-table", "children"),
        Output("plan-rows", "data"),
        Output("plan", "children"),
        Input("plan", "n_clicks"),
        Input("start", "value"),
        State("current", "data"),
        State("visit", "data"),
        running=[(Output("searching", "hidden"), False, True), (Output("tick", "disabled"), False, True)],
        prevent_initial_call=True,
    )
    def look(
        _clicks: int | None, _name: str | None, current: Document | None, visit: Visit
    ) -> tuple[Component | None, list[Document], str]:
        if _trigger() == "start":
            return None, [], LOOK
        try:
            heading, found = desk.layouts(visit, current or {})
        except (LimitError, WorkerError) as error:
            return html.P(_unanswered(error, "plan"), className="bad"), [], LOOK
        except (ScenarioError, InfeasibleError, DeadlockError) as error:
            return html.P(mistake(error).text, className="bad"), [], LOOK
        if not found.rows:
            return html.P("No layout of the common schedules fits. `clustersim plan` looks at more of them.", className="bad"), [], LOOK
        return _plan_table(heading, found), [dict(row.changes) for row in found.rows], "Look again"

    @app.callback(
        Output("progress", "children"),
        Input("tick", "n_intervals"),
        Input("stop", "n_clicks"),
        State("visit", "data"),
        prevent_initial_call=True,
    )
    def tell(_ticks: int | None, _clicks: int | None, visit: Visit) -> str:
        if _trigger() == "stop":
            desk.stop(visit)
        return desk.progress(visit)


def _plan_table(heading: str, found: Looked) -> Component:
    from clustersim.apps.ui.layouts import COLUMNS, FULL_SEARCH

    columns = (COLUMNS[0], *(f">{name}" for name in COLUMNS[1:]))
    cells = [
        (html.Button(row.cells[0], id={"type": "load", "index": index}, type="button", className="load"), *row.cells[1:])
        for index, row in enumerate(found.rows)
    ]
    said = [html.P(text, className="said") for text in (found.finding, FULL_SEARCH) if text]
    tried = html.Details([html.Summary("Layouts that were tried"), html.P(f"{found.told}.", className="said")])
    return html.Div([_table(heading, columns, cells), *said, tried])


def _unanswered(error: LimitError | WorkerError, command: str) -> str:
    """Return why the page has no result, and which command has it."""
    saved = "save 'The scenario as a file' below as scenario.yaml, and run: clustersim"
    if isinstance(error, LimitError):
        return f"{error.message}; {saved} {command} scenario.yaml"
    return f"bug: {error}. This is a mistake in clustersim and not in your input; to report it, {saved} --traceback {command} scenario.yaml"
