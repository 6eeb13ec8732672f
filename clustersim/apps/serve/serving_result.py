"""The result of a serving run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from clustersim.apps.run.result import MeasuredRun, printed_text
from clustersim.apps.serve.deployment import BuiltServing
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.engine.serving_run import ServingRun
from clustersim.measure.serving_metrics import ServingMetrics

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingResult(MeasuredRun[ServingMetrics]):
    """One simulated serving run."""

    run: ServingRun
    """Times of every request, and records of steps."""
    built: BuiltServing

    @property
    def ok(self) -> bool:
        """Whether all requests were answered and every SLO is met."""
        slo = self.metrics.slo
        return not self.metrics.requests.refused and (slo is None or slo.met)

    def __repr__(self) -> str:
        """Return the result in one line; all of it is in ``print(result)`` and :meth:`to_dict`."""
        return f"<ServingResult {self.metrics.scenario}: {self.metrics.output_tokens_per_s:.4g} output tokens/s>"

    def __str__(self) -> str:
        """Return what ``run`` prints, as plain text."""
        from clustersim.report.serving_summary import print_serving

        return printed_text(partial(print_serving, self.metrics))

    def _repr_html_(self) -> str:
        """Return the result as tables, which notebooks show."""
        from clustersim.report.serving_summary import html_serving

        return html_serving(self.metrics)

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``run --json`` prints."""
        document = plain(self.metrics)
        if not isinstance(document, dict):
            raise TypeError("metrics are not a mapping")
        return {**document, "scenario_hash": self.scenario_hash}

    def requests_table(self) -> pandas.DataFrame:
        """Return one row for each request: when it was sent, its first and last token, and its tokens; times in seconds, None where not."""
        from clustersim.report.serving_summary import requests_frame

        return requests_frame(self.run.requests, self.run.log)

    def timeline(self) -> pandas.DataFrame:
        """Return one row for each of some engine steps, at about equal distances in time, pool after pool; times in seconds."""
        from clustersim.report.serving_summary import steps_frame

        return steps_frame((self.run.steps, self.run.decode_steps))
