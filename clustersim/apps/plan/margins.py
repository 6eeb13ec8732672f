"""Gain from a tenth more of each resource for the layout that won, and the conditions under which another one wins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final

from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.findings import Search, Tried, is_near
from clustersim.apps.plan.replays import HALF_NETWORK, NETWORK, ReplayOutcome, Replays, resources
from clustersim.measure.deciding import UNDECIDED, undecided_ratios
from clustersim.progress import advanced
from clustersim.report.facts import percent_text
from clustersim.units.quantity import format_quantity

MOST_RIVALS: Final = 6
"""Layouts that are replayed on half the network: the fastest of as many kinds."""
MOST_LARGER: Final = 2
"""Layouts that are replayed because they would fit into a tenth more memory: those that could be fastest."""

LEAST_GAIN: Final = 0.0005
"""Share of the step time from which on a gain is one."""

LESS_IS_FASTER: Final = " (shorter than on the whole network)"
"""Remark on a step that half the network shortens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Gain from a tenth more of one resource."""

    resource: str
    step_time_s: float
    gain_fraction: float
    """Share of the step time gained."""
    layout: str | None = None
    """Another layout that becomes possible; None where it is the same one."""
    decided: bool = True
    """Whether the error bars tell another layout from the winner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Condition that may change the choice."""

    condition: str
    step_time_s: float
    """Step of the layout that is the fastest then."""
    gain_fraction: float
    """Share by which that one is faster than the winner under the same condition; 0 where the winner stays."""
    layout: str | None = None
    """None where the winner stays."""
    decided: bool = True
    """Whether the error bars tell."""
    remark: str = ""
    """Reason for which less of a resource shortens the step of the winner; empty where it does not."""
    safer: bool = False
    """Whether the error bars tell that layout from the winner under the condition alone."""

    @property
    def lines(self) -> list[str]:
        """Outcome in words, after a sentence on a layout that is safer."""
        told = f"{self.condition}: {self.text}"
        if not self.safer:
            return [told]
        gain = f"on half of the network its step is {percent_text(self.gain_fraction)} shorter"
        return [f"If the network may be slower, {self.layout} is safer: the error bars do not tell it from the first, and {gain}.", told]

    @property
    def text(self) -> str:
        """Outcome in words."""
        step = format_quantity(self.step_time_s, "s")
        if self.layout is None or self.gain_fraction < LEAST_GAIN:
            return f"the same layout wins, with a step of {step}{self.remark}"
        doubt = f"{self.remark}{'' if self.decided else f'; {UNDECIDED}'}"
        before = format_quantity(self.step_time_s / (1.0 - self.gain_fraction), "s")
        return f"{self.layout} wins with a step of {step}, {percent_text(self.gain_fraction)} shorter than the {before} of the first{doubt}"


def turns(drafts: Drafts, search: Search, replays: Replays, memory_margin_fraction: float) -> tuple[Turn, ...]:
    """Return which layout wins on half the network, of those that were replayed, and which without a margin of memory."""
    winner = search.winner
    if winner is None:
        return ()
    found: list[Turn] = []
    advanced(1, 2)
    built = drafts.built(winner.layout)
    if NETWORK in resources(built) and search.goes_on():
        of_winner, *rivals = search.kinds[:MOST_RIVALS]
        first = replays.end(replays.begin(drafts.document(of_winner.layout), HALF_NETWORK))
        if rivals and isinstance(first, ReplayOutcome):
            # A rival whose bound is above the winner's step needs no replay.
            begun = [
                (each, replays.begin(drafts.document(each.layout), HALF_NETWORK, first.step_time_s)) for each in rivals if search.goes_on()
            ]
            ended = [(each, replays.end(future)) for each, future in begun]
            steps = [(outcome.step_time_s, each.layout.words()) for each, outcome in ended if isinstance(outcome, ReplayOutcome)]
            best_s, layout = min(steps, default=(first.step_time_s, None))
            condition = f"network at half its bandwidth, of the {1 + len(rivals)} layouts above"
            wins = best_s < first.step_time_s
            if not search.cut_short:
                turn = _turn(condition, winner, first.step_time_s, *((best_s, layout) if wins else (first.step_time_s, None)))
                shortens = first.step_time_s < winner.step_time_s * (1.0 - LEAST_GAIN)
                safer = wins and turn.decided and layout in [each.layout.words() for each in rivals if is_near(winner, each)]
                found.append(replace(turn, remark=LESS_IS_FASTER if shortens else "", safer=safer))
    if memory_margin_fraction > 0.0:
        capacity_bytes = min(node.accelerator.memory_bytes for node, _ in built.cluster.kinds)
        best_s, layout = _fastest_larger(drafts, search, replays, capacity_bytes)
        condition = f"no margin of memory in place of {100 * memory_margin_fraction:g} %"
        if not search.cut_short:
            found.append(_turn(condition, winner, winner.step_time_s, best_s, layout))
    return tuple(found)


def _turn(condition: str, winner: Tried, winner_s: float, best_s: float, layout: str | None) -> Turn:
    gain_fraction = 1.0 - best_s / winner_s
    return Turn(
        condition=condition, step_time_s=best_s, gain_fraction=gain_fraction, layout=layout, decided=_is_decided(winner, gain_fraction)
    )


def _is_decided(winner: Tried, gain_fraction: float) -> bool:
    """Return whether the error bars tell a layout from the winner that is faster by a share of the step."""
    bar = winner.result.metrics.error_bar
    return bar is not None and 1.0 - gain_fraction < undecided_ratios(bar, bar)[0]


def margins(drafts: Drafts, search: Search, replays: Replays) -> tuple[Margin, ...]:
    """Return the gains from a tenth more of each resource, largest first.

    The layout stays as it is, but for memory: there the layouts count that were faster by their bound and fit only then.
    """
    winner = search.winner
    if winner is None:
        return ()
    document = drafts.document(winner.layout)
    begun = [(name, replays.begin(document, name)) for name in resources(drafts.built(winner.layout)) if search.goes_on()]
    found: list[Margin] = []
    for name, future in begun:
        outcome = replays.end(future)
        assert isinstance(outcome, ReplayOutcome), outcome  # with less of it the layout won
        gain_fraction = 1.0 - outcome.step_time_s / winner.step_time_s
        found.append(Margin(resource=name, step_time_s=outcome.step_time_s, gain_fraction=gain_fraction))
    best_s, layout = _fastest_larger(drafts, search, replays, inf)
    gain_fraction = 1.0 - best_s / winner.step_time_s
    decided = layout is None or _is_decided(winner, gain_fraction)
    if not search.cut_short:
        found.append(Margin(resource="memory", step_time_s=best_s, gain_fraction=gain_fraction, layout=layout, decided=decided))
    return tuple(sorted(found, key=lambda margin: (-margin.gain_fraction, margin.resource)))


def _fastest_larger(drafts: Drafts, search: Search, replays: Replays, capacity_bytes: float) -> tuple[float, str | None]:
    """Return step time and words of the fastest layout that was too large, with a peak up to some bytes; None in place of the winner."""
    best_s, layout = search.replayed[0].step_time_s, None
    too_large = [large for large in search.too_large if large.bound_s < best_s and large.peak_bytes <= capacity_bytes]
    could = [(large.bound_s, large.layout) for large in too_large]
    for least_s, each in sorted(could)[:MOST_LARGER]:
        if least_s >= best_s or not search.goes_on():
            break
        outcome = replays.end(replays.begin(drafts.document(each), limit_s=best_s))
        if isinstance(outcome, ReplayOutcome) and outcome.step_time_s < best_s:
            best_s, layout = outcome.step_time_s, each.words()
    return best_s, layout
