"""Result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clustersim.apps.run.bound_report import LeastTime
from clustersim.config.build import Built
from clustersim.config.checks import CheckResult
from clustersim.config.yaml_text import plain
from clustersim.documents.spots import Data
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.notices import Flag
from clustersim.report.facts import headline
from clustersim.trace.timeline import Timeline

if TYPE_CHECKING:
    import pandas

    from clustersim.apps.run.plotting import Plots

HOST_SHORTAGES: Final = ("host_memory", "server_memory")
"""Codes of flags that say that a host has too little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One simulated training step.

    Every metric is an attribute too: ``result.mfu`` is ``result.metrics.mfu``.
    """

    metrics: Metrics
    spans: Timeline
    """Everything that happened; :meth:`timeline` gives it as a frame."""
    checks: tuple[CheckResult, ...]
    time_to_train_s: float | None
    """Seconds for ``training.tokens``, without failures; None where no budget was given."""
    least: LeastTime
    """See :attr:`bounds`."""
    cost: CostReport | None
    """None where the scenario says nothing of prices."""
    goodput: GoodputReport | None
    """None where it says nothing of failures."""
    scenario_hash: str
    """Eight hexadecimal digits that name the resolved scenario."""
    resolved: dict[str, Data]
    """The scenario with every default written out."""
    built: Built
    seed: int

    @property
    def bounds(self) -> BoundsReport:
        """A time below which no step of this layout can end; worked out when it is asked for."""
        return self.least.report

    @property
    def step_time_s(self) -> float:
        """Duration of one optimizer step."""
        return self.metrics.step_time_s

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags for what was assumed, extrapolated or not calibrated."""
        return self.metrics.flags

    @property
    def host_shortages(self) -> tuple[Flag, ...]:
        """Flags that report a shortage of host memory."""
        return tuple(flag for flag in self.flags if flag.code in HOST_SHORTAGES)

    @property
    def ok(self) -> bool:
        """Whether the plan fits in the memory of accelerators and hosts, and every check holds."""
        return self.metrics.memory.fits and not self.host_shortages and all(check.holds for check in self.checks)

    def __getattr__(self, name: str) -> object:
        """Return a metric by its name."""
        if name.startswith("_") or name not in Metrics.__dataclass_fields__:
            raise AttributeError(f"'Result' has no attribute '{name}'")
        value: object = getattr(self.metrics, name)
        return value

    def __repr__(self) -> str:
        """Return the result in one line; all of it is in ``print(result)`` and :meth:`to_dict`."""
        return f"<Result {self.metrics.scenario}: {', '.join(f'{name} {value}' for name, value in headline(self.metrics)[:4])}>"

    def __str__(self) -> str:
        """Return what ``run`` prints, as plain text."""
        from clustersim.apps.run.verdict import result_text

        return result_text(self)

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

    @property
    def plot(self) -> Plots:
        """Pictures, by name: ``result.plot.breakdown(ax=None)`` returns the axes that it drew on."""
        from clustersim.apps.run.plotting import Plots

        return Plots(self)

    def timeline(self) -> pandas.DataFrame:
        """Return the spans as a tidy frame, one row per span; see :meth:`clustersim.trace.timeline.Timeline.to_frame`."""
        return self.spans.to_frame()

    def _repr_html_(self) -> str:
        """Return the result as tables, which notebooks show."""
        from clustersim.report.notebook import html_tables

        return html_tables(self.metrics, self.spans)
