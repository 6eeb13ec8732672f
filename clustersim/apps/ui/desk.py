"""Questions of the page and their answers: made where the replay is, carried to the page, the last of them kept."""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from socket import MSG_PEEK, socket
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypedDict

from dash import html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from flask import request

from clustersim.apps.ui.contained import check_contained, check_limits
from clustersim.apps.ui.controls import changed, control_of, controls
from clustersim.apps.ui.link import link_of
from clustersim.apps.ui.page_contents import breakdown_bars, graph, memory_bars, timeline_figure
from clustersim.apps.ui.workers import AbandonedError, Asker, LimitError, T, WorkerError, Workers
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data
from clustersim.errors import DeadlockError, InfeasibleError, ScenarioError
from clustersim.measure.metrics import Metrics
from clustersim.report.facts import gpus_text, headline, interval_line, layout_line, memory_text, memory_verdict, percent_text
from clustersim.report.shares import find_bottleneck

if TYPE_CHECKING:
    from clustersim.apps.compare.side_by_side import ComparedRun
    from clustersim.apps.run.result import Result
    from clustersim.apps.ui.layouts import Looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Description of a mistake, in words."""

    text: str
    key: str | None
    """Key of the control that it is shown at; None for the whole page."""


def mistake(error: ScenarioError | InfeasibleError | DeadlockError) -> Mistake:
    """Return an error as the page shows it."""
    if not isinstance(error, ScenarioError):
        return Mistake(text=str(error), key=None)
    control = control_of(error.field)
    said = f"{error.message}; {error.hint}" if error.hint else error.message
    return Mistake(text=said if control or not error.field else f"{error.field}: {said}", key=control.key if control else None)


def result_of(document: Mapping[str, Data]) -> Result:
    """Return the result of a scenario that reads no file."""
    from clustersim.apps.run.running import run_built
    from clustersim.config.build import build

    check_contained(document)
    scenario = load_scenario(document)
    check_limits(scenario)
    return run_built(build(scenario))


Shown = dict[str, object]
"""Results of a scenario that the page shows, by name of :data:`PLACES`, and ``errors``."""
PLACES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "idle": ("busy", "hidden"),
        "current": ("current", "data"),
        "stale": ("answer", "className"),
        "link": ("link", "href"),
        **{name: (name, "children") for name in ("mistake", "verdict", "figures", "memory-said", "timeline-said", "yaml")},
        **{name: (f"{name}-picture", "children") for name in ("breakdown", "memory", "timeline")},
    }
)
"""Parts of the page, each by its name there and the property that is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A scenario that runs, and parts of its result."""

    shown: Shown
    metrics: Metrics
    run: ComparedRun


def look(document: Mapping[str, Data], values: Sequence[str | None]) -> Seen | Mistake:
    """Return the result of a scenario with what controls hold, as the page shows it.

    Raises
    ------
    LimitError
        When it is too large for the page.
    """
    try:
        return look_again(changed(document, values))
    except LimitError:
        raise
    except (ScenarioError, InfeasibleError, DeadlockError) as error:
        return mistake(error)


def look_again(document: Mapping[str, Data]) -> Seen:
    """Return the result of a scenario as the page shows it."""
    from clustersim.apps.compare.compared_runs import run_of

    result = result_of(document)
    return Seen(shown=shown(document, result), metrics=result.metrics, run=run_of(result, result.metrics.scenario))


def shown(document: Mapping[str, Data], result: Result) -> Shown:
    """Return all that the page shows of a scenario and its result."""
    metrics = result.metrics
    timeline, timeline_said = timeline_figure(result.spans)
    figures = (*headline(metrics), ("peak memory", memory_text(metrics.memory.peak_bytes)), *_given(result))
    return {
        "idle": True,
        "current": dict(document),
        "mistake": "",
        "errors": [""] * len(controls()),
        "stale": "" if result.ok else "failing",
        "verdict": _verdict(result),
        "figures": [html.Div([html.Span(name), html.Strong(value)]) for name, value in figures],
        "breakdown": breakdown_bars([(metrics.scenario, metrics)]),
        "memory": memory_bars([(metrics.scenario, metrics)]),
        "memory-said": f"The layout {memory_verdict(metrics)}.",
        "timeline": graph("timeline", timeline),
        "timeline-said": timeline_said,
        "link": link_of(document),
        "yaml": yaml_text(document),
    }


def _given(result: Result) -> list[tuple[str, str]]:
    """Return cost and goodput, where prices and failures are given."""
    cost, goodput = result.cost, result.goodput
    found = [] if cost is None or cost.step.usd is None else [("cost of a step", f"{cost.step.usd:.3g} USD")]
    return [*found, *([] if goodput is None else [("goodput", percent_text(goodput.goodput_fraction))])]


def _verdict(result: Result) -> list[Component]:
    from clustersim.apps.run.result import verdict_sections

    metrics = result.metrics
    lines = [html.P(f"{layout_line(metrics, result.spans)}."), html.P(find_bottleneck(metrics, result.spans).sentence)]
    if metrics.step_time_interval_s is not None:
        lines.append(html.P(interval_line(metrics)))
    if not metrics.memory.fits:
        lines.insert(0, html.P(f"The layout {memory_verdict(metrics)}.", className="bad"))
    lines += [html.P(f"{flag.message}.", className="bad") for flag in result.host_shortages]
    lines += [html.P(f"{check.sentence()}.", className="bad") for check in result.checks if not check.holds]
    told = [html.Li(f"{heading}: {sentence}") for heading, sentences in verdict_sections(result) for sentence in sentences]
    flags = [html.Li(f"Not certain: {flag.message}") for flag in result.flags]
    return [*lines, html.Details([html.Summary("Details"), html.Ul([*told, *flags])])]


_MOST_KEPT: Final = 32
"""Results of the page, of what it is compared with, of a few steps back; each twice."""
_LONGEST_NAME: Final = 64


class Visit(TypedDict):
    """A page that somebody has opened."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Answers questions of all pages."""

    workers: Workers = field(default_factory=Workers)
    _kept: dict[str, Seen] = field(default_factory=dict[str, Seen])
    """The last results, by what they were asked for with."""
    _lock: Lock = field(default_factory=Lock)

    def seen(self, visit: Visit | None, base: Mapping[str, Data], values: Sequence[str | None]) -> Seen | Mistake:
        """Return the result of a scenario with what controls hold.

        Raises
        ------
        PreventUpdate
            When nobody waits for it any more.
        LimitError, WorkerError
            When the page cannot work it out.
        """
        key = _key([base, values])
        found = self._kept.get(key) or self._call(_asker(visit, "result"), look, base, values)
        if isinstance(found, Seen):
            self._keep(key, found)
            # As it is asked for by comparisons.
            self._keep(_key(found.shown["current"]), found)
        return found

    def prepare(self, base: Mapping[str, Data], values: Sequence[str | None]) -> None:
        """Keep the answer to a question that pages will ask; nothing where there is none."""
        with suppress(LimitError, WorkerError, AbandonedError):
            found = self.workers.call(Asker(name="first", is_gone=lambda: False), look, base, values)
            if isinstance(found, Seen):
                self._keep(_key([base, values]), found)

    def compared(self, visit: Visit | None, documents: Sequence[Mapping[str, Data]]) -> list[Seen]:
        """Return results of scenarios that the page holds.

        Raises
        ------
        ScenarioError
            When one of them cannot be used.
        PreventUpdate, LimitError, WorkerError
            As :meth:`seen`.
        """
        asker = _asker(visit, "comparison")
        found: list[Seen] = []
        for document in documents:
            key = _key(document)
            seen = self._kept.get(key) or self._call(asker, look_again, document)
            self._keep(key, seen)
            found.append(seen)
        return found

    def layouts(self, visit: Visit | None, document: Mapping[str, Data]) -> tuple[str, Looked]:
        """Return layouts of a scenario, and what they were found for: figures are of that, whatever is changed later.

        Raises
        ------
        ScenarioError
            When the scenario cannot be used.
        PreventUpdate, LimitError, WorkerError
            As :meth:`seen`.
        """
        return self._call(_asker(visit, "layouts"), _layouts, document)

    def progress(self, visit: Visit | None) -> str:
        """Return the progress of the search of a page, in words."""
        return self.workers.progress(_asker(visit, "layouts").name)

    def stop(self, visit: Visit | None) -> None:
        """End the search of a page."""
        self.workers.abandon(_asker(visit, "layouts").name)

    def _call(self, asker: Asker, function: Callable[..., T], *arguments: object) -> T:
        try:
            return self.workers.call(asker, function, *arguments)
        except AbandonedError as error:
            raise PreventUpdate from error

    def _keep(self, key: str, seen: Seen) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = seen
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]


def _key(asked: object) -> str:
    # A browser gives keys back in another order.
    return json.dumps(asked, sort_keys=True)


def _layouts(document: Mapping[str, Data]) -> tuple[str, Looked]:
    from clustersim.apps.ui.layouts import layout_rows

    check_contained(document)
    check_limits(load_scenario(document))
    found = layout_rows(document)
    if not found.rows:
        return "", found
    result = result_of(document)
    plan = result.built.plan
    what = f"Found for {plan.model.name} on {gpus_text(result.metrics)}, batch {plan.training.global_batch_size:,}"
    return f"{what}.", found


def _asker(visit: Visit | None, part: str) -> Asker:
    """Return who asks for a part of a page; of pages without a name, each request is one of its own."""
    connection: socket | None = request.environ.get("werkzeug.socket")
    page = str(visit["id"])[:_LONGEST_NAME] if visit and "id" in visit else token_hex(8)
    return Asker(name=f"{part} of {page}", is_gone=lambda: connection is not None and is_closed(connection))


def is_closed(connection: socket) -> bool:
    """Return whether a browser has closed its end of a connection on which it has sent all that it has to say."""
    try:
        readable, _, _ = select.select([connection], [], [], 0.0)
        return bool(readable) and not connection.recv(1, MSG_PEEK)
    except (OSError, ValueError):
        return True
