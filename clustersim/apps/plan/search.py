"""The fastest layout: best bound first, until no remaining layout can be faster; and the certificate of that."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Final

from clustersim.apps.plan.drafts import Drafts, activations_bytes_of
from clustersim.apps.plan.findings import ABOVE, CONSTRAINT, HOST, MARGIN, MEMORY, SLOWER, UNSEEN, Search, TooLarge, Tried, ranked
from clustersim.apps.plan.replays import AT_ONCE, Replayed, ReplayOutcome, Replays
from clustersim.apps.plan.space import LayoutFamily, ParallelLayout, Space, families, layouts, left_out, small_part
from clustersim.apps.run.bound import StepBound
from clustersim.config.checks import metric_values, without_value
from clustersim.expressions.parse import Condition
from clustersim.measure.deciding import undecided_ratios
from clustersim.parallel.stage import stage_of
from clustersim.parallel.training_plan import Plan
from clustersim.progress import counted, noted, phase
from clustersim.units.quantity import format_quantity

MEMORY_MARGIN: Final = 0.08
"""Share of the memory that a plan leaves free where nobody says, as the checks of shipped examples ask for. Of the published runs,
which all took place, one in fifty at most is predicted to leave less (``tests/published/test_error_bars.py``)."""

NEARLY: Final = 1.1
"""Factor on the usable memory up to which layouts are recorded: they would fit with a tenth more."""

MOST_REPLAYS: Final = 32
"""Default limit of a search."""
BOUNDED_FOR_REPLAY: Final = 4
"""Layouts that are bounded by their programs for each that may be replayed: a bound takes a tenth of the time."""
BOUNDED_FIRST: Final = 16
"""Layouts that are bounded by their programs before the first replay, where time is limited."""
MANY_RANKS: Final = 8192
FEWER_REPLAYS: Final = 12
"""Number of ranks from which on the lower limit applies, since one replay takes seconds."""

MOST_KINDS: Final = 4
"""Kinds of layout that are looked at besides those of the fastest ones,"""
OF_A_KIND: Final = 2
"""replays of each, those with the least bounds,"""
SLOWEST: Final = 3.0
"""and multiple of the winner's step from which on their bounds are of no interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Conditions of a search."""

    constraints: tuple[Condition, ...] = ()
    """Conditions on the metrics of a run that the winner must meet."""
    most_replays: int | None = None
    """Number of replays after which the search ends and reports the greatest possible gain; None: 32, or 12 from 8192 ranks on."""
    memory_margin_fraction: float = MEMORY_MARGIN
    """Share of the memory of an accelerator that stays free."""
    time_limit_s: float = float("inf")
    """Longest time of the search, in seconds; it ends then with what it has, but not before one layout was replayed."""
    within_s: float = float("inf")
    """Longest step that is of any use: what cannot be shorter by its bound is left out."""


def fastest(drafts: Drafts, space: Space, terms: Terms | None = None, *, replays: Replays | None = None, others: bool = False) -> Search:
    """Return the fastest layout of a space and why nothing else in it is faster.

    Families of layouts, whose passes are the same, are bounded first; then the layouts of the family with the least bound, and so on. What
    has the least bound of all is weighed and replayed. The search ends when the least bound that is left is not below the fastest replay:
    no replay is shorter than its bound.

    Parameters
    ----------
    terms
        Conditions of the search.
    replays
        Who does them; its processes, where it has any, stay for what comes behind the search.
    others
        Whether to look for layouts of other kinds too.
    """
    terms = terms or Terms()
    default = FEWER_REPLAYS if space.n_ranks >= MANY_RANKS else MOST_REPLAYS
    most_replays = default if terms.most_replays is None else terms.most_replays
    search = Search(left_out=left_out(space), ends_s=perf_counter() + terms.time_limit_s)
    searching = _Searching(drafts=drafts, space=space, terms=terms, search=search, most_replays=most_replays, _limit_s=terms.within_s)
    if replays is not None:
        with phase("plan"):
            found = searching.run(replays)
            if others:
                found.take(searching.others(replays))
        return found
    with Replays() as own, phase("plan"):
        return searching.run(own)


Entry = tuple[float, int, LayoutFamily | ParallelLayout]


@dataclass(slots=True, kw_only=True)
class _Searching:
    drafts: Drafts
    space: Space
    terms: Terms
    most_replays: int
    search: Search
    _heap: list[Entry] = field(default_factory=list[Entry])
    _n_pushed: int = 0
    _limit_s: float = float("inf")
    """The step time of the fastest so far that holds all constraints."""
    _open: deque[tuple[float, ParallelLayout, Future[Replayed]]] = field(
        default_factory=deque[tuple[float, ParallelLayout, "Future[Replayed]"]]
    )
    """Replays in progress, in the order of their start."""
    _cut: dict[LayoutFamily, None] = field(default_factory=dict[LayoutFamily, None])
    """Families that are bounded by their stages."""
    _weighed: dict[ParallelLayout, None] = field(default_factory=dict[ParallelLayout, None])
    """Layouts that fit, and are bounded by the order of their passes."""
    _known: set[ParallelLayout] = field(default_factory=set[ParallelLayout])
    """Layouts that were replayed before the search."""
    _plainly: bool = False
    """Whether only layouts without burdens are replayed."""

    def run(self, replays: Replays) -> Search:
        limited = self.terms.time_limit_s < inf
        if limited and (small := small_part(self.space)) != self.space:
            # It leaves half of the replays to the whole.
            search = Search(ends_s=self.search.ends_s, prefers_plainer=False)
            first = replace(self, space=small, most_replays=(self.most_replays + 1) // 2, search=search)
            self._take(replace(first, _heap=[], _open=deque(), _cut={}, _weighed={}).run(replays))
        self._begin()
        if limited and not self.search.tried and not self._late():
            self._begin_the_most_promising(replays)
        self._go(replays)
        self._go_plainly(replays)
        self._end()
        return self.search

    def _take(self, first: Search) -> None:
        self.search.tried, self.search.failing, self.search.n_bounds = first.tried, first.failing, first.n_bounds
        self._known = {tried.layout for tried in (*first.tried, *first.failing)}
        self._limit_s = min((tried.step_time_s for tried in first.tried), default=self._limit_s)

    def _go_plainly(self, replays: Replays) -> None:
        """Find the fastest layout without burdens too, where the fastest of all has some, as far as the error bars may not decide."""
        tried = ranked(self.search.tried)
        bar = tried[0].result.metrics.error_bar if tried else None
        if not self.search.prefers_plainer or bar is None or not tried[0].burdens:
            return
        near_s = min(tried[0].step_time_s * undecided_ratios(bar, bar)[1], self.terms.within_s)
        limit_s, self._plainly = self._limit_s, True
        self._limit_s = min([near_s, *(each.step_time_s for each in tried if not each.burdens)])
        self._go(replays)
        self._limit_s = limit_s

    def _go(self, replays: Replays) -> None:
        n_begun, heap, open_ = 0, self._heap, self._open
        aside: list[Entry] = []
        while (goes_on := bool(heap) and heap[0][0] < self._limit_s and self._may_begin(n_begun) and not self._late()) or open_:
            self._told()
            item = heap[0][2] if goes_on else None
            if item is None or (len(open_) == AT_ONCE and item in self._weighed):
                self._collect(replays)
                continue
            entry = bound_s, _, _ = heapq.heappop(heap)
            if isinstance(item, LayoutFamily):
                self._refine(bound_s, item)
            elif item in self._known:
                continue
            elif self._plainly and (item.offload or self.drafts.burdens(item)):
                aside.append(entry)
            elif item in self._weighed:
                n_begun += 1
                open_.append((bound_s, item, replays.begin(self.drafts.document(item), limit_s=self._limit_s)))
            elif self._fits(bound_s, item):
                self._weighed[item] = None
                self._push(bound_s, item)
        for entry in aside:
            heapq.heappush(heap, entry)

    def _begin_the_most_promising(self, replays: Replays) -> None:
        """Begin the replay of the layout whose program has the least bound, among those with the least bounds of passes."""
        found = list[tuple[float, ParallelLayout]]()
        while self._heap and len(found) < BOUNDED_FIRST and not (found and self.search.is_over):
            bound_s, _, item = heapq.heappop(self._heap)
            if isinstance(item, LayoutFamily):
                self._refine(bound_s, item)
            elif self._fits(bound_s, item):
                self._weighed[item] = None
                # With a limit of zero nothing is replayed.
                outcome = replays.end(replays.begin(self.drafts.document(item), limit_s=0.0))
                if isinstance(outcome, StepBound):
                    self.search.n_bounds += 1
                    bound_s = max(bound_s, outcome.bound_s)
                found.append((bound_s, item))
        found.sort(key=lambda each: each[0])
        for bound_s, item in found[:1]:
            self._open.append((bound_s, item, replays.begin(self.drafts.document(item), limit_s=self._limit_s)))
        for bound_s, item in found[1:]:
            self._push(bound_s, item)

    def _may_begin(self, n_begun: int) -> bool:
        """Return whether one more layout may be bounded by its program, and replayed where the bound allows it."""
        n_replays = len(self.search.tried) + len(self.search.failing) + len(self._open)
        return n_replays < self.most_replays and n_begun < BOUNDED_FOR_REPLAY * self.most_replays

    def others(self, replays: Replays) -> list[Tried]:
        """Return layouts of further kinds: those with the least bounds, without offloading where the space has such."""
        fastest, found = self.search.fastest, dict[tuple[bool, ...], list[Tried]]()
        if fastest is None or self.search.is_over:
            return []
        if () in self.space.offload:
            self.space = replace(self.space, offload=((),))
        known, n_replays = {tried.layout.kind for tried in self.search.tried}, Counter[tuple[bool, ...]]()
        self.search = Search(ends_s=self.search.ends_s)

        def is_new(layout: ParallelLayout) -> bool:
            kind = layout.kind
            is_open = kind in found or len(found) < MOST_KINDS
            return kind not in known and n_replays[kind] < OF_A_KIND and is_open and layout.offload in self.space.offload

        while self._heap and self._heap[0][0] < SLOWEST * fastest.step_time_s and not self.search.is_over:
            bound_s, _, item = heapq.heappop(self._heap)
            if isinstance(item, LayoutFamily):
                if any(map(is_new, layouts(self.space, item))):
                    self._refine(bound_s, item)
            elif not is_new(item):
                continue
            elif item not in self._weighed:
                if self._fits(bound_s, item):
                    self._weighed[item] = None
                    self._push(bound_s, item)
            else:
                n_replays[item.kind] += 1
                counted(f"{sum(n_replays.values())} of at most {MOST_KINDS * OF_A_KIND} replays of other kinds")
                limit_s = min((tried.step_time_s for tried in found.get(item.kind, ())), default=inf)
                outcome = replays.end(replays.begin(self.drafts.document(item), limit_s=limit_s))
                if isinstance(outcome, ReplayOutcome) and not outcome.lacks_host_memory and self._holds(outcome):
                    found.setdefault(item.kind, []).append(self._tried(bound_s, item, outcome))
        return [tried for of_kind in found.values() for tried in of_kind]

    def _late(self) -> bool:
        """Return whether the time is over; without a longest step not before a layout was replayed."""
        return (self.terms.within_s < inf or bool(self.search.tried or self.search.failing)) and self.search.is_over

    def _refine(self, bound_s: float, family: LayoutFamily) -> None:
        if family in self._cut:
            self._expand(bound_s, family)
        else:
            self._bound(bound_s, family)

    def _begin(self) -> None:
        """Bound every family."""
        drafts, search = self.drafts, self.search
        found = list(families(self.space))
        for family in found:
            self._told()
            every = list(layouts(self.space, family))
            search.n_layouts += len(every)
            if self._late():
                self._push(0.0, family)
                continue
            plan: Plan | str = "no layout"
            for layout in every:
                plan = drafts.plan(layout)
                if not isinstance(plan, str):
                    search.n_bounds += 1
                    self._push(drafts.evaluator().mean_s(plan), family)
                    break
            if isinstance(plan, str):
                search.refuse(plan, len(every))

    def _bound(self, least_s: float, family: LayoutFamily) -> None:
        """Bound a family by its stages, and not their mean, unless it fits nowhere."""
        plan = next(found for found in map(self.drafts.whole_plan, layouts(self.space, family)) if not isinstance(found, str))
        activations_bytes = activations_bytes_of(stage_of(plan, 0))
        if activations_bytes > self._usable_bytes():
            self.search.count(self._too_much(activations_bytes), sum(1 for _ in layouts(self.space, family)))
            return
        self.search.n_bounds += 1
        self._cut[family] = None
        self._push(max(least_s, self.drafts.evaluator().passes_s(plan)), family)

    def _usable_bytes(self) -> float:
        return (1.0 - self.terms.memory_margin_fraction) * self.drafts.capacity_bytes

    def _too_much(self, peak_bytes: float) -> str:
        """Return why so large a peak is refused."""
        return MEMORY if peak_bytes > self.drafts.capacity_bytes else MARGIN

    def _push(self, bound_s: float, item: LayoutFamily | ParallelLayout) -> None:
        # Equal bounds keep the order in which they were found.
        heapq.heappush(self._heap, (bound_s, self._n_pushed, item))
        self._n_pushed += 1

    def _expand(self, bound_s: float, family: LayoutFamily) -> None:
        """Put all layouts of a family that can fit in the place of the family."""
        for layout in layouts(self.space, family):
            plan = self.drafts.whole_plan(layout)
            if isinstance(plan, str):
                self.search.refuse(plan)
                continue
            peak_bytes = self.drafts.peak_bytes(layout)
            if peak_bytes > NEARLY * self._usable_bytes():
                self._drop(peak_bytes)
                continue
            self._push(bound_s, layout)

    def _drop(self, peak_bytes: float) -> None:
        self.search.count(self._too_much(peak_bytes))
        self.search.least_bytes = min(peak_bytes, self.search.least_bytes or peak_bytes)

    def _fits(self, bound_s: float, layout: ParallelLayout) -> bool:
        """Return whether a layout fits in the memory that may be used; note it where it does not."""
        usable_bytes = self._usable_bytes()
        peak_bytes = self.drafts.peak_bytes(layout, NEARLY * usable_bytes)
        if peak_bytes <= usable_bytes:
            return True
        self._drop(peak_bytes)
        if peak_bytes <= NEARLY * usable_bytes:
            self.search.too_large.append(TooLarge(layout=layout, bound_s=bound_s, peak_bytes=peak_bytes))
        return False

    def _collect(self, replays: Replays) -> None:
        """Return the outcome of the first replay in progress."""
        search, (bound_s, layout, future) = self.search, self._open.popleft()
        outcome = replays.end(future)
        if isinstance(outcome, str):
            search.refuse(outcome)
            return
        if isinstance(outcome, StepBound):
            search.n_bounds += 1
            self._push(outcome.bound_s, layout)
            return
        if outcome.lacks_host_memory:
            search.count(HOST)
            return
        tried = self._tried(bound_s, layout, outcome)
        if self._holds(outcome):
            search.tried.append(tried)
            if tried.step_time_s < self._limit_s and not self._plainly:
                noted(f"best so far: {layout.words()}, {format_quantity(tried.step_time_s, 's')} a step, not proven")
            if not (self._plainly and tried.burdens):
                self._limit_s = min(self._limit_s, tried.step_time_s)
        else:
            search.count(CONSTRAINT)
            search.failing.append(tried)

    def _tried(self, bound_s: float, layout: ParallelLayout, result: ReplayOutcome) -> Tried:
        return Tried(layout=layout, bound_s=bound_s, result=result, burdens=self.drafts.burdens(layout))

    def _holds(self, result: ReplayOutcome) -> bool:
        constraints = self.terms.constraints
        if not constraints:
            return True
        sections = {"bounds": result.bounds, "cost": result.cost, "goodput": result.goodput}
        values = metric_values(result.metrics, result.time_to_train_s, sections)
        missing = next((name for each in constraints for name in each.names if name not in values), None)
        if missing is not None:
            raise without_value(missing)
        return all(each.holds(values) for each in constraints)

    def _end(self) -> None:
        search = self.search
        search.tried = ranked(search.tried)
        if search.tried:
            search.count(SLOWER, len(search.tried) - 1)
        for bound_s, _, item in self._heap:
            of_it = (item,) if isinstance(item, ParallelLayout) else layouts(self.space, item)
            n_layouts = sum(layout not in self._known for layout in of_it)
            search.count(ABOVE if bound_s >= self._limit_s else UNSEEN, n_layouts)
        search.next_bound_s = self._heap[0][0] if self._heap else None

    def _told(self) -> None:
        """Report the work so far; bounds may make most of the rest needless, and nobody knows how much."""
        search, n_replays = self.search, len(self.search.tried) + len(self.search.failing)
        counted(f"{search.n_layouts:,} layouts, {search.n_bounds:,} bounds, {n_replays} of at most {self.most_replays} replays")
