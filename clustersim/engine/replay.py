"""Replay a Program: one step, or many of which several may be in progress at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from clustersim.engine.clock import Clock
from clustersim.engine.contention import deadlock_message
from clustersim.engine.expanded import Stepper
from clustersim.engine.graph import Graph, graph_of
from clustersim.engine.pace import Jitter
from clustersim.engine.pricing import Price, Pricing, price_of
from clustersim.engine.recording import Record
from clustersim.engine.traffic import Moved, Traffic
from clustersim.engine.uses import Uses, uses_of
from clustersim.engine.waiting import Waiting
from clustersim.errors import DeadlockError
from clustersim.network.rates import State
from clustersim.program.program import Program
from clustersim.program.tasks import Communicate, Compute, HostCopy, HostUpdate, Task, Transfer
from clustersim.trace.columns import Spans


@dataclass(slots=True, kw_only=True)
class _Running:
    """A task in progress."""

    start_s: float
    price: Price | None = None
    """Of a pass; what it costs on idle links, where it is replayed item by item."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step in progress."""

    number: int
    waiting: list[int]
    """For each task, for how many tasks and rank classes it still waits."""
    ended_s: list[float]
    """When each task ended; infinite while it has not."""
    n_left: int
    left: list[int]
    """Tasks of each rank class that have not ended."""
    factors: list[float]
    """How many times as long as usual each rank class computes."""
    running: dict[int, _Running] = field(default_factory=dict[int, _Running])
    """Tasks in progress."""


class Watch(Protocol):
    """What happens in a replay of many steps, for whoever governs them."""

    def ended(self, classes: Sequence[int], step: int) -> None:
        """Take notice that rank classes have ended a step, which may begin others."""
        ...

    def waited(self, rank_class: int, step: int, seconds: float) -> None:
        """Take notice that ranks had to wait for those of one class, in a step that has ended; see ``Waiting``."""
        ...


@dataclass(slots=True)
class Replay:
    """Runs every task when those it waits for have ended and its rank classes have begun the step, and writes down when."""

    program: Program
    traffic: Traffic
    prices: Sequence[Pricing]
    """Of the passes of each rank class."""
    clock: Clock
    contended: frozenset[int]
    """Passes to be replayed item by item."""
    records: bool = True
    """Whether spans are kept."""
    n_tasks: int = field(default=0, init=False)
    """Tasks that have ended, in all steps."""
    jitter: Jitter | None = None
    watch: Watch | None = None
    _over: Callable[[], None] = lambda: None
    _graph: Graph = field(init=False)
    _uses: Uses = field(init=False)
    record: Record = field(init=False)
    """What has happened so far."""
    _steps: dict[int, _Step] = field(default_factory=dict[int, _Step])
    _n_started: int = 0
    _n_running: int = 0
    _halted: bool = False
    _priced: dict[int, int] = field(default_factory=dict[int, int])
    """How often each pass ended that was not on the network."""
    waiting: Waiting = field(init=False)
    """Of the rank classes for each other; followed where there is a watch."""

    def __post_init__(self) -> None:
        """Turn the dependencies round, once for all steps."""
        self._graph, self._uses, self.record = graph_of(self.program), uses_of(self.program), Record(tasks=self.program.tasks)
        self.waiting = Waiting(program=self.program, graph=self._graph)

    @property
    def classes(self) -> tuple[int, ...]:
        """Rank classes that have tasks."""
        return tuple(rank_class for rank_class, count in enumerate(self._graph.n_tasks) if count)

    def run(self) -> float:
        """Replay one step to the end and return its time in seconds.

        Raises
        ------
        DeadlockError
            When tasks are left that wait for each other; it names the first of them and what they wait for.
        """
        self.start(lambda: None)
        self.clock.environment.run()
        return self.end_s()

    def start(self, over: Callable[[], None]) -> None:
        """Start a step of all classes, the first or another, and call ``over`` when nothing is left to do.

        Raises
        ------
        DeadlockError
            Now or later, when all tasks that are left wait for each other.
        """
        self.when_over(over)
        number = self._n_started
        self._n_started += 1
        self.enter([(rank_class, number) for rank_class in self.classes])

    def when_over(self, over: Callable[[], None]) -> None:
        """Have ``over`` called when nothing is left to do."""
        self._over = over

    def enter(self, begun: Iterable[tuple[int, int]]) -> None:
        """Let rank classes begin steps, given as pairs of both; tasks start in the order of the program."""
        ready: list[tuple[int, int]] = []
        for rank_class, number in begun:
            step = self._steps.get(number) or self._open(number)
            if self.jitter is not None:
                step.factors[rank_class] = self.jitter.factor(rank_class, number)
            for index in self._graph.gates[rank_class]:
                step.waiting[index] -= 1
                if step.waiting[index] == 0:
                    ready.append((number, index))
        ready.sort()
        # Held until all have been started, of which some may end at once and start those that wait for them.
        self.hold()
        for number, index in ready:
            self._start(self._steps[number], index)
        self.release()

    def hold(self) -> None:
        """Let tasks wait for something that is not in the program."""
        self._n_running += 1

    def release(self) -> None:
        """Take back a ``hold``.

        Raises
        ------
        DeadlockError
            When nothing is in progress and tasks are left.
        """
        self._n_running -= 1
        if self._n_running == 0 and not self._halted:
            self.check()
            self._over()

    def halt(self) -> None:
        """Stop here; passes and communication in progress are recorded as far as they have come."""
        self._halted = True
        now_s = self.clock.now_s
        for step, index, running in self._in_progress():
            passed_s, price = now_s - running.start_s, running.price
            if price is not None and price.duration_s > 0.0:
                price = price.part(min(1.0, passed_s / price.duration_s))
            if passed_s > 0.0 and self.records:
                use = self._uses.of_task[index]
                self.record.note(index, use, price, start_s=running.start_s, end_s=now_s, step=step.number, is_whole=False)

    def end_s(self) -> float:
        """Return when the last task ended.

        Raises
        ------
        DeadlockError
            When tasks are left.
        """
        self.check()
        return max(self.record.end_s, default=0.0)

    def spans(self) -> Spans:
        """Return what happened."""
        return self.record.spans()

    def priced(self, until_s: float) -> Iterator[tuple[Mapping[State, float], float]]:
        """Yield what passes put on links that were not on the network, and how often each was made; a fraction where one goes on."""
        times: dict[int, float] = {index: float(count) for index, count in self._priced.items()}
        for _, index, running in self._in_progress():
            if running.price is not None and index not in self.contended:
                share = (until_s - running.start_s) / running.price.duration_s if running.price.duration_s > 0.0 else 0.0
                times[index] = times.get(index, 0.0) + share
        for index in sorted(times):
            yield price_of(self.prices, self.program.tasks[index]).carried, times[index]

    def _in_progress(self) -> Iterator[tuple[_Step, int, _Running]]:
        for step in self._steps.values():
            for index, running in step.running.items():
                yield step, index, running

    def _open(self, number: int) -> _Step:
        graph = self._graph
        step = self._steps[number] = _Step(
            number=number,
            waiting=list(graph.n_waits),
            ended_s=[inf] * len(graph.n_waits),
            n_left=len(graph.n_waits),
            left=list(graph.n_tasks),
            factors=[1.0] * len(graph.n_tasks),
        )
        return step

    def check(self) -> None:
        """Find tasks that will never start.

        Raises
        ------
        DeadlockError
            When there are any.
        """
        if self._steps and not self._halted:
            step = self._steps[min(self._steps)]
            raise DeadlockError(deadlock_message(self.program, [ended_s < inf for ended_s in step.ended_s]))

    def _start(self, step: _Step, index: int) -> None:
        self._n_running += 1
        task = self.program.tasks[index]
        running = step.running[index] = _Running(start_s=self.clock.now_s)
        if self.watch is not None:
            self.waiting.started(step.number, index, running.start_s, step.ended_s)
        match task.action:
            case Compute():
                self._compute(step, index, task, running)
            case Communicate():
                self._fly(step, index, task.action.collective, running)
            case Transfer() | HostCopy() | HostUpdate():
                self._fly(step, index, task.action, running)

    def _compute(self, step: _Step, index: int, task: Task, running: _Running) -> None:
        action, rank_class = task.action, task.lanes[0].rank_class
        assert isinstance(action, Compute)
        # The loader is the host's, and keeps its pace.
        pricing, factor = self.prices[rank_class], 1.0 if action.phase == "load" else step.factors[rank_class]
        price = running.price = price_of(self.prices, task).at(factor)
        if index in self.contended:
            stepper = Stepper(action=action, pricing=pricing, traffic=self.traffic, clock=self.clock, factor=factor)

            def stepped() -> None:
                self._end(step, index, running, stepper.met(price))

            stepper.run(stepped)
            return

        def passed() -> None:
            self._priced[index] = self._priced.get(index, 0) + 1
            self._end(step, index, running, price)

        self.clock.after(price.duration_s, passed)

    def _fly(self, step: _Step, index: int, moved: Moved, running: _Running) -> None:
        self.clock.perform(self.traffic.flights(moved), lambda: self._end(step, index, running, None))

    def _end(self, step: _Step, index: int, running: _Running, price: Price | None) -> None:
        graph, now_s = self._graph, self.clock.now_s
        del step.running[index]
        if self.records:
            self.record.note(index, self._uses.of_task[index], price, start_s=running.start_s, end_s=now_s, step=step.number)
        step.ended_s[index] = now_s
        step.n_left -= 1
        self.n_tasks += 1
        if step.n_left == 0:
            del self._steps[step.number]
        if self.watch is not None:
            self.waiting.ended(step.number, index, running.start_s, now_s)
        for follower in graph.followers[index]:
            step.waiting[follower] -= 1
            if step.waiting[follower] == 0:
                self._start(step, follower)
        if self.watch is not None:
            for charge in self.waiting.charges(step.number, now_s) if step.n_left == 0 else ():
                self.watch.waited(charge.rank_class, step.number, charge.seconds)
            self._note_ended(self.watch, step, graph.classes[index])
        self.release()

    def _note_ended(self, watch: Watch, step: _Step, classes: Sequence[int]) -> None:
        through: list[int] = []
        for rank_class in classes:
            step.left[rank_class] -= 1
            if step.left[rank_class] == 0:
                through.append(rank_class)
        if through:
            watch.ended(through, step.number)
