"""Findings of a search: layouts that were replayed, fastest first, and why every other one is out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Final

from clustersim.apps.plan.replays import ReplayOutcome
from clustersim.apps.plan.space import ParallelLayout
from clustersim.errors import ScenarioError
from clustersim.measure.deciding import is_shorter
from clustersim.report.facts import percent_text

ABOVE: Final = "its bound is above the fastest"
MEMORY: Final = "it does not fit in memory"
MARGIN: Final = "it leaves less memory free than the margin (--memory-margin)"
REFUSED: Final = "it is not legal"
HOST: Final = "hosts have too little memory for it"
CONSTRAINT: Final = "a constraint is false"
SLOWER: Final = "it was replayed and is slower"
UNSEEN: Final = "the search ended before it"
INDIVISIBLE: Final = "none divides ranks, layers and batch"
"""Why there is no layout at all."""
REASONS: Final = (REFUSED, MEMORY, MARGIN, ABOVE, HOST, CONSTRAINT, SLOWER, UNSEEN)
"""Reasons why a layout is not the winner, in the order of the report."""
MOST_REASONS: Final = 3
"""Reasons that are named for which layouts are not legal."""

TIE_FRACTION: Final = 1e-6
"""Relative difference of times and peaks that count as equal: sums in another order differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A layout that was replayed."""

    layout: ParallelLayout
    bound_s: float
    result: ReplayOutcome
    burdens: tuple[str, ...] = ()
    """Reasons to choose a plainer layout where the error bars do not tell which one is faster."""

    @property
    def step_time_s(self) -> float:
        """As replayed."""
        return self.result.step_time_s

    @property
    def least_s(self) -> float:
        """The largest of its bounds."""
        return max(self.bound_s, self.result.bounds.bound_s)

    @property
    def holds_bound(self) -> bool:
        """Whether the replay is no shorter than its bound, as every replay must be."""
        return self.least_s <= self.step_time_s * (1.0 + TIE_FRACTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLarge:
    """A layout that could have been faster than the winner and does not fit."""

    layout: ParallelLayout
    bound_s: float
    peak_bytes: float


@dataclass(slots=True, kw_only=True)
class Search:
    """State and result of a search."""

    n_layouts: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Layouts by why they are not the winner."""
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    """Illegal layouts, by reason."""
    next_bound_s: float | None = None
    """The least bound of all that was not replayed; None where everything was."""
    n_bounds: int = 0
    least_bytes: float | None = None
    """The least peak memory of those that do not fit; None where none was weighed."""
    tried: list[Tried] = field(default_factory=list[Tried])
    """Those that hold all constraints, fastest first."""
    failing: list[Tried] = field(default_factory=list[Tried])
    """Those that do not."""
    too_large: list[TooLarge] = field(default_factory=list[TooLarge])
    others: list[Tried] = field(default_factory=list[Tried])
    """Layouts of other kinds, replayed after the search."""
    left_out: tuple[str, ...] = ()
    """Schedules and stages that a scenario can have and the space has not."""
    ends_s: float = inf
    """Reading of ``perf_counter`` from which on no replay begins."""
    prefers_plainer: bool = True
    """Whether a plainer layout wins where the error bars do not tell it from the fastest."""
    cut_short: bool = False
    """Whether replays after the search were left out because its time was over."""

    def take(self, others: Sequence[Tried]) -> None:
        """Take layouts of other kinds; one that is faster than all of a search that ended early becomes the winner."""
        best = self.fastest
        faster = [each for each in others if best is not None and each.step_time_s < best.step_time_s]
        self.others = [each for each in others if each not in faster]
        if faster:
            self.tried = ranked([*self.tried, *faster])
            self.count(UNSEEN, -len(faster))
            self.count(SLOWER, len(faster))

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return perf_counter() >= self.ends_s

    def goes_on(self) -> bool:
        """Return whether a replay after the search may begin; note where none may."""
        self.cut_short = self.cut_short or self.is_over
        return not self.cut_short

    @property
    def fastest(self) -> Tried | None:
        """The fastest that holds all constraints."""
        return self.tried[0] if self.tried else None

    @property
    def winner(self) -> Tried | None:
        """The fastest of those with the fewest burdens, out of the fastest and all that the error bars do not tell from it."""
        fastest = self.fastest
        if fastest is None or not fastest.burdens or not self.prefers_plainer:
            return fastest
        near = (each for each in ranked([*self.tried, *self.others]) if is_near(fastest, each))
        return min((fastest, *near), key=lambda each: len(each.burdens))

    @property
    def replayed(self) -> list[Tried]:
        """The winner, and all others that hold all constraints, the fastest first."""
        winner = self.winner
        return [*([winner] if winner else []), *(each for each in ranked([*self.tried, *self.others]) if each is not winner)]

    @property
    def kinds(self) -> list[Tried]:
        """The fastest layout that was replayed of each kind, the winner first."""
        return best_of_kinds(self.replayed)

    @property
    def choice(self) -> str:
        """Reason for which the winner is not the fastest; empty where it is."""
        winner, fastest = self.winner, self.fastest
        if winner is None or fastest is None or winner is fastest:
            return ""
        burdens = " and ".join(burden for burden in fastest.burdens if burden not in winner.burdens)
        gain = percent_text(1.0 - fastest.step_time_s / winner.step_time_s)
        return f"the fastest is {gain} shorter, within the error bars, but {burdens}: {fastest.layout.words()}"

    @property
    def below_bound(self) -> tuple[Tried, ...]:
        """Replays that are shorter than their bounds, which is a mistake in the bounds: what bounds say of others does not count then."""
        return tuple(tried for tried in (*self.tried, *self.failing) if not tried.holds_bound)

    @property
    def complete(self) -> bool:
        """Whether nothing that was left out could have won."""
        return not self.counts.get(UNSEEN) and not self.below_bound

    @property
    def gap_fraction(self) -> float | None:
        """By how much of the fastest step any other can be shorter at most; None where that is not known."""
        if self.below_bound:
            return None
        if self.complete or self.fastest is None:
            return 0.0
        return None if not self.next_bound_s else max(0.0, 1.0 - self.next_bound_s / self.fastest.step_time_s)

    @property
    def refusal(self) -> str:
        """The commonest reasons for which layouts are not legal; empty where all of them are."""
        return "; ".join(sorted(self.refusals, key=lambda why: -self.refusals[why])[:MOST_REASONS])

    @property
    def commonest(self) -> str:
        """Why most layouts are not the winner."""
        reason = max(self.counts, key=lambda reason: self.counts[reason], default=INDIVISIBLE)
        return self.refusal if reason == REFUSED else reason

    def checked(self) -> Search:
        """Return the same, unless every layout is refused."""
        if self.refusals and self.counts[REFUSED] == self.n_layouts:
            hint = "change what the message names with --set, or the space with --only"
            raise ScenarioError(f"no layout is legal: {self.refusal}", hint=hint)
        return self

    def refuse(self, why: str, n_layouts: int = 1) -> None:
        """Note why some layouts are not legal."""
        self.refusals[why] = self.refusals.get(why, 0) + n_layouts
        self.count(REFUSED, n_layouts)

    def count(self, reason: str, n_layouts: int = 1) -> None:
        """Note why some layouts are not the winner."""
        self.counts[reason] = self.counts.get(reason, 0) + n_layouts


def is_near(best: Tried, other: Tried) -> bool:
    """Return whether a layout is within the error bars of the best."""
    return is_shorter(best.result.metrics, other.result.metrics) == "not decided"


def ranked(found: Sequence[Tried]) -> list[Tried]:
    """Return layouts, fastest first; of those that are equally fast those that do not offload, less memory, and the simpler one."""
    return [
        tried
        for as_fast in _alike(found, lambda tried: tried.step_time_s)
        for offloads in (False, True)
        for as_large in _alike([tried for tried in as_fast if bool(tried.layout.offload) is offloads], _peak_bytes)
        for tried in sorted(as_large, key=lambda tried: (tried.layout.effort, tried.layout))
    ]


def _peak_bytes(tried: Tried) -> float:
    return tried.result.metrics.memory.peak_bytes


def _alike(found: Sequence[Tried], figure: Callable[[Tried], float]) -> list[list[Tried]]:
    """Return groups in which a figure is the same but for round-off, the least first."""
    groups: list[list[Tried]] = []
    for tried in sorted(found, key=lambda each: (figure(each), each.layout)):
        if groups and figure(tried) <= figure(groups[-1][0]) * (1.0 + TIE_FRACTION):
            groups[-1].append(tried)
        else:
            groups.append([tried])
    return groups


def best_of_kinds(tried: Sequence[Tried]) -> list[Tried]:
    """Return the fastest layout of each kind, out of some that are in order; one that offloads only where that makes it faster."""
    unlike: dict[tuple[bool, ...], Tried] = {}
    for each in tried:
        *techniques, _ = each.layout.kind
        if (*techniques, False) not in unlike:
            unlike.setdefault(each.layout.kind, each)
    return list(unlike.values())
