"""Statistics of several steps: who was waited for, who was idle, and how old gradients were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.measure.steps_report import StepsReport, in_own_time, in_whole_steps, steps_report
from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.step_log import ClassSteps, StepLog
from clustersim.trace.timeline import LinkUse, RankClass, Span, Timeline

CLASSES = (
    RankClass(name="ranks 0-2", stage=0, representative_rank=0, ranks=np.arange(3)),
    RankClass(name="rank 3", stage=0, representative_rank=3, ranks=3 + np.arange(1)),
)
FAST = ClassSteps(steps=4, last_end_s=8.0, idle_s=2.0, waited_s=0.0, waited_steps=0, dropped=0)
SLOW = ClassSteps(steps=4, last_end_s=8.0, idle_s=0.0, waited_s=1.2, waited_steps=3, dropped=1)
LOG = StepLog(
    n_steps=4,
    step_times_s=(2.0, 2.0, 1.0, 3.0),
    duration_s=8.0,
    classes=(FAST, SLOW),
    applied=8,
    staleness=((0, 8),),
    max_lead=0,
)

LINK = LinkUse(tier="nic", name="a", n_links=1, bandwidth_bytes_per_s=1e3, bytes=100.0, busy_s=0.5, peak_utilisation=0.5)


def busy(rank_class: int, start_s: float, end_s: float, *, exposed_s: float = 0.0) -> Span:
    inside = (("tp", exposed_s),) if exposed_s else ()
    return Span(rank_class=rank_class, stream=COMPUTE_STREAM, kind="forward", name="F", start_s=start_s, end_s=end_s, exposed_s=inside)


def report(log: StepLog = LOG, *spans: Span) -> StepsReport:
    timeline = Timeline(rank_classes=CLASSES, spans=spans, step_time_s=log.mean_s, steps=log)
    return steps_report(log, timeline, [48.0, 16.0])


def test_times_are_those_of_the_steps() -> None:
    made = report()

    assert (made.steps, made.mean_s, made.median_s) == (4, 2.0, 2.0)
    assert made.p95_s == pytest.approx(2.85, rel=1e-12)
    assert made.confidence_interval_s == LOG.interval_s


def test_the_class_that_others_waited_for_is_named_with_the_time_of_one_step() -> None:
    (waited,) = report().waited_for

    assert (waited.name, waited.ranks, waited.waited_s, waited.steps_fraction) == ("rank 3", 1, 0.3, 0.75)


def test_a_class_says_which_of_its_ranks_are_slow() -> None:
    timeline = Timeline(rank_classes=CLASSES, spans=(), step_time_s=LOG.mean_s, steps=LOG)

    (waited,) = steps_report(LOG, timeline, [48.0, 16.0], slow=["", "rank 3 of it"]).waited_for
    (alike,) = report().waited_for

    assert (waited.slow, alike.slow) == ("rank 3 of it", "")


def test_those_waited_for_come_longest_first() -> None:
    log = replace(LOG, classes=(replace(FAST, waited_s=2.0, waited_steps=1), SLOW))

    assert [waited.name for waited in report(log).waited_for] == ["ranks 0-2", "rank 3"]


def test_a_worker_is_idle_while_its_accelerators_compute_nothing() -> None:
    made = report(LOG, busy(0, 0.0, 6.0, exposed_s=2.0), busy(1, 0.0, 4.0), busy(1, 4.0, 8.0))

    assert [worker.idle_fraction for worker in made.workers] == [0.5, 0.0]


def test_a_dropped_gradient_is_no_sample_of_the_worker() -> None:
    fast, slow = report().workers

    assert (fast.samples_per_s, fast.dropped) == (4 * 48.0 / 8.0, 0)
    assert (slow.samples_per_s, slow.dropped) == (3 * 16.0 / 8.0, 1)


def test_a_step_that_was_cut_off_is_not_lost() -> None:
    # Ended 4 and 3 steps of 1 s and 1.3 s; 0.1 s of the next is left in progress.
    done = (replace(FAST, steps=4, last_end_s=4.0), replace(SLOW, steps=3, last_end_s=3.9, dropped=0))
    log = replace(LOG, n_steps=4, step_times_s=(1.0,) * 4, duration_s=4.0, classes=done, applied=7)
    timeline = Timeline(rank_classes=CLASSES, spans=(), step_time_s=1.0, links=(LINK,), steps=log)

    whole = in_whole_steps(timeline)

    # The four ranks together take a batch at the rate of the steps that they ended: three at one pace, one at the other.
    share = 4 / (3 * 1.0 + 1 / 1.3)
    assert whole.step_time_s == pytest.approx(share, rel=1e-12)
    assert (whole.links[0].bytes, whole.links[0].busy_s) == (pytest.approx(100.0 * share), pytest.approx(0.5 * share))
    assert steps_report(log, whole, [48.0, 16.0]).mean_s == whole.step_time_s


def test_one_step_of_like_ranks_stays_as_it_is() -> None:
    timeline = Timeline(rank_classes=CLASSES, spans=(), step_time_s=1.0)

    assert in_whole_steps(timeline) is timeline


def test_fresh_gradients_have_no_staleness() -> None:
    assert report().staleness is None


def test_staleness_is_a_distribution() -> None:
    log = replace(LOG, applied=100, staleness=((0, 10), (1, 60), (2, 26), (7, 4)), max_lead=3)

    ages = report(log).staleness

    assert ages is not None
    assert (ages.mean, ages.p95, ages.maximum, ages.max_lead) == (1.4, 2, 7, 3)
    assert ages.histogram == log.staleness


def test_a_step_in_turn_lasts_as_long_as_its_longest_class_and_waits_for_first_passes_are_no_part_of_it() -> None:
    host = [replace(busy(place, 0.0, 1.0), kind="host", name="host") for place in (0, 1)]
    receive = Span(rank_class=1, stream="recv_forward", kind="communication", name="F", start_s=3.0, end_s=4.0, dimension="pp")
    timeline = Timeline(
        rank_classes=CLASSES, spans=(*host, busy(0, 1.0, 3.0), busy(0, 5.0, 7.0), busy(1, 4.0, 8.0), receive), step_time_s=8.0
    )

    own = in_own_time(timeline)

    assert own.step_time_s == 7.0
    assert sorted((span.start_s, span.end_s) for span in own.spans) == [
        (0.0, 1.0),
        (0.0, 1.0),
        (0.0, 1.0),
        (1.0, 3.0),
        (1.0, 5.0),
        (5.0, 7.0),
    ]


def test_classes_without_passes_keep_their_time() -> None:
    timeline = Timeline(rank_classes=CLASSES, spans=(replace(busy(0, 2.0, 3.0), kind="optimizer"),), step_time_s=3.0)

    assert in_own_time(timeline) == timeline
