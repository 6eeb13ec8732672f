from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from clustersim.engine.jobs import Repeated
from clustersim.engine.pace import Drawn, Pace
from clustersim.engine.policies import Asynchronous, BackupWorkers, PacePolicy, StaleSynchronous
from clustersim.engine.simulate import Machine, replay
from clustersim.engine.steps import replay_steps
from clustersim.errors import DeadlockError
from clustersim.hardware.calibration import LaunchCalibration
from clustersim.network.in_flight import TICK_S
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Background, Program
from clustersim.program.tasks import Compute, Lane, Task, Work
from clustersim.trace.timeline import Timeline
from clustersim.workloads.operators import Recorded
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    joined,
    make_machine,
    overlapped,
    paced,
    program,
    task,
    transfer,
    work,
    workers,
)
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

ONE_SECOND = SCALE_UP_BYTES_PER_S
"""Bytes whose all-reduce between two, or whose transfer, takes a second."""
TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")


@dataclass(frozen=True)
class Given:
    """Jitter that is written down, one row a step; the last row goes on."""

    rows: Sequence[Sequence[float]]

    def factor(self, rank_class: int, step: int) -> float:
        return self.rows[min(step, len(self.rows) - 1)][rank_class]


def steps_of(of: Program, n_steps: int, *, machine: Machine | None = None, jitter: Given | Drawn | None = None) -> Timeline:
    timeline, _ = replay_steps(of, machine or make_machine(), n_steps=n_steps, jitter=jitter)
    return timeline


def intervals(timeline: Timeline, rank_class: int) -> list[tuple[int, float, float]]:
    """Return step, start and end of the passes of a class."""
    return [(span.step, span.start_s, span.end_s) for span in timeline.spans if (span.rank_class, span.stream) == (rank_class, "compute")]


def test_a_step_follows_another_at_once() -> None:
    timeline = steps_of(workers(2.0), 3)

    assert intervals(timeline, 0) == [(0, 0.0, 2.0), (1, 2.0, 4.0), (2, 4.0, 6.0)]
    assert (timeline.step_time_s, timeline.duration_s) == (2.0, 6.0)


def test_a_class_waits_for_all_that_is_its_own() -> None:
    of = program(task(compute(work(1.0))), task(transfer((0, 1), size_bytes=3 * ONE_SECOND)))

    assert intervals(steps_of(of, 2), 0) == [(0, 0.0, 1.0), (1, 3.0, 4.0)]


def test_classes_that_nothing_joins_do_not_wait_for_each_other() -> None:
    timeline = steps_of(workers(1.0, 3.0), 2)

    assert intervals(timeline, 0) == [(0, 0.0, 1.0), (1, 1.0, 2.0)]
    assert intervals(timeline, 1) == [(0, 0.0, 3.0), (1, 3.0, 6.0)]


def test_a_task_of_several_classes_waits_for_all_of_them() -> None:
    timeline = steps_of(joined(1.0, 3.0), 2)

    assert intervals(timeline, 0) == [(0, 0.0, 1.0), (1, 3.0, 4.0)]
    assert timeline.step_time_s == 3.0


def test_a_task_waits_for_its_own_class_to_begin_although_what_it_needs_is_there() -> None:
    # The second class has nothing of its own before the transfer of the first, of which two may come while it still computes.
    send = Task(action=transfer((0, 1), size_bytes=ONE_SECOND), lanes=(Lane(rank_class=0, stream="send"),), after=(0,))
    of = program(task(compute(work(1.0))), send, task(compute(work(5.0), name="late"), 1, rank_class=1), n_classes=2)

    assert intervals(steps_of(of, 2), 1) == [(0, 2.0, 7.0), (1, 7.0, 12.0)]


def test_even_steps_are_as_long_as_one() -> None:
    machine = make_machine(network=LATENT_NETWORK)
    of = program(*joined(0.1, 0.1, size_bytes=1e9).tasks, n_classes=2)

    many = steps_of(of, 5, machine=machine)

    assert many.step_time_s == pytest.approx(replay(of, machine)[0].step_time_s, rel=1e-12)
    assert many.steps is not None
    assert many.steps.interval_s == (pytest.approx(many.step_time_s, rel=1e-9), pytest.approx(many.step_time_s, rel=1e-9))


def test_a_slow_class_takes_longer_to_compute_and_not_to_communicate() -> None:
    machine = paced(make_machine(), 1.0, 2.0)
    of = program(*(task(compute(work(1.0), collective(TP, ONE_SECOND)), rank_class=each) for each in (0, 1)), n_classes=2)

    first, second = (intervals(steps_of(of, 1, machine=machine), each)[0][2] for each in (0, 1))

    assert second - first == pytest.approx(1.0, rel=1e-12)


def test_classes_may_have_accelerators_of_different_kinds() -> None:
    machine = make_machine()
    slow = make_machine(
        replace(machine.cluster.node, accelerator=replace(machine.cluster.node.accelerator, memory_bandwidth_bytes_per_s=1.5e12))
    )
    machine = replace(machine, paces=(Pace(kernels=machine.kernels), Pace(kernels=slow.kernels)))

    timeline, _ = replay(workers(1.0, 1.0), machine)

    assert [span.end_s for span in timeline.spans] == [1.0, 2.0]


def test_the_host_of_a_class_may_be_slow_in_itself_or_with_the_class() -> None:
    machine = make_machine(launch=LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=0.25))
    paces = [(1.0, None), (2.0, None), (1.0, 0.75), (2.0, 0.75)]
    machine = replace(machine, paces=tuple(Pace(kernels=machine.kernels, slowdown=each, step_host_s=host_s) for each, host_s in paces))
    hosts = [task(Compute(name="host", phase="host", blocks=()), rank_class=each) for each in range(4)]

    timeline = steps_of(program(*hosts, n_classes=4), 1, machine=machine, jitter=Given([[1.0, 1.0, 1.0, 10.0]]))

    assert [span.end_s for span in timeline.spans] == [0.25, 0.5, 0.75, 15.0]


def test_jitter_makes_each_step_of_each_class_as_long_as_it_says() -> None:
    timeline = steps_of(workers(2.0, 2.0), 2, jitter=Given([[1.0, 1.5], [0.5, 2.0]]))

    assert intervals(timeline, 0) == [(0, 0.0, 2.0), (1, 2.0, 3.0)]
    assert intervals(timeline, 1) == [(0, 0.0, 3.0), (1, 3.0, 7.0)]
    assert [span.compute_s for span in timeline.spans] == [2.0, 1.0, 3.0, 4.0]


def test_neither_jitter_nor_a_slow_accelerator_reaches_the_loader() -> None:
    read = Work(name="load", phase="load", kernels=(Recorded(1.0),))
    of = program(task(compute(read, phase="load", name="load"), stream="loader"), task(compute(work(0.2))))

    timeline = steps_of(of, 2, machine=paced(make_machine(), 2.0), jitter=Given([[1.5], [2.0]]))

    assert [span.end_s - span.start_s for span in timeline.spans if span.stream == "loader"] == [1.0, 1.0]
    assert timeline.step_time_s == 1.0


def test_jitter_reaches_a_pass_that_is_replayed_item_by_item() -> None:
    rival = task(communicate(TP, 1e-9, name="nothing"))
    action = compute(work(1.0), collective(TP, ONE_SECOND), overlapped(collective(TP, ONE_SECOND), 0.5), repeat=2)

    alone, beside = (steps_of(program(task(action), *more), 1, jitter=Given([[3.0]])) for more in ((), (rival,)))

    (span, slow) = (next(span for span in each.spans if span.stream == "compute") for each in (alone, beside))
    assert slow.detail == ()
    assert (slow.end_s, slow.compute_s) == (pytest.approx(span.end_s, rel=1e-12), pytest.approx(9.0, rel=1e-12))
    assert slow.exposed_s == (("tp", pytest.approx(span.exposed_s[0][1], rel=1e-12)),)


def test_passes_of_different_steps_meet_on_their_links() -> None:
    """In one step the second class waits for the first; in many the first is a step ahead, and they share the links."""
    action = compute(collective(TP, ONE_SECOND))
    alone_s = steps_of(program(task(action)), 1).step_time_s

    timeline = steps_of(program(task(action), task(action, 0, rank_class=1), n_classes=2), 3)

    # The first pass is alone, the next two of each meet, and the last is alone again.
    assert [end_s / alone_s for _, _, end_s in intervals(timeline, 0)] == pytest.approx([1.0, 3.0, 5.0], rel=1e-12)
    assert [end_s / alone_s for _, _, end_s in intervals(timeline, 1)] == pytest.approx([3.0, 5.0, 6.0], rel=1e-12)


def test_passes_of_steps_behind_each_other_meet_where_classes_are_joined_too() -> None:
    """The second class ends with a pass for which the first does not wait, beside the first one's next step."""
    action, barrier = compute(collective(TP, ONE_SECOND)), joined(1.0, 1.0)
    alone_s = steps_of(program(task(action)), 1).step_time_s
    tasks = [task(compute(work(1.0))), task(action, 0), task(compute(work(1.0)), rank_class=1), barrier.tasks[-1]]
    tasks[3] = tasks[3]._replace(after=(1, 2))

    timeline = steps_of(program(*tasks, task(action, 3, rank_class=1), n_classes=2), 2)

    # The first one's second turn starts with a second of work, while the other is alone on the links.
    ends_s = [span.end_s for span in timeline.spans if span.stream == "compute" and span.rank_class == 0]
    assert ends_s[-1] == pytest.approx(1.0 + alone_s + 1.0 + alone_s + max(0.0, alone_s - 1.0), rel=1e-12)


def test_links_report_a_step_on_average() -> None:
    of = joined(1.0, 1.0, size_bytes=ONE_SECOND)

    one, many = steps_of(of, 1), steps_of(of, 4)

    assert [link.bytes for link in many.links] == pytest.approx([link.bytes for link in one.links], rel=1e-12)
    assert [link.busy_s for link in many.links] == pytest.approx([link.busy_s for link in one.links], rel=1e-9)
    assert [link.peak_utilisation for link in many.links] == [link.peak_utilisation for link in one.links]


def test_links_count_what_is_inside_passes_of_all_steps() -> None:
    of = program(task(compute(work(1.0), collective(TP, ONE_SECOND))))

    one, many = steps_of(of, 1), steps_of(of, 4, jitter=Given([[1.0], [2.0]]))

    assert [link.bytes for link in many.links] == pytest.approx([link.bytes for link in one.links], rel=1e-12)


def test_events_are_counted() -> None:
    assert steps_of(workers(1.0, 2.0), 5).engine.events == 10


def test_step_times_are_between_the_ends_of_all() -> None:
    timeline = steps_of(workers(1.0, 1.0), 3, jitter=Given([[1.0, 4.0], [2.0, 1.0], [5.0, 1.0]]))

    assert timeline.steps is not None
    # The first class ends at 1, 3 and 8, the second at 4, 5 and 6.
    assert timeline.steps.step_times_s == (4.0, 1.0, 3.0)
    assert (timeline.step_time_s, timeline.duration_s) == (pytest.approx(8 / 3, rel=1e-12), 8.0)


def test_idle_is_what_no_stream_fills() -> None:
    send = transfer((0, 1), size_bytes=2 * ONE_SECOND)
    behind, beside = (program(task(compute(work(1.0))), task(send, *after)) for after in ([0], []))

    logs = [steps_of(of, 2).steps for of in (joined(1.0, 3.0), behind, beside)]

    assert [[each.idle_s for each in log.classes] for log in logs if log] == [[4.0, 0.0], [0.0], [0.0]]


def test_a_class_without_tasks_is_idle_and_keeps_nobody_waiting() -> None:
    timeline = steps_of(program(*workers(1.0, 2.0).tasks, n_classes=3, n_ranks=6), 2)

    assert timeline.steps is not None
    assert [(each.steps, each.idle_s) for each in timeline.steps.classes] == [(2, 2.0), (2, 0.0), (0, 4.0)]


def test_a_program_without_tasks_takes_no_time() -> None:
    timeline = steps_of(program(), 3)

    assert timeline.steps is not None
    assert (timeline.step_time_s, timeline.steps.step_times_s, timeline.steps.applied) == (0.0, (0.0, 0.0, 0.0), 0)


def test_the_last_to_come_is_the_one_that_was_waited_for() -> None:
    timeline = steps_of(joined(1.0, 1.0, 1.0), 3, jitter=Given([[1.0, 2.0, 6.0], [1.0, 5.0, 3.0], [1.0, 1.0, 4.0]]))

    assert timeline.steps is not None
    # Last less mean: 6 - 3 and 4 - 2 for the third, 5 - 3 for the second.
    assert [each.waited_s for each in timeline.steps.classes] == pytest.approx([0.0, 2.0, 5.0], rel=1e-12)
    assert [each.waited_steps for each in timeline.steps.classes] == [0, 1, 2]


def test_nobody_is_waited_for_where_all_come_together() -> None:
    timeline = steps_of(joined(1.0, 1.0, 1.0), 3)

    assert timeline.steps is not None
    assert [(each.waited_s, each.waited_steps) for each in timeline.steps.classes] == [(0.0, 0)] * 3


def test_of_two_that_come_last_the_first_is_named() -> None:
    timeline = steps_of(joined(1.0, 3.0, 3.0), 1)

    assert timeline.steps is not None
    assert [each.waited_s for each in timeline.steps.classes] == [0.0, pytest.approx(2 / 3, rel=1e-12), 0.0]


def test_who_has_something_else_in_progress_waits_for_nobody() -> None:
    """Buckets: the first is ready here at 1 s and there at 2 s, when the next pass here has just ended; the second waits for the wire."""
    lanes = tuple(Lane(rank_class=each, stream="dp") for each in (0, 1))
    reduce = communicate(group_of((0, 4), (1, 5), (2, 6), (3, 7)), 10 * ONE_SECOND)
    passes = [task(compute(work(seconds)), rank_class=each) for each, seconds in ((0, 1.0), (1, 2.0))]
    more = [task(compute(work(1.0)), each, rank_class=each) for each in (0, 1)]
    buckets = [Task(action=reduce, lanes=lanes, after=after) for after in ((0, 1), (2, 3, 4))]

    steps = steps_of(program(*passes, buckets[0], *more, buckets[1], n_classes=2), 1).steps

    assert steps is not None
    assert [each.waited_s for each in steps.classes] == [0.0, 0.0]


def test_a_receiver_that_has_nothing_to_do_before_is_not_waited_for_and_waits_for_nobody() -> None:
    send = Task(
        action=transfer((0, 4), size_bytes=ONE_SECOND),
        lanes=(Lane(rank_class=0, stream="send"), Lane(rank_class=1, stream="recv")),
        after=(0,),
    )
    steps = steps_of(program(task(compute(work(1.0))), send, task(compute(work(1.0)), 1, rank_class=1), n_classes=2), 2).steps

    assert steps is not None
    assert [each.waited_s for each in steps.classes] == [0.0, 0.0]


def test_gradients_of_all_together_are_never_old() -> None:
    steps = steps_of(joined(1.0, 2.0), 3).steps

    assert steps is not None
    assert (steps.staleness, steps.applied, steps.max_lead, steps.duration_s) == (((0, 6),), 6, 0, 6.0)
    assert [each.dropped for each in steps.classes] == [0, 0]


CIRCLE = (task(compute(work(0.1), name="before")), task(compute(work(1.0)), 0, 2), task(communicate(group_of((0, 1)), 1.0), 1))


def on_second_node(of: Program) -> Program:
    return placed(of, Placement(ranks=8 + np.arange(8), hosts={}))


POLICIES: list[PacePolicy | None] = [None, Asynchronous(), StaleSynchronous(staleness=1), BackupWorkers(n_needed=1)]


@pytest.mark.parametrize("policy", POLICIES)
def test_tasks_that_wait_for_each_other_are_named(policy: PacePolicy | None) -> None:
    with pytest.raises(
        DeadlockError, match="2 of 3 tasks wait for each other for ever, the first on rank 0:\n  F on stage 0 waits for reduce on stage 0"
    ):
        replay_steps(program(*CIRCLE), make_machine(), n_steps=3, policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deadlock_is_found_although_others_go_on(policy: PacePolicy | None) -> None:
    machine = make_machine(n_nodes=2)
    other = Repeated(name="other", program=on_second_node(program(task(compute(work(0.3))))), kernels=machine.kernels)

    with pytest.raises(DeadlockError, match="2 of 3 tasks"):
        replay_steps(program(*CIRCLE), machine, n_steps=3, policy=policy, others=[other])


@pytest.mark.parametrize("policy", [None, Asynchronous()])
def test_others_go_on_until_the_last_step_has_ended(policy: PacePolicy | None) -> None:
    machine = make_machine(n_nodes=2)
    other = Repeated(name="other", program=on_second_node(program(task(compute(work(0.4))))), kernels=machine.kernels)

    timeline, _ = replay_steps(workers(1.0, 1.0), machine, n_steps=3, policy=policy, others=[other])

    assert timeline.duration_s == 3.0
    assert [(each.name, each.steps) for each in timeline.jobs] == [("other", 7)]


@pytest.mark.parametrize("policy", [None, Asynchronous()])
def test_a_load_takes_its_share_in_all_steps(policy: PacePolicy | None) -> None:
    machine = make_machine()
    push = transfer((0, 1), size_bytes=ONE_SECOND)
    link = next(index for index, link in enumerate(machine.cluster.links) if link.name == "node0/gpu0/nvlink/up")
    load = Background(name="backup", link_ids=(link,), rate_bytes_per_s=0.25 * SCALE_UP_BYTES_PER_S)

    timeline, _ = replay_steps(program(task(push)), machine, n_steps=3, policy=policy, background=[load])

    assert timeline.step_time_s == pytest.approx(1 / 0.75, abs=4 * TICK_S)
    (busiest,) = [each for each in timeline.links if each.name == "node0/gpu0/nvlink/up"]
    assert busiest.bytes == pytest.approx(ONE_SECOND * (1 + 0.25 / 0.75), rel=1e-9)


def test_every_step_of_every_task_is_written_down_once() -> None:
    timeline = steps_of(joined(1.0, 2.0), 4)

    assert sorted((span.rank_class, span.stream, span.step) for span in timeline.spans) == sorted(
        (rank_class, stream, step) for rank_class in (0, 1) for stream in ("compute", "dp") for step in range(4)
    )
    assert np.all(np.diff([span.start_s for span in timeline.spans if (span.rank_class, span.stream) == (0, "dp")]) > 0.0)
