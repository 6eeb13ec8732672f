"""Result of a run, and its report as text and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from clustersim.config.build import Built
from clustersim.config.checks import CheckResult
from clustersim.config.yaml_text import plain
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Data
from clustersim.measure.cost_report import CostReport, cost_lines
from clustersim.measure.error_bars import with_ends
from clustersim.measure.goodput_report import GoodputReport, goodput_lines
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.notices import Flag
from clustersim.report.facts import headline
from clustersim.report.folded import reading_width
from clustersim.report.shares import find_bottleneck
from clustersim.report.summary import html_summary, print_flags, print_section, terminal_report
from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

    from clustersim.report.plots.kinds import Plots

M = TypeVar("M", Metrics, ServingMetrics)

HOST_SHORTAGES: Final = ("host_memory", "server_memory")
"""Codes of flags that say that a host has too little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun(Generic[M]):
    """One simulated run; every metric is an attribute too: ``result.mfu`` is ``result.metrics.mfu``."""

    metrics: M
    scenario_hash: str
    """Eight hexadecimal digits that name the resolved scenario."""
    resolved: dict[str, Data]
    """The scenario with every default written out."""
    seed: int

    @property
    def plot(self) -> Plots:
        """Pictures, by name: ``result.plot.breakdown(ax=None)`` returns the axes that it drew on, and ``dir(result.plot)`` all names."""
        from clustersim.apps.plot.plots import plots_of

        return plots_of(self)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags for what was assumed, extrapolated or not calibrated."""
        return self.metrics.flags

    def __getattr__(self, name: str) -> object:
        """Return a metric by its name."""
        if name.startswith("_") or name not in self.metrics.__dataclass_fields__:
            near = None if name.startswith("_") else did_you_mean(name, dir(self))
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'{f'; {near}' if near else ''}")
        value: object = getattr(self.metrics, name)
        return value

    def __dir__(self) -> list[str]:
        """Return the names of attributes and metrics."""
        return sorted({*dir(type(self)), *self.metrics.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(MeasuredRun[Metrics]):
    """One simulated training step."""

    spans: Timeline
    """Everything that happened; :meth:`timeline` gives it as a frame."""
    checks: tuple[CheckResult, ...]
    time_to_train_s: float | None
    """Seconds for ``training.tokens``, without failures; None where no budget was given."""
    lower_bound: Callable[[], BoundsReport]
    """Computes :attr:`bounds` once."""
    cost: CostReport | None
    """None without a cost section."""
    goodput: GoodputReport | None
    """None without a reliability section."""
    built: Built

    @property
    def bounds(self) -> BoundsReport:
        """Lower bound of the step time of this layout; computed on demand."""
        return self.lower_bound()

    @property
    def step_time_s(self) -> float:
        """Duration of one optimizer step."""
        return self.metrics.step_time_s

    @property
    def host_shortages(self) -> tuple[Flag, ...]:
        """Flags that report a shortage of host memory."""
        return tuple(flag for flag in self.flags if flag.code in HOST_SHORTAGES)

    @property
    def ok(self) -> bool:
        """Whether the plan fits in the memory of accelerators and hosts, and every check holds."""
        return self.metrics.memory.fits and not self.host_shortages and all(check.holds for check in self.checks)

    def __repr__(self) -> str:
        """Return the result in one line; all of it is in ``print(result)`` and :meth:`to_dict`."""
        return f"<Result {self.metrics.scenario}: {', '.join(f'{name} {value}' for name, value in headline(self.metrics)[:4])}>"

    def __str__(self) -> str:
        """Return what ``run`` prints, as plain text."""
        return printed_text(partial(print_result, self))

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``run --json`` prints."""
        document = plain(self.metrics)
        if not isinstance(document, dict):
            raise TypeError("metrics are not a mapping")
        return {
            **document,
            "time_to_train_s": self.time_to_train_s,
            "bounds": plain(self.bounds),
            "cost": plain(self.cost),
            "goodput": plain(self.goodput),
            "checks": [plain(check) for check in self.checks],
            "scenario_hash": self.scenario_hash,
        }

    def timeline(self) -> pandas.DataFrame:
        """Return the spans as a tidy frame, one row per span; see :meth:`clustersim.trace.timeline.Timeline.to_frame`."""
        return self.spans.to_frame()

    def _repr_html_(self) -> str:
        """Return the result as tables, which notebooks show."""
        return html_summary(self.metrics, self.spans, verdict_sections(self))


LOWER_BOUND: Final = "Lower bound"
MOST_BOUND: Final = 0.9995
"""Share of the step time from which on the bound is printed as the same time."""
UNSAID: Final = "Settings left to their defaults that change the step by 1 % or more"


class MeasuredChanges(NamedTuple):
    """Sentences from replays of changes of one run."""

    changes: tuple[str, ...] = ()
    """Changes that shorten the step, or with which it fits."""
    remarks: tuple[str, ...] = ()
    """Whether no change does, and how many were not replayed."""
    unsaid: tuple[str, ...] = ()
    """Settings that were left to defaults and that change the step."""
    further: tuple[str, ...] = ()
    """Command that searches more, for a terminal."""


NOT_MEASURED: Final = MeasuredChanges()


def printed_text(show: Callable[[Console], None]) -> str:
    """Return what is printed on a console, as plain text of the width at which it is read."""
    from rich.console import Console

    console = Console(file=StringIO(), width=reading_width(), highlight=False, color_system=None)
    with console.capture() as printed:
        show(console)
    return printed.get().rstrip("\n")


def print_result(result: Result, console: Console, *, verbose: bool = False, measured: MeasuredChanges = NOT_MEASURED) -> None:
    """Print a result: step, memory, improvements, other sections of the scenario, and assumptions.

    Parameters
    ----------
    verbose
        Links, collectives, bottleneck, lower bound and every flag too.
    measured
        Without any change the bottleneck is printed.
    """
    terminal_report(result.metrics, result.spans, console, verbose=verbose)
    print_section(console, changes_heading(result), (*measured.changes, *measured.remarks, *measured.further))
    print_section(console, UNSAID, measured.unsaid)
    if verbose or not measured.changes:
        print_section(console, "Bottleneck", (find_bottleneck(result.metrics, result.spans).sentence,))
    for heading, sentences in verdict_sections(result):
        if verbose or heading != LOWER_BOUND:
            print_section(console, heading, sentences)
    print_flags(console, result.metrics, verbose=verbose)


def changes_heading(result: Result) -> str:
    """Return the heading of measured changes."""
    return "What would shorten the step" if result.metrics.memory.fits else "What would make it fit"


def verdict_sections(result: Result) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the whole training, failures, cost and checks of a scenario, those first that fail, each a heading with its sentences."""
    bar, train_s = result.metrics.error_bar, result.time_to_train_s
    tokens = format_quantity(result.built.tokens or 0.0, "count")
    unit = "samples" if result.metrics.tokens_per_s == result.metrics.samples_per_s else "tokens"
    found = (
        ("Whole training", () if train_s is None else (f"{tokens} tokens take {with_ends(train_s, 's', bar)} without failures",)),
        (LOWER_BOUND, (result.bounds.sentence,) if result.bounds.bound_fraction < MOST_BOUND else ()),
        ("With failures", goodput_lines(result.goodput, bar)),
        ("Power and cost", cost_lines(result.cost, unit=unit, bar=bar)),
        ("Checks", tuple(check.sentence() for check in sorted(result.checks, key=lambda check: check.holds))),
    )
    return tuple((heading, sentences) for heading, sentences in found if sentences)
