"""All pictures by name, one file and one row each, and as methods of a result, such as ``result.plot.breakdown()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from matplotlib.axes import Axes

from clustersim.documents.near_names import choices_hint
from clustersim.measure.metrics import Metrics
from clustersim.report.plots import (
    breakdown,
    communication,
    gantt,
    heatmap,
    lines,
    links,
    memory,
    memory_over_time,
    pareto,
    rank_timeline,
    roofline,
    scaling,
    serving_plots,
    topology,
    tornado,
    validation,
)
from clustersim.report.plots import cost_plot as cost
from clustersim.report.plots import goodput_plot as goodput
from clustersim.report.plots.canvas import style
from clustersim.report.subject import ServedSubject, Subject
from clustersim.trace.timeline import Timeline

if TYPE_CHECKING:
    import pandas


S = TypeVar("S", Subject, ServedSubject)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlot(Generic[S]):
    """A picture of runs of one kind."""

    draw: Callable[[Sequence[S], Axes | None], Axes]
    n_most: int = 1
    """Runs that it holds."""
    n_least: int = 1
    grows: str = ""
    """Variation of one scenario into several runs: ``strong`` or ``weak`` scaling of the batch with the cluster, or another ``load``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlot:
    """A picture of a table, such as the results of a sweep."""

    draw: Callable[[pandas.DataFrame, Axes | None], Axes]
    draw_figure: Callable[[pandas.DataFrame, str], Axes] | None = None
    """Drawing of a column that is named; None where none can be."""
    of_sources: bool = False
    """Whether its table is that of published sources, which are named instead of a file."""


_MANY: Final = 12


def _pipeline(runs: Sequence[Subject], ax: Axes | None) -> Axes:
    return gantt.pipeline_gantt(runs[0].metrics, runs[0].timeline, ax, closed_form=runs[0].closed_form_bubble_fraction)


def _of_one(draw: Callable[[Metrics, Timeline, Axes | None], Axes]) -> RunPlot[Subject]:
    return RunPlot(draw=lambda runs, ax: draw(runs[0].metrics, runs[0].timeline, ax))


RUN_PLOTS: Final[Mapping[str, RunPlot[Subject]]] = MappingProxyType(
    {
        "pipeline": RunPlot(draw=_pipeline),
        "timeline": RunPlot(draw=rank_timeline.rank_timeline),
        "breakdown": RunPlot(draw=breakdown.step_breakdowns, n_most=_MANY),
        "communication": RunPlot(draw=communication.communication),
        "links": RunPlot(draw=links.link_utilisation),
        "topology": RunPlot(draw=topology.topology_map),
        "memory": _of_one(memory.memory_by_stage),
        "memory_over_time": _of_one(memory_over_time.memory_over_time),
        "roofline": RunPlot(draw=roofline.roofline),
        "cost": RunPlot(draw=cost.cost_waterfall),
        "goodput": RunPlot(draw=goodput.goodput_curve),
        "strong_scaling": RunPlot(draw=scaling.scaling, n_most=_MANY, n_least=2, grows="strong"),
        "weak_scaling": RunPlot(draw=partial(scaling.scaling, weak=True), n_most=_MANY, n_least=2, grows="weak"),
        "pareto": RunPlot(draw=pareto.pareto_of_runs, n_most=4 * _MANY, n_least=2),
    }
)
"""Pictures that are made from training runs."""

SERVED_PLOTS: Final[Mapping[str, RunPlot[ServedSubject]]] = MappingProxyType(
    {
        "latency": RunPlot(draw=serving_plots.latency_distribution),
        "timeline": RunPlot(draw=serving_plots.step_timeline),
        "kv": RunPlot(draw=serving_plots.kv_over_time),
        "throughput_latency": RunPlot(draw=serving_plots.throughput_latency, n_most=_MANY, n_least=2, grows="load"),
    }
)
"""Pictures that are made from serving runs."""

TABLE_PLOTS: Final[Mapping[str, TablePlot]] = MappingProxyType(
    {
        "heatmap": TablePlot(draw=heatmap.sweep_heatmap, draw_figure=lambda frame, name: heatmap.sweep_heatmap(frame, figure=name)),
        "lines": TablePlot(draw=lines.sweep_lines, draw_figure=lambda frame, name: lines.sweep_lines(frame, figure=name)),
        "pareto": TablePlot(draw=pareto.pareto),
        "validation": TablePlot(draw=validation.validation_errors, of_sources=True),
    }
)
"""Pictures that are made from tables."""

ANSWER_PLOTS: Final = MappingProxyType({"tornado": tornado.tornado})
"""Pictures of a what-if."""


def drawings(plots: Mapping[str, RunPlot[S]], subjects: Sequence[S]) -> Plots:
    """Return the pictures of a table that can be drawn of as many runs."""
    return Plots({name: plot.draw for name, plot in plots.items() if plot.n_least <= len(subjects) <= plot.n_most}, lambda: subjects)


KINDS: Final = tuple(dict.fromkeys((*RUN_PLOTS, *SERVED_PLOTS, *TABLE_PLOTS, *ANSWER_PLOTS)))


class Plots:
    """All pictures of one result: a method each, which draws on given axes or on a figure of its own, and returns the axes.

    Examples
    --------
    >>> import clustersim
    >>> result = clustersim.run("llama3-8b-8xh100")
    >>> result.plot.breakdown().get_xlabel()
    'mean over ranks, s'
    """

    def __init__(self, pictures: Mapping[str, Callable[..., Axes]], drawn: Callable[[], object]) -> None:
        """Take what draws each picture, and what gives the thing to draw; nothing is drawn yet."""
        self._pictures, self._drawn = pictures, drawn

    def __dir__(self) -> list[str]:
        """Return the names of the pictures."""
        return list(self._pictures)

    def __repr__(self) -> str:
        """Return the names of the pictures, for people at a prompt."""
        return f"pictures: {', '.join(self._pictures)}"

    def __getattr__(self, name: str) -> Callable[..., Axes]:
        """Return what draws a picture.

        Raises
        ------
        AttributeError
            When there is no such picture.
        """
        if name.startswith("_") or name not in self._pictures:
            raise AttributeError(f"there is no picture '{name}'; {choices_hint(name, self._pictures, len(self._pictures))}")

        def draw(ax: Axes | None = None, **options: str) -> Axes:
            with style():
                return self._pictures[name](self._drawn(), ax, **options)

        return draw
