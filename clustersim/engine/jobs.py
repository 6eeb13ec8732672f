"""Jobs on one fabric: each replays Programs on its own ranks, and decides after each which comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import simpy

from clustersim.engine.pace import Timing
from clustersim.engine.precedence import rank_of, task_name
from clustersim.engine.replay import Replay
from clustersim.engine.world import SETTLED, Process, World
from clustersim.errors import DomainError
from clustersim.program.program import Program
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import JobProgress


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
        if replay.is_open:
            raise DomainError(f"job '{self.job.name}' replays a Program again that has not ended: {self._where(replay)}")
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

    def progress(self) -> JobProgress:
        """Return what has been done so far."""
        return JobProgress(name=self.job.name, steps=self.n_steps, steps_s=self.ended_s)

    def _replay_of(self, program: Program) -> Replay:
        for known, replay in zip(self.job.programs, self.replays, strict=True):
            if known is program:
                return replay
        first = f"{task_name(program, 0)}, on rank {rank_of(program, 0)}" if program.tasks else "no task"
        raise DomainError(
            f"job '{self.job.name}' replays a Program that is none of its own, with {first} first",
            hint="name all Programs that a job may replay when it is given its ranks",
        )

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


def check_ranks(first: Program, others: Sequence[Job], n_ranks: int) -> None:
    """Find Programs for ranks that a job does not have: that the cluster does not have, or that another job has.

    Raises
    ------
    DomainError
        When there is one; it names job, task and rank.
    """
    owner = np.full(n_ranks, -1, dtype=np.int64)
    for number, (name, programs) in enumerate([("", (first,)), *((job.name, job.programs) for job in others)]):
        for program in programs:
            for rank_class, each in enumerate(program.rank_classes):
                wrong = each.ranks[each.ranks >= n_ranks]
                if len(wrong):
                    raise _foreign(name, program, rank_class, wrong, f"a cluster of {n_ranks} ranks does not have")
                taken = each.ranks[(owner[each.ranks] >= 0) & (owner[each.ranks] != number)]
                if len(taken):
                    raise _foreign(name, program, rank_class, taken, "another job has")
        for program in programs:
            for each in program.rank_classes:
                owner[each.ranks] = number


def _foreign(job: str, program: Program, rank_class: int, ranks: IntArray, why: str) -> DomainError:
    tasks = (index for index, task in enumerate(program.tasks) if rank_class in {lane.rank_class for lane in task.lanes})
    first = next((task_name(program, index) for index in tasks), "no task")
    who = f"job '{job}'" if job else "the job"
    return DomainError(f"{who} puts {first} on rank {int(ranks[0])}, which {why}")
