"""Replay many steps of a Program, on machines whose ranks differ, together or each at its own pace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from clustersim.engine.cycle import Cycle, carried_again, cycle_of
from clustersim.engine.jobs import Job
from clustersim.engine.pace import StepVariation
from clustersim.engine.policies import Governor, PacePolicy, Synchronous
from clustersim.engine.prepared import ReplayStep
from clustersim.engine.repetition import repeating
from clustersim.engine.replay import Replay
from clustersim.engine.simulate import Machine, PreparedJobs, Rolling, prepare
from clustersim.engine.waiting import Waiting
from clustersim.engine.world import SETTLED, Process, Signal, World
from clustersim.program.program import Background, Program
from clustersim.program.tasks import Collective
from clustersim.trace.columns import SpanColumns, Spans
from clustersim.trace.step_log import ClassSteps, StepLog
from clustersim.trace.timeline import Timeline

_N_FEW: Final = 6
"""Steps replayed to detect repetition: two that may differ, three that are equal, and the last."""
_N_MANY: Final = 9
"""Steps from which on that is tried."""


def replay_steps(  # noqa: PLR0913 - what is replayed, how often and how, and what else goes on
    program: Program,
    machine: Machine,
    *,
    n_steps: int,
    jitter: StepVariation | None = None,
    policy: PacePolicy | None = None,
    background: Sequence[Background] = (),
    others: Sequence[Job] = (),
) -> tuple[Timeline, tuple[str, ...]]:
    """Replay a program many times and return the timeline, and the names of groups that lie unevenly in their domains.

    A rank class begins its next step as soon as all tasks with a lane on it have ended and the policy lets it; a task with lanes on
    several classes waits for all of them. The spans of all steps are kept. What was in progress when the run ended is there as far as it
    had come. The step time is the mean, and what links carried is that of a step on average. Where all steps go together and alike, a few
    are replayed, and the others are written down as a repetition of these if all happens again and again.

    Parameters
    ----------
    n_steps
        Steps of every class; of every class on average where each goes at its own pace; updates with backup workers.
    jitter
        How many times as long as usual the computation of a class takes in each step; always as long when left out.
    policy
        How classes keep together beyond what tasks make them; ``Synchronous`` when left out.
    background
        Loads on links, for as long as the run lasts.
    others
        Jobs on other ranks of the cluster. They repeat their steps until the run has ended, all their classes together.

    Raises
    ------
    DeadlockError
        When the program, or another job, waits for itself.
    """
    assert n_steps >= 1
    policy = policy or Synchronous()
    together = isinstance(policy, Synchronous)
    overlaps = n_steps > 1 or not together
    rolling = Rolling(jitter=jitter, operations=policy.operations, overlaps=overlaps)

    def run_of(n_steps: int) -> tuple[PreparedJobs, _Run]:
        jobs = prepare(program, machine, background, others=others, rolling=rolling)
        return jobs, _Run(replay=jobs.first, n_steps=n_steps)

    if machine.settings.passes.repeat and n_steps >= _N_MANY and jitter is None and together and not (background or others):
        jobs, run = run_of(_N_FEW)
        run.replay.clock.log = []
        run.go(policy, jobs)
        cycle = cycle_of(run.replay, _N_FEW, times=n_steps - _N_FEW)
        if cycle is not None:
            return _repeated(jobs, run, cycle), run.replay.traffic.uneven()
    jobs, run = run_of(n_steps)
    run.go(policy, jobs)
    spans = run.replay.spans()
    log = run.log(spans)
    return jobs.timeline(log.duration_s, log, spans=spans), run.replay.traffic.uneven()


def _repeated(jobs: PreparedJobs, run: _Run, cycle: Cycle) -> Timeline:
    """Return the timeline of a run with a repeated period."""
    spans = run.replay.spans()
    log = run.log(spans, cycle)
    timeline = jobs.timeline(log.duration_s, log, added=carried_again(run.replay, cycle), spans=spans)
    return repeating(timeline, cycle.repetition)


@dataclass(slots=True)
class _Run:
    """Results of a run, as updated by a policy."""

    replay: Replay
    n_steps: int = field(kw_only=True)
    classes: tuple[int, ...] = field(init=False)
    completed: list[int] = field(init=False)
    """Steps that each class has ended."""
    fewest: int = 0
    """Steps that the slowest class has ended."""
    _n_at: dict[int, int] = field(init=False)
    """Number of classes by the number of steps ended."""
    _ending: dict[int, Signal] = field(default_factory=dict[int, Signal])
    """End of the present step of each class."""
    _waiting: Waiting = field(init=False)
    _last_end_s: list[float] = field(init=False)
    _read: list[int] = field(init=False)
    """Version of the parameters that each class has read for its present step."""
    _read_before: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """The same of the workers of a class that read before others of it had ended their steps."""
    _dropped: list[int] = field(init=False)
    _waited_s: list[float] = field(init=False)
    _waited_in: dict[int, dict[int, float]] = field(default_factory=dict[int, dict[int, float]])
    """For each step, how long each class was waited for."""
    _pending: list[int] = field(default_factory=list[int])
    """Classes that begin after all ends of steps at this time are processed."""
    _version: int = 0
    _applied: int = 0
    _staleness: dict[int, int] = field(default_factory=dict[int, int])
    _max_lead: int = 0
    _ends_s: list[float] = field(default_factory=list[float])
    """Ends of common steps, in seconds."""

    def __post_init__(self) -> None:
        """Begin the account."""
        n_classes = len(self.replay.program.rank_classes)
        self.classes = self.replay.classes
        self._n_at = {0: len(self.classes)}
        self.completed, self._read, self._dropped = [0] * n_classes, [0] * n_classes, [0] * n_classes
        self._last_end_s, self._waited_s = [0.0] * n_classes, [0.0] * n_classes

    @property
    def n_ranks(self) -> Sequence[int]:
        """Ranks of each rank class."""
        return [rank_class.n_ranks for rank_class in self.replay.program.rank_classes]

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return self.replay.clock.now_s

    @property
    def _world(self) -> World:
        return self.replay.clock.world

    def go(self, policy: PacePolicy, jobs: PreparedJobs) -> None:
        """Advance time until the policy ends the run, or all classes have made their steps."""
        self.replay.watch = self
        last_step = self.n_steps - 1 if isinstance(policy, Synchronous) else None
        self._waiting = Waiting(program=self.replay.program, graph=self.replay.prepared.graph, last_step=last_step)
        training = self._train(policy.governor(self))
        jobs.go(training)
        training.close()
        self.replay.watch = None

    def _train(self, governor: Governor) -> Process:
        """Let each rank class make its steps."""
        workers = [governor.worker(each) for each in self.classes]
        try:
            yield self._world.all_of([self._world.process(worker) for worker in workers])
        finally:
            # A suspended worker refers to the run, and the run to what it waits for: neither would be freed without a collection.
            for worker in workers:
                worker.close()

    def log(self, spans: Spans, cycle: Cycle | None = None) -> StepLog:
        """Return the record of all steps, given their spans; with all repetitions of a cycle, in which classes kept together."""
        ends_s = [0.0, *self._ends_s] if self._ends_s else [0.0] * (1 + self.n_steps)
        assert len(ends_s) == 1 + self.n_steps
        step_times_s = [end_s - before_s for before_s, end_s in pairwise(ends_s)]
        columns = spans.columns
        idle_s = _idle(columns, len(self.completed), ends_s[-1])
        waited_s, waited_steps = list(self._waited_s), [0] * len(self.completed)
        for step, waited in self._waited_in.items():
            times = cycle.times if cycle is not None and step == cycle.step else 0
            waited_steps[_longest(waited)] += 1 + times
            for rank_class, seconds in waited.items():
                waited_s[rank_class] += times * seconds
        n_more, added_s = (0, 0.0) if cycle is None else (cycle.times, cycle.times * cycle.period_s)
        if cycle is not None:
            step_times_s[cycle.step : cycle.step] = [cycle.period_s] * cycle.times
            more_idle_s = _idle(columns, len(self.completed), ends_s[-1], within_s=(cycle.start_s, cycle.end_s))
            idle_s = [seconds + cycle.times * more_s for seconds, more_s in zip(idle_s, more_idle_s, strict=True)]
        return StepLog(
            n_steps=self.n_steps + n_more,
            step_times_s=tuple(step_times_s),
            duration_s=ends_s[-1] + added_s,
            classes=tuple(
                ClassSteps(
                    steps=self.completed[each] + (n_more if each in self.classes else 0),
                    last_end_s=self._last_end_s[each] + (added_s if each in self.classes else 0.0),
                    idle_s=idle_s[each],
                    waited_s=waited_s[each],
                    waited_steps=waited_steps[each],
                    dropped=self._dropped[each],
                )
                for each in range(len(self.completed))
            ),
            applied=self._applied + n_more * len(self.classes),
            staleness=tuple((age, count + n_more * len(self.classes)) for age, count in sorted(self._staleness.items())),
            max_lead=self._max_lead,
        )

    # What the replay tells.

    def ended(self, classes: Sequence[int], step: int) -> None:
        """Resume the workers of classes that have ended a step, one after the other."""
        for rank_class in classes:
            assert step == self.completed[rank_class]
            self._ending.pop(rank_class).fire()

    def _count(self, rank_class: int, step: int) -> None:
        self.completed[rank_class] = step + 1
        self._n_at[step] -= 1
        self._n_at[step + 1] = self._n_at.get(step + 1, 0) + 1
        if self._n_at[step] == 0:
            del self._n_at[step]
            if self.fewest == step:
                self.fewest = step + 1

    def closed(self, step: ReplayStep) -> None:
        """Charge classes for which others waited in a step that all have ended."""
        for charge in self._waiting.charges(step.number, np.array(step.start_s), np.array(step.ended_s)):
            self.waited(charge.rank_class, step.number, charge.seconds)

    def waited(self, rank_class: int, step: int, seconds: float) -> None:
        """Charge a class with time that all waited for it on average."""
        if seconds > 0.0:
            self._waited_s[rank_class] += seconds
            of_step = self._waited_in.setdefault(step, {})
            of_step[rank_class] = of_step.get(rank_class, 0.0) + seconds

    # What the policy does.

    def signal(self) -> Signal:
        """Return an event to be fired later."""
        return self._world.signal()

    def step(self, rank_class: int) -> Process:
        """Begin the next step of a class, which reads the parameters now, and wait for its end."""
        step = self.completed[rank_class]
        if not self._pending:
            flush = self.signal()
            self._world.when(flush, self._flush)
            flush.fire()
        self._pending.append(rank_class)
        ended = self._ending[rank_class] = self.signal()
        yield ended
        self._count(rank_class, step)
        self._last_end_s[rank_class] = self.now_s

    def apply(self, rank_class: int, worker: int = 0) -> None:
        """Count the gradient of the step that a class, or one of its workers, has ended as one that goes into the model."""
        age = self._version - self._read_before.pop((rank_class, worker), self._read[rank_class])
        self._staleness[age] = self._staleness.get(age, 0) + 1
        self._applied += 1

    def read(self, rank_class: int, worker: int, lead: int) -> None:
        """Let one of the workers of a class read the parameters now for the next step, which the class begins at this time."""
        self._read_before[rank_class, worker] = self._version
        self._max_lead = max(self._max_lead, lead)

    def drop(self, rank_class: int) -> None:
        """Count the gradient of the step that a class has ended as one that came too late."""
        self._dropped[rank_class] += 1

    def update(self) -> None:
        """Count an update of the parameters: who reads from now on reads a newer version."""
        self._version += 1

    def close_step(self) -> None:
        """Count a step of all as ended now."""
        self._ends_s.append(self.now_s)

    def perform(self, operations: Sequence[Collective]) -> Signal:
        """Start operations concurrently, and return an event that fires at the end of the last."""
        missing, through = len(operations), self.signal()
        self.replay.hold()

        def landed() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                through.fire()
                self.replay.release()

        for operation in operations:
            self.replay.clock.perform(self.replay.traffic.phases(operation), landed)
        return through

    def end(self) -> None:
        """End the run with all that happens now; operations in progress stop."""
        self._world.when(self._world.after(0.0, SETTLED), self._halt)

    def _halt(self) -> None:
        self.replay.halt()
        self._world.halt()

    def _flush(self) -> None:
        """Start all classes that wait at this time."""
        begun, self._pending = self._pending, []
        for each in begun:
            self._read[each] = self._version
            self._max_lead = max(self._max_lead, self.completed[each] - self.fewest)
        self.replay.enter([(each, self.completed[each]) for each in begun])


def _longest(waited_s: dict[int, float]) -> int:
    """Return the class that was waited for longest; of equals the first."""
    return max(sorted(waited_s), key=waited_s.__getitem__)


def _idle(columns: SpanColumns, n_classes: int, duration_s: float, *, within_s: tuple[float, float] | None = None) -> list[float]:
    """Return for how long no span of each class was in progress, in all that is written down or within a stretch of it."""
    classes = np.array([span.rank_class for span in columns.patterns], dtype=np.int64)[columns.pattern]
    order = np.lexsort((columns.start_s, classes))
    bounds = np.searchsorted(classes[order], np.arange(n_classes + 1))
    from_s, to_s = within_s or (0.0, duration_s)
    idle_s: list[float] = []
    for first, stop in pairwise(bounds.tolist()):
        rows = order[first:stop]
        # Up to when all that began before has ended.
        reached_s = np.maximum.accumulate(np.concatenate(([0.0], columns.end_s[rows])))
        gaps_s = np.minimum(np.append(columns.start_s[rows], duration_s), to_s) - np.maximum(reached_s, from_s)
        idle_s.append(float(np.sum(gaps_s[gaps_s > 0.0])))
    return idle_s
