from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from clustersim.engine.pace import Drawn, Exponential
from clustersim.engine.policies import Asynchronous, BackupWorkers, PacePolicy, StaleSynchronous
from clustersim.engine.steps import replay_steps
from clustersim.program.program import Program
from clustersim.program.tasks import Collective
from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import Timeline
from tests.unit.engine.factories import (
    collective,
    compute,
    group_of,
    make_machine,
    program,
    task,
    total_bytes,
    transfer,
    work,
    workers,
)
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S

ONE_SECOND = SCALE_UP_BYTES_PER_S
"""Bytes of a transfer that takes a second."""


@dataclass(frozen=True)
class Given:
    """Jitter that is written down for each class, one factor a step; the last one goes on."""

    rows: Sequence[Sequence[float]]

    def factor(self, rank_class: int, step: int) -> float:
        row = self.rows[rank_class]
        return row[min(step, len(row) - 1)]


def run(of: Program, n_steps: int, policy: PacePolicy, *, jitter: Given | Drawn | None = None) -> tuple[Timeline, StepLog]:
    timeline, _ = replay_steps(of, make_machine(), n_steps=n_steps, policy=policy, jitter=jitter)
    assert timeline.steps is not None
    return timeline, timeline.steps


def starts(timeline: Timeline, rank_class: int) -> list[float]:
    return [span.start_s for span in timeline.spans if (span.rank_class, span.stream) == (rank_class, "compute")]


def test_without_a_barrier_each_class_goes_at_its_own_pace() -> None:
    timeline, log = run(workers(1.0, 3.0), 4, Asynchronous())

    # 8 steps: the fast one has made 6 when the slow one ends its second.
    assert [each.steps for each in log.classes] == [6, 2]
    assert starts(timeline, 0) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert (log.duration_s, log.applied, timeline.step_time_s) == (6.0, 8, 1.5)


def test_a_step_of_all_is_as_many_gradients_as_there_are_classes() -> None:
    _, log = run(workers(1.0, 3.0), 4, Asynchronous())

    # Gradients come at 1, 2, 3, 3, 4, 5, 6, 6.
    assert log.step_times_s == (2.0, 1.0, 2.0, 1.0)


def test_a_gradient_is_as_old_as_others_have_been_fast() -> None:
    _, log = run(workers(1.0, 3.0), 4, Asynchronous())

    # At 3 s and 6 s the slow one comes first, because its alarm was set first. It finds two updates more than it has read, and then three.
    assert log.staleness == ((0, 4), (1, 2), (2, 1), (3, 1))
    assert log.mean_staleness == pytest.approx(7 / 8, rel=1e-12)


def test_equal_workers_are_as_old_as_there_are_others() -> None:
    _, log = run(workers(1.0, 1.0, 1.0, 1.0), 50, Asynchronous())

    # In the first step the first to end is the first to update.
    assert log.staleness == ((0, 1), (1, 1), (2, 1), (3, 197))


def test_the_lead_is_that_of_those_who_begin() -> None:
    _, log = run(workers(1.0, 3.0), 4, Asynchronous())

    # After five steps the fast one begins another; the slow one has ended one.
    assert log.max_lead == 4


def test_nobody_waits_and_is_waited_for_without_a_barrier() -> None:
    _, log = run(workers(1.0, 3.0), 4, Asynchronous())

    assert [(each.idle_s, each.waited_s, each.dropped) for each in log.classes] == [(0.0, 0.0, 0)] * 2


def test_what_was_in_progress_at_the_end_is_there_as_far_as_it_had_come() -> None:
    push = task(transfer((0, 1), size_bytes=10 * ONE_SECOND))
    slow = compute(work(2.0), collective(group_of((4, 5)), ONE_SECOND), work(1.0), name="slow")
    fast = task(compute(work(1.0), name="fast"), rank_class=2)
    of = program(push, task(slow, rank_class=1), fast, n_classes=3, n_ranks=6)

    timeline, log = run(of, 1, Asynchronous())

    spans = {span.name: span for span in timeline.spans if span.step == 0}
    assert log.duration_s == 3.0
    assert (spans["send"].end_s, spans["send"].bytes) == (3.0, 0.0)
    # Three quarters of 4 s, of which 3 s compute.
    assert (spans["slow"].end_s, spans["slow"].compute_s) == (3.0, pytest.approx(2.25, rel=1e-12))
    assert spans["slow"].exposed_s == (("dp", pytest.approx(0.75, rel=1e-12)),)
    assert [each.idle_s for each in log.classes] == [0.0, 0.0, 0.0]
    # A way up and a way down for 3 s, and two of each for three quarters of a second.
    assert total_bytes(timeline, "nvlink") == pytest.approx((2 * 3 + 4 * 0.75) * SCALE_UP_BYTES_PER_S, rel=1e-9)


def test_a_bound_that_nobody_reaches_changes_nothing() -> None:
    of = workers(1.0, 1.5, 2.0)

    free, bounded = (run(of, 10, policy)[1] for policy in (Asynchronous(), StaleSynchronous(staleness=50)))

    assert bounded == free


def test_who_is_held_back_waits_for_the_slowest() -> None:
    _, log = run(workers(1.0, 4.0, 3.0), 2, StaleSynchronous(staleness=0))

    # In each step the first waits 3 s and the third 1 s, the three of them 4/3 s on average.
    assert [each.idle_s for each in log.classes] == [6.0, 0.0, 2.0]
    assert [(each.waited_s, each.waited_steps) for each in log.classes] == [(0.0, 0), (pytest.approx(8 / 3, rel=1e-12), 2), (0.0, 0)]


def test_a_round_takes_the_first_gradients_and_drops_the_others() -> None:
    timeline, log = run(workers(1.0, 1.5, 4.0), 4, BackupWorkers(n_needed=2))

    assert log.step_times_s == (1.5, 1.5, 1.5, 1.5)
    # The third ends its first step in the third round, and begins again in it.
    assert starts(timeline, 2) == [0.0, 4.0]
    assert [each.dropped for each in log.classes] == [0, 0, 1]
    assert (log.applied, log.staleness, log.duration_s) == (8, ((0, 8),), 6.0)


def test_who_has_contributed_waits_for_the_update() -> None:
    timeline, log = run(workers(1.0, 3.0), 2, BackupWorkers(n_needed=2))

    assert starts(timeline, 0) == [0.0, 3.0]
    assert [each.idle_s for each in log.classes] == [4.0, 0.0]
    # 2 s and none at all, twice.
    assert [(each.waited_s, each.waited_steps) for each in log.classes] == [(0.0, 0), (2.0, 2)]


def test_no_backup_is_a_barrier() -> None:
    of, jitter = workers(1.0, 1.0, 1.0), Drawn(Exponential(), (1, 1, 1), seed=2)

    rounds, bulk = (run(of, 20, policy, jitter=jitter)[1] for policy in (BackupWorkers(n_needed=3), StaleSynchronous(staleness=0)))

    assert rounds.step_times_s == bulk.step_times_s


UPDATES: list[Collective] = [
    collective(group_of((0, 4), name="first server"), ONE_SECOND),
    collective(group_of((1, 5), name="second server"), 2 * ONE_SECOND),
]


def test_the_next_round_begins_after_the_update() -> None:
    timeline, log = run(workers(1.0, 1.5), 2, BackupWorkers(n_needed=1, update=UPDATES))

    # Both updates at once, on links of their own; the longer one takes 2 s.
    assert log.step_times_s == (pytest.approx(3.0, rel=1e-12), pytest.approx(3.0, rel=1e-12))
    assert starts(timeline, 0) == [0.0, pytest.approx(3.0, rel=1e-12)]
    # The second comes while the parameters are being written, and is not let on before they are.
    assert starts(timeline, 1) == [0.0, pytest.approx(3.0, rel=1e-12)]
    assert [each.dropped for each in log.classes] == [0, 2]
    # In each round two ways up and two down, for 1 s and for 2 s.
    assert total_bytes(timeline, "nvlink") == pytest.approx(4 * (1 + 2) * SCALE_UP_BYTES_PER_S, rel=1e-9)


def test_the_update_of_the_last_round_is_part_of_the_run() -> None:
    timeline, log = run(workers(1.0), 1, BackupWorkers(n_needed=1, update=UPDATES))

    assert log.duration_s == timeline.duration_s == pytest.approx(3.0, rel=1e-12)
    assert log.classes[0].last_end_s == 1.0


def test_an_update_meets_the_passes_that_go_on() -> None:
    """A straggler's collective shares its links with the update, and gets half of them."""
    inline = compute(work(1.0), collective(UPDATES[0].group, 2 * ONE_SECOND), name="slow")
    of = program(task(compute(work(1.0), name="fast")), task(inline, rank_class=1), n_classes=2)

    timeline, _ = run(of, 2, BackupWorkers(n_needed=1, update=UPDATES[:1]))

    (slow,) = [span for span in timeline.spans if span.name == "slow" and span.step == 0]
    # Alone until 1 s, then beside the update for 2 s; the second begins at 3 s and the rest takes 1 s alone.
    assert slow.end_s == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("n_needed", [0, 3])
def test_a_round_that_can_never_be_complete_is_our_own_mistake(n_needed: int) -> None:
    with pytest.raises(AssertionError):
        run(workers(1.0, 1.0), 1, BackupWorkers(n_needed=n_needed))
