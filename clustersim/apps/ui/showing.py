"""Results as the page shows them: made where the replay is, and carried to the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dash import html
from dash.development.base_component import Component

from clustersim.apps.ui.contained import check_contained, check_limits
from clustersim.apps.ui.controls import changed, control_of, controls
from clustersim.apps.ui.link import link_of
from clustersim.apps.ui.page_contents import breakdown_bars, graph, memory_bars, timeline_figure
from clustersim.apps.ui.workers import LimitError
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data
from clustersim.errors import DeadlockError, InfeasibleError, ScenarioError
from clustersim.measure.metrics import Metrics
from clustersim.report.facts import headline, interval_line, layout_line, memory_text, memory_verdict, percent_text
from clustersim.report.shares import find_bottleneck

if TYPE_CHECKING:
    from clustersim.apps.compare.side_by_side import ComparedRun
    from clustersim.apps.run.result import Result


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
        "memory-said": f"The plan {memory_verdict(metrics)}.",
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
        lines.insert(0, html.P(f"The plan {memory_verdict(metrics)}.", className="bad"))
    lines += [html.P(f"{flag.message}.", className="bad") for flag in result.host_shortages]
    lines += [html.P(f"{check.sentence()}.", className="bad") for check in result.checks if not check.holds]
    told = [html.Li(f"{heading}: {sentence}") for heading, sentences in verdict_sections(result) for sentence in sentences]
    flags = [html.Li(f"Not certain: {flag.message}") for flag in result.flags]
    return [*lines, html.Details([html.Summary("Details"), html.Ul([*told, *flags])])]
