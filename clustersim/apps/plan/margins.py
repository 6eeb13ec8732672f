"""Gain from a tenth more of each resource for the layout that won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import Search, TooLarge, Tried
from clustersim.apps.plan.replays import Replays, resources
from clustersim.apps.run.running import run_built

MOST_LARGER: Final = 2
"""Layouts that are replayed because they would fit into a tenth more memory: those that could be fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Gain from a tenth more of one resource."""

    resource: str
    step_time_s: float
    gain_fraction: float
    """Share of the step time gained."""
    layout: str | None = None
    """Another layout that becomes possible; None where it is the same one."""


def margins(drafts: Drafts, search: Search, replays: Replays) -> tuple[Margin, ...]:
    """Return what a tenth more of each resource buys, largest gain first.

    The layout stays as it is, but for memory: there the layouts count that were faster by their bound and fit only then.
    """
    winner = search.winner
    if winner is None:
        return ()
    document = drafts.document(winner.layout)
    begun = [(name, replays.begin(document, name)) for name in resources(drafts.built(winner.layout))]
    found: list[Margin] = []
    for name, future in begun:
        outcome = replays.end(future)
        assert not isinstance(outcome, str), outcome  # with less of it the layout won
        gain_fraction = 1.0 - outcome.step_time_s / winner.step_time_s
        found.append(Margin(resource=name, step_time_s=outcome.step_time_s, gain_fraction=gain_fraction))
    found.append(_larger(drafts, search, winner))
    return tuple(sorted(found, key=lambda margin: (-margin.gain_fraction, margin.resource)))


def _larger(drafts: Drafts, search: Search, winner: Tried) -> Margin:
    best_s, layout = winner.step_time_s, None
    could = [(_least_s(drafts, large), large.layout) for large in search.too_large if large.bound_s < best_s]
    for least_s, each in sorted(could)[:MOST_LARGER]:
        if least_s >= best_s:
            break
        step_time_s = run_built(drafts.built(each)).step_time_s
        if step_time_s < best_s:
            best_s, layout = step_time_s, each.words()
    return Margin(resource="memory", step_time_s=best_s, gain_fraction=1.0 - best_s / winner.step_time_s, layout=layout)


def _least_s(drafts: Drafts, large: TooLarge) -> float:
    plan = drafts.whole_plan(large.layout)
    assert not isinstance(plan, str)  # it has a bound
    return max(large.bound_s, drafts.evaluator().in_order_s(plan))
