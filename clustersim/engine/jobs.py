"""Jobs on one fabric: each replays Programs on its own ranks, and decides after each which comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from clustersim.engine.pace import Timing
from clustersim.engine.precedence import rank_of, task_name
from clustersim.engine.replay import Replay
from clustersim.engine.traffic import moved_by
from clustersim.engine.world import SETTLED, Process, World
from clustersim.errors import DomainError
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Transfer
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import JobProgress

MOST_INSTANT: Final = 10_000
"""Programs without duration that a job may replay one after the other."""


class Job(Protocol):
    """A job: it replays Programs, one after the other."""

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    @property
    def programs(self) -> Sequence[Program]:
        """All Programs that the job may replay, on ranks of the cluster."""
        ...

    @property
    def kernels(self) -> Timing:
        """Duration of the work of the job."""
        ...

    def run(self, allocation: Allocation) -> Process:
        """Replay Programs on the ranks of the job: ``yield from allocation.replay(program)``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A job that repeats one step for as long as the world lasts."""

    name: str
    program: Program
    """One step, on ranks of the cluster."""
    kernels: Timing

    @property
    def programs(self) -> Sequence[Program]:
        """The step."""
        return (self.program,)

    def run(self, allocation: Allocation) -> Process:
        """Begin a step when one has ended."""
        n_steps = -1
        # A step without duration would be repeated for ever in one instant.
        while allocation.n_steps > n_steps:
            n_steps = allocation.n_steps
            yield from allocation.replay(self.program)


@dataclass(slots=True, kw_only=True)
class Allocation:
    """The ranks that a job has got in a world, and its Programs, prepared for them."""

    job: Job
    replays: Sequence[Replay]
    """Replay of each Program of the job."""
    n_steps: int = 0
    """Programs that have been replayed and took any time."""
    ended_s: float = 0.0
    """End of the last of them, in seconds."""
    _n_instant: int = 0
    """Programs without duration since then."""

    @property
    def world(self) -> World:
        """The world of the job."""
        return self.replays[0].clock.world

    def run(self) -> Process:
        """Run the job.

        Raises
        ------
        DomainError
            When the job is interrupted and does not take it.
        """
        try:
            yield from self.job.run(self)
        except simpy.Interrupt as interrupt:
            raise DomainError(f"job '{self.job.name}' was interrupted by {interrupt.cause}, and does not say what follows") from interrupt

    def replay(self, program: Program) -> Process:
        """Replay a Program from now on, and wait for its end.

        Raises
        ------
        DomainError
            When the Program is none of the job or has not ended, or the job is interrupted before its end.
        """
        replay = self._replay_of(program)
        self._check_alone(replay)
        began_s = replay.clock.now_s
        try:
            yield replay.start()
        except simpy.Interrupt as interrupt:
            raise DomainError(
                f"job '{self.job.name}' was interrupted by {interrupt.cause} in the middle of {self._where(replay)}",
                hint="interrupt a job between two Programs",
            ) from interrupt
        if replay.clock.now_s > began_s:
            self.n_steps += 1
            self.ended_s = replay.clock.now_s
            self._n_instant = 0
        elif self._n_instant == MOST_INSTANT:
            what = f"{MOST_INSTANT:,} Programs without duration at {began_s:g} s, with {self._first(program)} first"
            raise DomainError(f"job '{self.job.name}' never ends: {what}")
        else:
            self._n_instant += 1

    def progress(self) -> JobProgress:
        """Return what has been done so far."""
        return JobProgress(name=self.job.name, steps=self.n_steps, steps_s=self.ended_s)

    def _replay_of(self, program: Program) -> Replay:
        for known, replay in zip(self.job.programs, self.replays, strict=True):
            if known is program:
                return replay
        raise DomainError(
            f"job '{self.job.name}' replays a Program that is none of its own, with {self._first(program)} first",
            hint="name all Programs that a job may replay when it is given its ranks",
        )

    def _check_alone(self, replay: Replay) -> None:
        """Refuse a Program on ranks on which another one of the job has not ended."""
        if replay.is_open:
            raise DomainError(f"job '{self.job.name}' replays a Program again that has not ended: {self._where(replay)}")
        for other in self.replays:
            if other.is_open:
                busy, ranks = (np.concatenate([each.ranks for each in of.program.rank_classes]) for of in (other, replay))
                both = ranks[np.isin(ranks, busy)]
                if len(both):
                    raise DomainError(f"job '{self.job.name}' replays two Programs at a time on rank {both[0]}: {self._where(other)}")

    @staticmethod
    def _first(program: Program) -> str:
        return f"{task_name(program, 0)}, on rank {rank_of(program, 0)}" if program.tasks else "no task"

    @staticmethod
    def _where(replay: Replay) -> str:
        """Return the task that is in progress, with a rank and the time."""
        task = replay.in_progress()
        where = "no task" if task is None else f"{task_name(replay.program, task)}, on rank {rank_of(replay.program, task)}"
        return f"{where}, after {replay.clock.now_s:g} s"


def to_the_end(job: Process, world: World) -> Process:
    """Run a job, and all else that happens at the time of its end."""
    yield from job
    yield world.after(0.0, SETTLED)


def check_programs(first: Program, others: Sequence[Job], n_ranks: int) -> None:
    """Find Programs that cannot be replayed: for ranks that a job does not have, or with tasks that wait for what is not there."""
    taken = np.zeros(n_ranks, dtype=np.bool_)
    for name, programs in (("", (first,)), *((job.name, job.programs) for job in others)):
        who, foreign = f"job '{name}'" if name else "the job", taken.copy()
        for program in programs:
            _check_tasks(who, program)
            for rank_class, each in enumerate(program.rank_classes):
                _check_ranks(who, program, partial(_first_of, program, rank_class), each.ranks, foreign)
        for program in programs:
            for each in program.rank_classes:
                taken[each.ranks] = True
        for program in programs:
            for index, ranks in _moved_between(program):
                _check_ranks(who, program, partial(int, index), ranks, foreign)


def _moved_between(program: Program) -> Iterator[tuple[int, IntArray]]:
    """Yield all different sets of ranks that anything is moved between, each with a task."""
    seen: set[int] = set()
    for index in {task.action: index for index, task in enumerate(program.tasks)}.values():
        for moved in moved_by(program.tasks[index].action):
            ranks = moved.group.members if isinstance(moved, Collective) else moved.pairs if isinstance(moved, Transfer) else moved.ranks
            if id(ranks) not in seen:
                seen.add(id(ranks))
                yield index, ranks


def _first_of(program: Program, rank_class: int) -> int | None:
    """Return the first task of a rank class."""
    return next((index for index, task in enumerate(program.tasks) if rank_class in {lane.rank_class for lane in task.lanes}), None)


def _check_tasks(who: str, program: Program) -> None:
    """Refuse tasks on rank classes, and behind tasks, that the Program does not have."""
    n_tasks, n_classes = len(program.tasks), len(program.rank_classes)
    known = {lanes for lanes in {task.lanes for task in program.tasks} if all(0 <= lane.rank_class < n_classes for lane in lanes)}
    for index, task in enumerate(program.tasks):
        if task.lanes not in known:
            raise DomainError(f"{who} has {task.action.name}, task {index}, on a rank class that its Program does not have")
        if task.after and not 0 <= min(task.after) <= max(task.after) < n_tasks:
            name = f"{task_name(program, index)}, on rank {rank_of(program, index)}"
            raise DomainError(f"{who} lets {name}, wait for task {max(task.after)} of a Program of {n_tasks} tasks, counted from 0")


def _check_ranks(who: str, program: Program, task: Callable[[], int | None], ranks: IntArray, foreign: NDArray[np.bool_]) -> None:
    """Refuse ranks that the cluster does not have, and those of other jobs, which are true in ``foreign``."""
    if not ranks.size or (ranks.min() >= 0 and ranks.max() < len(foreign) and not foreign[ranks].any()):
        return
    index = task()
    what = f"{who} puts {'no task' if index is None else task_name(program, index)} on rank"
    missing = ranks[(ranks < 0) | (ranks >= len(foreign))]
    if len(missing):
        raise DomainError(f"{what} {int(missing[0])}, which a cluster of {len(foreign)} ranks does not have")
    raise DomainError(f"{what} {int(ranks[foreign[ranks]][0])}, which another job has")
