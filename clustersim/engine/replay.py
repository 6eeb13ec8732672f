"""Replay the steps of a Program; only contended tasks pass through simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, Protocol

from clustersim.engine.alone import Carried
from clustersim.engine.clock import Clock
from clustersim.engine.expanded import Stepper
from clustersim.engine.pace import StepVariation
from clustersim.engine.precedence import deadlock_message
from clustersim.engine.prepared import UNKNOWN_S, Prepared, ReplayStep, pace_of
from clustersim.engine.recording import Record, patterns_of
from clustersim.engine.traffic import Traffic, moved_by
from clustersim.engine.world import SETTLED, Signal
from clustersim.errors import DeadlockError
from clustersim.program.program import Program
from clustersim.program.tasks import Compute
from clustersim.progress import advanced
from clustersim.trace.columns import Spans
from clustersim.trace.timeline import Span

TOLD_EVERY: Final = 256
"""Number of events between two reports of progress."""


class Watch(Protocol):
    """Observer of the rank classes that end a step."""

    def ended(self, classes: Sequence[int], step: int) -> None:
        """Take notice that rank classes have ended a step, which may begin others."""
        ...

    def closed(self, step: ReplayStep) -> None:
        """Take notice that all rank classes have ended a step."""
        ...


@dataclass(slots=True, kw_only=True)
class Replay:
    """Runs every task when the tasks that it waits for have ended and its rank classes have begun the step.

    An uncontended task has a known duration. Its end is computed with its start, ahead of the clock and without an event, and the tasks
    that wait for it go on at once. A contended task waits until the clock reaches its start, since the other traffic decides its end.
    """

    prepared: Prepared
    clock: Clock
    contended: frozenset[int]
    """Tasks through the network, where they share links with other traffic."""
    records: bool = True
    """Whether finished steps are stored."""
    jitter: StepVariation | None = None
    watch: Watch | None = None
    """Observer, where rank classes begin their steps one by one."""
    done: list[ReplayStep] = field(default_factory=list[ReplayStep])
    """Finished steps that are stored."""
    _takes_s: list[float] = field(init=False)
    _open: dict[int, ReplayStep] = field(default_factory=dict[int, ReplayStep])
    _over: Signal | None = None
    _n_started: int = 0
    _n_done: int = 0
    """Steps that have ended."""
    _n_pending: int = 0
    """Events that this replay waits for."""
    _n_fired: int = 0
    _halted_s: float = inf

    def __post_init__(self) -> None:
        """Look up the duration of every task once."""
        self._takes_s = self.prepared.durations_s(self.prepared.alone_s, self.contended)

    @property
    def program(self) -> Program:
        """The program that is replayed."""
        return self.prepared.program

    @property
    def traffic(self) -> Traffic:
        """The flows of the program."""
        return self.prepared.traffic

    @property
    def classes(self) -> tuple[int, ...]:
        """Rank classes that have tasks."""
        return tuple(rank_class for rank_class, count in enumerate(self.prepared.graph.n_tasks) if count)

    @property
    def n_tasks(self) -> int:
        """Number of tasks that have ended, in all steps."""
        until_s = min(self.clock.now_s, self._halted_s)
        under_way = sum(0.0 <= ended_s <= until_s for step in self._open.values() for ended_s in step.ended_s)
        return self._n_done * len(self._takes_s) + under_way

    @property
    def start_s(self) -> Sequence[float]:
        """Start of every task of a replay of one step, in seconds."""
        return self.done[0].start_s

    @property
    def ended_s(self) -> Sequence[float]:
        """End of every task of a replay of one step, in seconds."""
        return self.done[0].ended_s

    def run(self) -> Replay:
        """Replay one step to its end.

        Raises
        ------
        DeadlockError
            When tasks are left that wait for each other; it names the first of them and the tasks they wait for.
        """
        self._start()
        self.clock.world.run()
        return self

    def start(self) -> Signal:
        """Start a step of all rank classes now, and return what fires at its end.

        Where all tasks that are left wait for each other, the world raises a ``DeadlockError`` now or later.
        """
        self._over = self.clock.world.signal()
        self._start()
        return self._over

    def _start(self) -> None:
        """Start a step of all rank classes now."""
        step = self._opened(self._n_started, self.prepared.n_after, by_class=False)
        self._n_started += 1
        self.hold()
        self._go(step, list(self.prepared.sources))
        if not self._takes_s:
            self._whole(step)
        self.release()

    def enter(self, begun: Iterable[tuple[int, int]]) -> None:
        """Let rank classes begin steps now, given as pairs of both."""
        ready: dict[int, list[int]] = {}
        now_s, graph = self.clock.now_s, self.prepared.graph
        for rank_class, number in begun:
            step = self._open.get(number) or self._opened(number, graph.n_waits, by_class=True)
            for index in graph.gates[rank_class]:
                step.start_s[index] = max(now_s, step.start_s[index])
                step.waiting[index] -= 1
                if step.waiting[index] == 0:
                    ready.setdefault(number, []).append(index)
        self.hold()
        for number in sorted(ready):
            self._go(self._open[number], sorted(ready[number]))
        self.release()

    def hold(self) -> None:
        """Count an event that this replay waits for."""
        self._n_pending += 1

    def release(self) -> None:
        """Count such an event as fired; where it was the last, and tasks are left, look again when all of this time has happened."""
        self._n_pending -= 1
        if self._n_pending == 0 and self._open:
            world = self.clock.world
            world.when(world.after(0.0, SETTLED), self._check)

    def halt(self) -> None:
        """Stop here; tasks in progress are recorded as far as they have come."""
        self._halted_s = self.clock.now_s

    @property
    def is_open(self) -> bool:
        """Whether a step has begun and not ended."""
        return bool(self._open)

    def in_progress(self) -> int | None:
        """Return a task that is in progress, rather one that is no pass; None where there is none."""
        now_s = self.clock.now_s
        found = [
            index
            for step in self._open.values()
            for index, ended_s in enumerate(step.ended_s)
            if step.start_s[index] <= now_s and (index in step.running or now_s < ended_s)
        ]
        return min(found, key=lambda index: (isinstance(self.program.tasks[index].action, Compute), index), default=None)

    def _check(self) -> None:
        """Raise an error where tasks are left, and no event is pending that could start them."""
        if self._open and not self._n_pending:
            step = self._open[min(self._open)]
            raise DeadlockError(deadlock_message(self.program, [ended_s >= 0.0 for ended_s in step.ended_s], self.traffic.job))

    def end_s(self) -> float:
        """Return the end of the last task of all steps that have ended, in seconds."""
        return max((max(step.ended_s, default=0.0) for step in self.done), default=0.0)

    def priced(self, until_s: float) -> Iterator[tuple[Carried, float]]:
        """Yield the traffic of each template that went through no network, and its number of executions.

        A task in progress at ``until_s`` counts as a fraction of one.
        """
        templates = self.prepared.templates.of_task
        times: dict[int, float] = {}
        if self._n_done:
            counts = Counter(templates)
            counts.subtract(templates[index] for index in self.contended)
            times = {template: float(self._n_done * count) for template, count in counts.items()}
        for step in self._open.values():
            for index, ended_s in enumerate(step.ended_s):
                start_s = step.start_s[index]
                if ended_s >= 0.0 and start_s < until_s and index not in self.contended:
                    share = min(1.0, (until_s - start_s) / (ended_s - start_s)) if ended_s > start_s else 1.0
                    times[templates[index]] = times.get(templates[index], 0.0) + share
        for template in sorted(times):
            if times[template]:
                yield self.prepared.carried[template], times[template]

    def spans(self) -> Spans:
        """Return the spans of all steps; of a run that was halted, tasks in progress as far as they have come."""
        record, templates = Record(tasks=self.program.tasks), self.prepared.templates.of_task
        for step in self.done:
            prices = [step.met.get(index, step.price[template]) for index, template in enumerate(templates)]
            record.note_all(templates, prices, step.start_s, step.ended_s, step.number)
        for step in self._open.values():
            self._note_in_progress(record, step)
        return record.spans()

    def shown(self) -> list[Span]:
        """Return the first span of each task of a replay of one step, without its times and micro-batch."""
        tasks, templates, met, price = self.program.tasks, self.prepared.templates, self.done[0].met, self.prepared.price
        uncontended = [patterns_of(task, price[template])[0] for template, task in enumerate(templates.tasks)]
        return [
            patterns_of(tasks[index], met[index])[0] if index in met else uncontended[template]
            for index, template in enumerate(templates.of_task)
        ]

    def _note_in_progress(self, record: Record, step: ReplayStep) -> None:
        """Write down the tasks of a step that had not ended when the run was halted."""
        until_s, templates = self._halted_s, self.prepared.templates.of_task
        for index, ended_s in enumerate(step.ended_s):
            start_s, price = step.start_s[index], step.met.get(index, step.price[templates[index]])
            if 0.0 <= ended_s <= until_s:
                record.note(index, templates[index], price, start_s=start_s, end_s=ended_s, step=step.number)
            elif (ended_s >= 0.0 or index in step.running) and start_s < until_s < inf:
                if price is not None and price.duration_s > 0.0:
                    price = price.part(min(1.0, (until_s - start_s) / price.duration_s))
                record.note(index, templates[index], price, start_s=start_s, end_s=until_s, step=step.number, is_whole=False)

    def _opened(self, number: int, n_waits: Sequence[int], *, by_class: bool) -> ReplayStep:
        prepared, n_tasks = self.prepared, len(self._takes_s)
        n_classes, takes_s, price = len(self.program.rank_classes), self._takes_s, prepared.price
        factors = None
        if self.jitter is not None:
            factors = [self.jitter.factor(rank_class, number) for rank_class in range(n_classes)]
            price, alone_s = prepared.at(factors)
            takes_s = prepared.durations_s(alone_s, self.contended)
        now_s = self.clock.now_s
        step = self._open[number] = ReplayStep(
            number=number,
            waiting=list(n_waits),
            start_s=[now_s] * n_tasks,
            ended_s=[UNKNOWN_S] * n_tasks,
            takes_s=takes_s,
            price=price,
            factors=factors,
            n_left=n_tasks,
            left=list(prepared.graph.n_tasks) if by_class else [],
            last=[-1] * n_classes if by_class else [],
            n_in_step=len(self.classes) if by_class else 0,
        )
        return step

    def _go(self, step: ReplayStep, ready: list[int]) -> None:
        """Compute the ends of all tasks with a known duration, and schedule the others on the clock."""
        start_s, end_s, takes_s, waiting, followers = step.start_s, step.ended_s, step.takes_s, step.waiting, self.prepared.graph.followers
        n_scheduled = 0
        for index in ready:
            taken_s = takes_s[index]
            if taken_s >= 0.0:
                end_s[index] = ended_s = start_s[index] + taken_s
            else:
                ended_s = end_s[index]
                if ended_s < 0.0:
                    self._schedule(step, index)
                    n_scheduled += 1
                    continue
            for follower in followers[index]:
                if ended_s > start_s[follower]:  # noqa: PLR1730 - max would be called for every dependency
                    start_s[follower] = ended_s
                left = waiting[follower]
                if left == 1:
                    # The loop comes to it.
                    ready.append(follower)
                else:
                    waiting[follower] = left - 1
        self._note_ended(step, ready, len(ready) - n_scheduled)

    def _at(self, moment_s: float, action: Callable[[], None]) -> None:
        """Have the clock act at a moment that is now or later."""
        self.hold()
        self.clock.after(moment_s - self.clock.now_s, action)

    def _schedule(self, step: ReplayStep, index: int) -> None:
        """Put a contended task on the network at its start."""
        action, start_s = self.program.tasks[index].action, step.start_s[index]
        if isinstance(action, Compute):
            self._at(start_s, lambda: self._begin(step, index, action))
            return
        self.hold()
        step.running.add(index)
        (moved,) = moved_by(action)
        self.clock.perform(self.traffic.phases(moved), lambda: self._ended(step, index), delay_s=start_s - self.clock.now_s)

    def _begin(self, step: ReplayStep, index: int, action: Compute) -> None:
        """Begin a contended pass, item by item."""
        step.running.add(index)
        rank_class, price = self.program.tasks[index].lanes[0].rank_class, step.price[self.prepared.templates.of_task[index]]
        assert price is not None
        factor = pace_of(action, step.factors[rank_class]) if step.factors else 1.0
        stepper = Stepper(price=price, clock=self.clock, factor=factor)

        def stepped() -> None:
            step.met[index] = stepper.met()
            self._ended(step, index)

        stepper.run(stepped)

    def _ended(self, step: ReplayStep, index: int) -> None:
        """End a contended task now, and start the tasks that waited for it."""
        step.running.discard(index)
        self._n_fired += 1
        if self._n_fired % TOLD_EVERY == 0:
            advanced(len(self._takes_s) - step.n_left, len(self._takes_s))
        step.ended_s[index] = self.clock.now_s
        self._go(step, [index])
        self.release()

    def _note_ended(self, step: ReplayStep, reached: Sequence[int], n_ended: int) -> None:
        """Close the step when the ends of all its tasks are known, and notify the observer of the end of each rank class."""
        if not n_ended:
            return
        step.n_left -= n_ended
        if step.left:
            for last, classes in self._through(step, reached).items():
                self._at(step.ended_s[last], lambda classes=classes: self._classes_ended(step, classes))
        elif step.n_left == 0:
            self._whole(step)

    def _through(self, step: ReplayStep, reached: Sequence[int]) -> Mapping[int, list[int]]:
        """Return the rank classes that have no task left, by the task of theirs that ends last."""
        left, last, ended_s, classes = step.left, step.last, step.ended_s, self.prepared.graph.classes
        through: dict[int, list[int]] = {}
        for index in reached:
            if ended_s[index] < 0.0:
                continue
            for rank_class in classes[index]:
                if last[rank_class] < 0 or ended_s[index] >= ended_s[last[rank_class]]:
                    last[rank_class] = index
                left[rank_class] -= 1
                if left[rank_class] == 0:
                    through.setdefault(last[rank_class], []).append(rank_class)
        return through

    def _classes_ended(self, step: ReplayStep, classes: Sequence[int]) -> None:
        assert self.watch is not None
        step.n_in_step -= len(classes)
        if step.n_in_step == 0:
            self._close(step)
            self.watch.closed(step)
        self.watch.ended(classes, step.number)
        self.release()

    def _whole(self, step: ReplayStep) -> None:
        """Close a step with known ends: at the last of them, if a process waits for it."""
        if self._over is None:
            self._close(step)
        else:
            self._at(max(step.ended_s, default=self.clock.now_s), lambda: self._step_ended(step))

    def _step_ended(self, step: ReplayStep) -> None:
        self._close(step)
        assert self._over is not None
        self._over.fire()
        self.release()

    def _close(self, step: ReplayStep) -> None:
        del self._open[step.number]
        self._n_done += 1
        if self.watch is not None:
            step.pack()
        if self.records:
            self.done.append(step)
