"""Who is waited for: idle time of some rank classes, charged to the one that kept them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Final

from clustersim.engine.graph import Graph
from clustersim.program.program import Program
from clustersim.program.tasks import COMPUTE_STREAM, Compute, Task, Transfer

TIE: Final = 1e-12
"""Arrivals that are as near to each other, in parts of the time that has passed, are one: sums in another order differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Time that ranks waited for those of one class, on average."""

    rank_class: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrival:
    """Several classes at a task that joins them, of which one came last."""

    last: int
    waits_s: dict[int, float]
    """Of each class that had something to do before."""
    n_ranks: Sequence[int]
    """That each of them stands for."""


@dataclass(slots=True)
class _Account:
    """Of one step, by rank class."""

    busy_s: list[float]
    """What its passes took."""
    ended_s: list[float]
    """When the last of its tasks ended that was not the loader's."""
    loaded_s: list[float]
    """When its loader was through."""
    arrivals: list[_Arrival] = field(default_factory=list[_Arrival])

    def is_kept_by_loader(self, classes: Sequence[int], *, tie_s: float) -> bool:
        """Return whether a loader of the classes is through after all else that any of them does."""
        return max(self.loaded_s[each] for each in classes) - max(self.ended_s[each] for each in classes) > tie_s


@dataclass(slots=True, kw_only=True)
class Waiting:
    """Follows the tasks of each step, and says at its end who was waited for, and how long.

    A task of several classes starts when all have ended what they have to do for it. Until then those that came earlier wait, as far as
    they have nothing else in progress; reading the next batch is nothing else. What is counted is the mean over all ranks, and it is
    charged to the class that came last. After the last step, where all must end, those that are through wait for the last.

    The stages of a pipeline wait for each other at every transfer, and who comes last there is often only handing on what came late to
    itself; with equal stages they wait too, for nobody. What sets the pace of a pipeline is the class whose passes take longest, and it
    is charged with what they take more than those of the others, on average over all classes that it is connected with.

    Where the loader is through after all else that connected classes do in a step, they wait for it, and nobody is charged.
    """

    program: Program
    graph: Graph
    last_step: int | None = None
    """At whose end all classes wait for the last; None where they do not wait for each other."""
    _is_pipeline: bool = field(init=False)
    _loads: frozenset[int] = field(init=False)
    """Tasks of the loader."""
    _n_active: list[int] = field(init=False)
    """Tasks in progress of each rank class, without those of the loader."""
    _idle_since_s: list[float] = field(init=False)
    """When the last of them ended, for classes without any."""
    _n_ranks: int = field(init=False)
    """That have anything to do."""
    _accounts: dict[int, _Account] = field(default_factory=dict[int, _Account])

    def __post_init__(self) -> None:
        """Find out what kind of program it is."""
        tasks, n_classes = self.program.tasks, len(self.program.rank_classes)
        self._is_pipeline = any(_is_between_stages(self.program, task) for task in tasks)
        self._loads = frozenset(
            index for index, task in enumerate(tasks) if isinstance(task.action, Compute) and task.action.phase == "load"
        )
        self._n_ranks = sum(self.program.rank_classes[each].n_ranks for each in self._taking_part)
        self._n_active, self._idle_since_s = [0] * n_classes, [0.0] * n_classes

    def started(self, step: int, index: int, now_s: float, ended_s: Sequence[float]) -> None:
        """Take notice that a task starts, while others of its step ended when ``ended_s`` says."""
        if index in self._loads:
            return
        if index in self.graph.joints and not self._is_pipeline:
            self._note_arrivals(self._account(step), index, now_s, ended_s)
        for rank_class in self.graph.classes[index]:
            self._n_active[rank_class] += 1

    def ended(self, step: int, index: int, start_s: float, now_s: float) -> None:
        """Take notice that a task has ended."""
        account = self._account(step)
        for rank_class in self.graph.classes[index]:
            if index in self._loads:
                account.loaded_s[rank_class] = now_s
                continue
            self._n_active[rank_class] -= 1
            self._idle_since_s[rank_class] = account.ended_s[rank_class] = now_s
            if self.program.tasks[index].lanes[0].stream == COMPUTE_STREAM:
                account.busy_s[rank_class] += now_s - start_s

    def charges(self, step: int, now_s: float) -> list[Charge]:
        """Return who was waited for in a step that has ended."""
        account = self._accounts.pop(step)
        if self._is_pipeline:
            arrivals = [self._longest(account.busy_s, component, now_s) for component in self.graph.components]
        else:
            last = [self._longest(account.ended_s, self._taking_part, now_s)] if step == self.last_step else []
            arrivals = [*account.arrivals, *last]
        kept = frozenset[int]().union(*[each for each in self.graph.components if account.is_kept_by_loader(each, tie_s=TIE * now_s)])
        found = [Charge(rank_class=each.last, seconds=self._mean_s(each)) for each in arrivals if each.last not in kept]
        return [charge for charge in found if charge.seconds > TIE * now_s]

    @property
    def _taking_part(self) -> tuple[int, ...]:
        return tuple(rank_class for rank_class, count in enumerate(self.graph.n_tasks) if count)

    def _account(self, step: int) -> _Account:
        account = self._accounts.get(step)
        if account is None:
            n_classes = len(self._n_active)
            account = self._accounts[step] = _Account([0.0] * n_classes, [0.0] * n_classes, [0.0] * n_classes)
        return account

    def _note_arrivals(self, account: _Account, index: int, now_s: float, ended_s: Sequence[float]) -> None:
        joint = self.graph.joints[index]
        own = joint.own
        arrivals_s = [max(ended_s[earlier] for earlier in before) for _, before in own]
        waits_s = {each: 0.0 if self._n_active[each] else now_s - self._idle_since_s[each] for each, _ in own}
        last = own[_first_of_longest(arrivals_s, TIE * now_s)][0]
        account.arrivals.append(_Arrival(last=last, waits_s=waits_s, n_ranks=joint.n_ranks))

    def _mean_s(self, arrival: _Arrival) -> float:
        waited_s = fsum(count * wait_s for count, wait_s in zip(arrival.n_ranks, arrival.waits_s.values(), strict=True))
        return waited_s / (sum(arrival.n_ranks) if self._is_pipeline else self._n_ranks)

    def _longest(self, seconds: Sequence[float], classes: Sequence[int], now_s: float) -> _Arrival:
        """Return the first class of those with the longest time as the last, for which the others wait as much as theirs are shorter."""
        last = classes[_first_of_longest([seconds[each] for each in classes], TIE * now_s)]
        n_ranks = [self.program.rank_classes[each].n_ranks for each in classes]
        return _Arrival(last=last, waits_s={each: seconds[last] - seconds[each] for each in classes}, n_ranks=n_ranks)


def _first_of_longest(seconds: Sequence[float], tie_s: float) -> int:
    """Return the place of the first of those that are as long as the longest, whatever sums in another order are rounded to."""
    longest_s = max(seconds)
    return next(place for place, each in enumerate(seconds) if each >= longest_s - tie_s)


def _is_between_stages(program: Program, task: Task) -> bool:
    return isinstance(task.action, Transfer) and len({program.rank_classes[lane.rank_class].stage for lane in task.lanes}) > 1
