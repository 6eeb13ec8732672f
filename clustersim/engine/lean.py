"""Replay one step of a Program; only what other traffic can meet passes through simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nextafter
from typing import Final

from clustersim.engine.alone import alone
from clustersim.engine.clock import Clock
from clustersim.engine.contention import deadlock_message
from clustersim.engine.crowding import Crowding
from clustersim.engine.expanded import Stepper
from clustersim.engine.pricing import Price, Pricing, price_of
from clustersim.engine.recording import Record, patterns_of
from clustersim.engine.traffic import Moved, Traffic, moved_by
from clustersim.engine.uses import Uses, uses_of
from clustersim.errors import DeadlockError
from clustersim.network.rates import State
from clustersim.program.program import Program
from clustersim.program.tasks import Compute
from clustersim.progress import advanced
from clustersim.trace.columns import Spans
from clustersim.trace.timeline import Span

TOLD_EVERY: Final = 256
"""Tasks after which those who watch are told how far the replay has come."""
_UNKNOWN: Final = -1.0
"""How long something takes that shares links with others."""


@dataclass(slots=True, kw_only=True)
class Tracks:
    """A program made ready to be replayed: who waits for whom, and what everything takes by itself."""

    program: Program
    traffic: Traffic
    prices: Sequence[Pricing]
    """Of the passes of each rank class."""
    uses: Uses = field(init=False)
    followers: list[list[int]] = field(init=False)
    n_waits: list[int] = field(init=False)
    """For how many tasks each waits."""
    takes_s: list[float] = field(init=False)
    """How long each takes."""
    price: list[Price | None] = field(init=False)
    """Of each use."""
    carried: list[Mapping[State, float]] = field(init=False)
    """What each use puts on links."""

    def __post_init__(self) -> None:
        """Turn the dependencies round, and price each use."""
        tasks = self.program.tasks
        self.uses = uses_of(self.program)
        self.followers = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for earlier in task.after:
                self.followers[earlier].append(index)
        self.n_waits = [len(task.after) for task in tasks]
        self.price, self.carried, takes_s = [], [], list[float]()
        known: dict[int, tuple[float, Mapping[State, float]]] = {}
        for task in self.uses.tasks:
            price = None
            if isinstance(task.action, Compute):
                price = price_of(self.prices, task)
                seconds, carried = price.duration_s, price.carried
            else:
                if id(task.action) not in known:
                    known[id(task.action)] = self._flown(*moved_by(task.action))
                seconds, carried = known[id(task.action)]
            self.price.append(price)
            self.carried.append(carried)
            takes_s.append(seconds)
        self.takes_s = [takes_s[use] for use in self.uses.of_task]

    def _flown(self, moved: Moved) -> tuple[float, Mapping[State, float]]:
        by_itself = alone(self.traffic.flights(moved), self.traffic.network)
        carried: dict[State, float] = {}
        for state, seconds in by_itself.carried:
            carried[state] = carried.get(state, 0.0) + seconds
        return by_itself.duration_s, carried


@dataclass(slots=True, kw_only=True)
class LeanReplay:
    """Runs every task of one step when those it waits for have ended, and writes down when.

    What meets nobody on its links takes as long as alone. When it ends is known as soon as it is known when it starts, and those that
    wait for it are told at once, ahead of the clock. Tasks that others may meet wait for the clock to come to their start.
    """

    tracks: Tracks
    clock: Clock
    crowding: Crowding
    """Which tasks can meet each other."""
    crowded: frozenset[int]
    """Tasks that are on the network, where they meet whoever is there."""
    _over: Callable[[], None] | None = None
    _waiting: list[int] = field(init=False)
    """For how many tasks each still waits."""
    start_s: list[float] = field(init=False)
    """When each starts, as far as is known."""
    ended_s: list[float] = field(init=False)
    _takes_s: list[float] = field(init=False)
    """How long each takes, or ``_UNKNOWN``."""
    _met: dict[int, Price] = field(default_factory=dict[int, Price])
    """Of passes that were replayed item by item."""
    _n_ended: int = 0
    _n_waiting: int = 0
    """Tasks that the clock has been told of."""

    def __post_init__(self) -> None:
        """Begin with nothing."""
        if self.clock.log is None:
            self.clock.log = []
        tracks = self.tracks
        self._waiting, self._takes_s = list(tracks.n_waits), list(tracks.takes_s)
        self.start_s, self.ended_s = [0.0] * len(self._waiting), [_UNKNOWN] * len(self._waiting)
        for index in self.crowded:
            self._takes_s[index] = _UNKNOWN

    @property
    def program(self) -> Program:
        """What is replayed."""
        return self.tracks.program

    @property
    def traffic(self) -> Traffic:
        """What it puts on links."""
        return self.tracks.traffic

    def start(self, over: Callable[[], None] | None = None) -> None:
        """Start the step, and call ``over`` when nothing is left to do.

        Raises
        ------
        DeadlockError
            Now or later, when all tasks that are left wait for each other.
        """
        self._over = over
        self._go([index for index, count in enumerate(self._waiting) if count == 0][::-1])

    def again(self, crowded: frozenset[int]) -> LeanReplay:
        """Return the same replay with other tasks on the network, which has not begun."""
        clock = self.clock
        if self.crowded:
            clock = Clock(network=clock.network.emptied(), n_events=clock.n_events)
        return LeanReplay(tracks=self.tracks, clock=clock, crowding=self.crowding, crowded=crowded)

    def run(self) -> LeanReplay:
        """Replay the step to its end, with nothing else on the network."""
        self.start()
        self.clock.environment.run()
        return self

    @property
    def n_tasks(self) -> int:
        """Return how many tasks have ended."""
        return self._n_ended

    def end_s(self) -> float:
        """Return when the last task ended."""
        return max(self.ended_s, default=0.0)

    def priced(self, until_s: float) -> Iterator[tuple[Mapping[State, float], float]]:
        """Yield what each use that met nobody put on links, and how often it did."""
        del until_s
        tracks = self.tracks
        counts = Counter(tracks.uses.of_task)
        counts.subtract(tracks.uses.of_task[index] for index in self.crowded)
        yield from ((carried, float(counts[use])) for use, carried in enumerate(tracks.carried) if carried and counts[use])

    def spans(self) -> Spans:
        """Return what happened."""
        price, of_task, met = self.tracks.price, self.tracks.uses.of_task, self._met
        record = Record(tasks=self.program.tasks)
        record.note_all(of_task, [met.get(index, price[use]) for index, use in enumerate(of_task)], self.start_s, self.ended_s)
        return record.spans()

    def shown(self) -> list[Span]:
        """Return what each task shows on the first of its lanes, without its times and micro-batch."""
        price, uses, met = self.tracks.price, self.tracks.uses, self._met
        alone = [patterns_of(task, price[use])[0] for use, task in enumerate(uses.tasks)]
        tasks = self.program.tasks
        return [patterns_of(tasks[index], met[index])[0] if index in met else alone[use] for index, use in enumerate(uses.of_task)]

    def _go(self, ready: list[int]) -> None:
        """End all tasks whose end is known, and have the clock begin the others."""
        start_s, end_s, takes_s, waiting, followers = self.start_s, self.ended_s, self._takes_s, self._waiting, self.tracks.followers
        n_ended = 0
        while ready:
            index = ready.pop()
            taken_s = takes_s[index]
            if taken_s < 0.0:
                self._wait(index)
                continue
            n_ended += 1
            ended_s = end_s[index] = start_s[index] + taken_s
            for follower in followers[index]:
                if ended_s > start_s[follower]:  # noqa: PLR1730 - max would be called for every dependency
                    start_s[follower] = ended_s
                left = waiting[follower] = waiting[follower] - 1
                if not left:
                    ready.append(follower)
        self._n_ended += n_ended
        if self._n_waiting == 0:
            self._close()

    def _close(self) -> None:
        if self._n_ended < len(self.ended_s):
            raise DeadlockError(deadlock_message(self.program, [ended_s >= 0.0 for ended_s in self.ended_s]))
        if self._over is not None:
            # What goes on beside the program goes on until its last task has ended.
            self.clock.after(max(0.0, self.end_s() - self.clock.now_s), self._over)

    def _wait(self, index: int) -> None:
        self._n_waiting += 1
        now_s, start_s = self.clock.now_s, self.start_s[index]
        delay_s = start_s - now_s
        # A sum must not round to a moment at which what ends then is still on the links.
        while now_s + delay_s < start_s:
            delay_s = nextafter(delay_s, start_s)
        self.clock.after(delay_s, lambda: self._begin(index))

    def _begin(self, index: int) -> None:
        task, self.start_s[index] = self.program.tasks[index], self.clock.now_s
        if not isinstance(task.action, Compute):
            (moved,) = moved_by(task.action)
            self.clock.perform(self.traffic.flights(moved), lambda: self._ended(index))
            return
        price = price_of(self.tracks.prices, task)
        pricing = self.tracks.prices[task.lanes[0].rank_class]
        stepper = Stepper(action=task.action, pricing=pricing, traffic=self.traffic, clock=self.clock)

        def stepped() -> None:
            self._met[index] = stepper.met(price)
            self._ended(index)

        stepper.run(stepped)

    def _ended(self, index: int) -> None:
        self._n_waiting -= 1
        self._n_ended += 1
        if self._n_ended % TOLD_EVERY == 0:
            advanced(self._n_ended, len(self.ended_s))
        ended_s = self.ended_s[index] = self.clock.now_s
        ready: list[int] = []
        for follower in self.tracks.followers[index]:
            self.start_s[follower] = max(ended_s, self.start_s[follower])
            self._waiting[follower] -= 1
            if self._waiting[follower] == 0:
                ready.append(follower)
        self._go(ready[::-1])


def settled(replay: LeanReplay) -> LeanReplay:
    """Return a replay with nothing else on the network that has come to its end, and in which nothing met that is not on the network.

    Everything is taken to be alone first. If two that share a link were never in progress at the same time, that is how it is: what is in
    flight at the first moment at which it were otherwise would have met. Otherwise those go on the network, and others that
    they then meet; at the last all that could.
    """
    met = replay.crowding.meetings(replay.run().start_s, replay.ended_s)
    if not met:
        return replay
    replay = replay.again(met).run()
    if replay.crowding.meetings(replay.start_s, replay.ended_s) <= met:
        return replay
    return replay.again(replay.crowding.all()).run()
