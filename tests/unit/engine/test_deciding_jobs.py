"""Jobs that decide what comes next, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import simpy

from clustersim.engine.jobs import Allocation
from clustersim.engine.pace import Timing
from clustersim.engine.simulate import Machine, replay
from clustersim.engine.world import Process
from clustersim.errors import DomainError
from clustersim.program.program import Program
from clustersim.program.tasks import Task
from clustersim.trace.timeline import JobProgress, Timeline
from tests.unit.engine.factories import communicate, compute, group_of, make_machine, program, task, work
from tests.unit.engine.test_jobs import ACROSS, NARROW, beside, job


@dataclass(frozen=True)
class Told:
    """A job that does what a test tells it."""

    programs: Sequence[Program]
    kernels: Timing
    does: Callable[[Allocation], Process]
    name: str = "told"

    def run(self, allocation: Allocation) -> Process:
        return self.does(allocation)


def told(machine: Machine, run: Callable[[Allocation], Process]) -> Timeline:
    """Return the timeline of a step of 10 s beside a job whose Program takes a second of work and then one on the uplink."""
    theirs = Told((job(task(compute(work(1.0))), task(ACROSS, 0), nodes=(1, 3)),), machine.kernels, run)
    return replay(job(task(compute(work(10.0))), nodes=(0, 2)), machine, others=[theirs])[0]


def test_a_job_decides_after_each_program_what_comes_next() -> None:
    begun_s: list[float] = []

    def run(allocation: Allocation) -> Process:
        for pause_s in (0.5, 3.0):
            begun_s.append(allocation.world.now)
            yield from allocation.replay(allocation.job.programs[0])
            yield allocation.world.after(pause_s)

    timeline = told(make_machine(NARROW, 4), run)

    assert begun_s == [0.0, 2.5]
    assert timeline.jobs == (JobProgress(name="told", steps=2, steps_s=4.5),)


def test_a_job_may_choose_between_programs_of_its_own() -> None:
    machine = make_machine(NARROW, 4)
    short, long = (job(task(compute(work(seconds))), nodes=(1, 3)) for seconds in (1.0, 2.0))

    def run(allocation: Allocation) -> Process:
        for chosen in (long, short, long):
            yield from allocation.replay(chosen)

    timeline = replay(job(task(compute(work(10.0))), nodes=(0, 2)), machine, others=[Told((short, long), machine.kernels, run)])[0]

    assert timeline.jobs == (JobProgress(name="told", steps=3, steps_s=5.0),)


def test_a_program_that_is_none_of_a_job_is_refused() -> None:
    def run(allocation: Allocation) -> Process:
        yield from allocation.replay(job(task(ACROSS), nodes=(1, 3)))

    with pytest.raises(DomainError, match=r"job 'told' replays a Program that is none of its own, with send .* on rank 8 first"):
        told(make_machine(NARROW, 4), run)


@pytest.mark.parametrize(("nodes", "why"), [((2, 3), "16, which another job has"), ((1, 4), "32, which a cluster of 32 ranks does not")])
def test_a_program_for_ranks_that_a_job_does_not_have_is_refused(nodes: tuple[int, int], why: str) -> None:
    machine = make_machine(NARROW, 4)

    with pytest.raises(DomainError, match=f"job 'other 0' puts F on stage 0 on rank {why}"):
        beside(machine, job(task(ACROSS), nodes=(0, 2)), job(task(compute(work(1.0))), nodes=nodes))


def interrupting(after_s: float) -> Callable[[Allocation], Process]:
    """Return a job that something interrupts after some seconds, in its Program or in the pause of a second behind it."""

    def run(allocation: Allocation) -> Process:
        own = allocation.world.active_process
        assert own is not None

        def fail() -> Process:
            yield allocation.world.after(after_s)
            own.interrupt("a failure")

        allocation.world.process(fail())
        yield from allocation.replay(allocation.job.programs[0])
        yield allocation.world.after(1.0)

    return run


@pytest.mark.parametrize(
    ("after_s", "where"),
    [
        (0.5, "in the middle of F on stage 0, on rank 8, after 0.5 s"),
        (1.5, r"in the middle of send on stage 0 \(dp\), on rank 8, after 1.5 s"),
    ],
)
def test_an_interrupt_in_the_middle_of_a_program_is_an_error_that_names_the_task(after_s: float, where: str) -> None:
    with pytest.raises(DomainError, match=f"job 'told' was interrupted by a failure {where}; interrupt a job between two Programs"):
        told(make_machine(NARROW, 4), interrupting(after_s))


def test_a_job_that_does_not_take_an_interrupt_is_named() -> None:
    with pytest.raises(DomainError, match="job 'told' was interrupted by a failure, and does not say what follows"):
        told(make_machine(NARROW, 4), interrupting(2.5))


def test_a_job_goes_on_after_an_interrupt_that_it_takes() -> None:
    def run(allocation: Allocation) -> Process:
        try:
            yield from interrupting(2.5)(allocation)
        except simpy.Interrupt:
            yield allocation.world.after(0.5)
            yield from allocation.replay(allocation.job.programs[0])

    assert told(make_machine(NARROW, 4), run).jobs == (JobProgress(name="told", steps=2, steps_s=5.0),)


def test_a_job_that_replays_a_program_twice_at_a_time_is_named() -> None:
    def run(allocation: Allocation) -> Process:
        allocation.world.process(allocation.replay(allocation.job.programs[0]))
        yield allocation.world.after(0.25)
        yield from allocation.replay(allocation.job.programs[0])

    with pytest.raises(DomainError, match="job 'told' replays a Program again that has not ended: F on stage 0, on rank 8"):
        told(make_machine(NARROW, 4), run)


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ((task(communicate(group_of((0, 40)), 1.0)),), r"the job puts reduce .* on rank 40, which a cluster of 32 ranks does not have"),
        ((task(compute(work(1.0)), rank_class=3),), "the job has F, task 0, on a rank class that its Program does not have"),
        ((task(compute(work(1.0)), 5),), "the job lets F on stage 0, on rank 0, wait for task 5 of a Program of 1 tasks"),
    ],
)
def test_a_program_with_what_it_does_not_have_is_refused(tasks: Sequence[Task], why: str) -> None:
    with pytest.raises(DomainError, match=why):
        replay(program(*tasks), make_machine(NARROW, 4))


def test_a_collective_with_a_rank_of_another_job_is_refused() -> None:
    machine = make_machine(NARROW, 4)
    theirs = replace(job(nodes=(1, 3)), tasks=(task(communicate(group_of((8, 16)), 1.0)),))

    with pytest.raises(DomainError, match=r"job 'other 0' puts reduce on stage 0 \(dp\) on rank 16, which another job has"):
        beside(machine, job(task(compute(work(1.0))), nodes=(0, 2)), theirs)


def test_a_job_that_replays_two_programs_on_one_rank_is_named() -> None:
    machine = make_machine(NARROW, 4)
    one, other = (job(task(compute(work(1.0))), nodes=(1, 3)) for _ in range(2))

    def run(allocation: Allocation) -> Process:
        allocation.world.process(allocation.replay(one))
        yield from allocation.replay(other)

    with pytest.raises(DomainError, match="job 'told' replays two Programs at a time on rank 8: F on stage 0, on rank 8, after 0 s"):
        replay(job(task(compute(work(10.0))), nodes=(0, 2)), machine, others=[Told((one, other), machine.kernels, run)])


def test_a_job_that_never_lets_time_pass_is_named() -> None:
    machine = make_machine(NARROW, 4)
    idle = job(task(compute(work(0.0))), nodes=(1, 3))

    def run(allocation: Allocation) -> Process:
        while True:
            yield from allocation.replay(idle)

    with pytest.raises(DomainError, match=r"job 'told' never ends: 10,000 Programs without duration at 0 s, with F .* on rank 8 first"):
        replay(job(task(compute(work(10.0))), nodes=(0, 2)), machine, others=[Told((idle,), machine.kernels, run)])
