"""Imbalance of tokens over experts, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsReport:
    """Experts and ranks with most tokens, and the waiting of the others."""

    load: str
    """The law, or the name of the file."""
    tokens_per_expert: float
    """Rows of one expert in one micro-batch, in the mean over experts and layers."""
    hottest_expert: int
    """Hottest expert of the hottest ranks, in the layer in which they have most."""
    expert_skew: float
    """Rows of the hottest expert over the mean of all experts, mean over layers."""
    rank_skew: float
    """Rows of the fullest rank over the mean of all ranks, mean over layers."""
    hot_ranks: str
    """The ranks that are fullest in most layers, as text."""
    hot_layers_fraction: float
    """Share of the layers in which they are."""
    dropped_fraction: float
    """Share of all rows that found their expert full."""
    waited_s: float
    """In one step, mean over the ranks: for the fullest rank of their group."""


def waited_for_experts_s(timeline: Timeline) -> float:
    """Return how long ranks waited inside their passes for one with more tokens: of one step, mean over the ranks."""
    n_ranks = sum(each.n_ranks for each in timeline.rank_classes)
    from clustersim.trace.columns import columns_of

    columns = columns_of(timeline.spans)
    total_s = fsum(
        count * span.waiting_s * timeline.rank_classes[span.rank_class].n_ranks
        for span, count in zip(columns.patterns, columns.counts().tolist(), strict=True)
    )
    n_steps = 1 if timeline.steps is None else timeline.steps.n_steps
    return total_s / n_ranks / n_steps


def experts_lines(report: ExpertsReport | None) -> Sequence[str]:
    """Return who is waited for and what is dropped; nothing where all experts have as much to do."""
    if report is None or (report.rank_skew == 1.0 and report.dropped_fraction == 0.0):
        return ()
    lines: list[str] = []
    if report.rank_skew > 1.0:
        often = "in every layer" if report.hot_layers_fraction == 1.0 else f"in {100 * report.hot_layers_fraction:.0f} % of the layers"
        lines.append(f"{report.hot_ranks} have the hottest experts {often}: {report.rank_skew:.2f} times the rows of a rank in the mean")
        lines.append(f"the others wait for the fullest rank of each layer: {format_quantity(report.waited_s, 's')} of the step")
        lines.append(f"the hottest expert there is {report.hottest_expert}; that of a layer has {report.expert_skew:.2f} times the mean")
    if report.dropped_fraction > 0.0:
        lines.append(f"{100 * report.dropped_fraction:.1f} % of what tokens were sent to experts for was dropped, because these were full")
    return tuple(lines)
