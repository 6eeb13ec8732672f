"""Many steps at uneven paces: whatever the program, the policy and the jitter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.engine.pace import Drawn, Exponential
from clustersim.engine.passes import Passes, ReplaySettings
from clustersim.engine.policies import Asynchronous, BackupWorkers, PacePolicy, StaleSynchronous, Synchronous
from clustersim.engine.simulate import replay
from clustersim.engine.steps import replay_steps
from clustersim.program.program import Program, ProgramBuilder
from clustersim.program.tasks import Lane
from clustersim.trace.step_log import StepLog
from clustersim.trace.timeline import RankClass, Timeline
from tests.property.test_contention import INLINE, N_CLASSES, programs
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    joined,
    make_machine,
    paced,
    same_times,
    work,
    workers,
)

MACHINE = make_machine(network=LATENT_NETWORK)
SLOWDOWNS = st.sampled_from([0.1, 0.5, 1.0, 1.3, 2.0, 7.0])
SECONDS = st.lists(st.sampled_from([0.25, 1.0, 1.3, 3.0]), min_size=1, max_size=5)
SEEDS = st.integers(0, 1000)


@dataclass(frozen=True)
class Story:
    """Workers that nothing joins, and how they keep together."""

    seconds: list[float]
    n_steps: int
    policy: PacePolicy
    seed: int | None

    def log(self) -> StepLog:
        return self.timeline().steps or pytest.fail("several steps have a log")

    def timeline(self) -> Timeline:
        jitter = None if self.seed is None else Drawn(Exponential(), [1] * len(self.seconds), seed=self.seed)
        return replay_steps(workers(*self.seconds), MACHINE, n_steps=self.n_steps, jitter=jitter, policy=self.policy)[0]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    seconds = draw(SECONDS)
    policies: st.SearchStrategy[PacePolicy] = st.one_of(
        st.just(Synchronous()),
        st.just(Asynchronous()),
        st.builds(StaleSynchronous, staleness=st.integers(0, 4)),
        st.builds(BackupWorkers, n_needed=st.integers(1, len(seconds))),
    )
    return Story(seconds, draw(st.integers(1, 8)), draw(policies), draw(st.none() | SEEDS))


@settings(deadline=None)
@given(programs(), st.tuples(SLOWDOWNS, SLOWDOWNS))
def test_one_of_many_steps_is_a_replay(program: Program, slowdowns: tuple[float, float]) -> None:
    machine = paced(MACHINE, *slowdowns)

    one, _ = replay(program, machine)
    many, _ = replay_steps(program, machine, n_steps=1)

    assert same_times(many, one)


@st.composite
def crowded(draw: st.DrawFn) -> Program:
    """Return passes that all use the same links, most of which wait for each other within a step."""
    builder, lanes = ProgramBuilder(), [Lane(rank_class=each, stream="compute") for each in range(N_CLASSES)]
    moved = replace(collective(INLINE[0], 5e7), algorithm="ring")
    for number in range(draw(st.integers(2, 6))):
        after = [(earlier,) for earlier in range(number) if draw(st.sampled_from([True, True, False]))]
        if number and draw(st.integers(0, 3)) == 0:
            both = [lane._replace(stream="beside") for lane in lanes]
            builder.add((number,), communicate(INLINE[1], 1e6), both, after=after)
        else:
            action = compute(work(draw(st.sampled_from([1e-5, 3e-4]))), moved, repeat=draw(st.integers(1, 2)))
            builder.add((number,), action, [draw(st.sampled_from(lanes))], after=after)
    classes = (
        RankClass(name=f"stage {each}", stage=each, representative_rank=4 * each, ranks=4 * each + np.arange(4))
        for each in range(N_CLASSES)
    )
    return builder.build(classes)


@settings(deadline=None)
@given(st.one_of(crowded(), programs()), st.tuples(SLOWDOWNS, SLOWDOWNS))
def test_many_steps_are_the_same_with_and_without_the_collapse_pass(program: Program, slowdowns: tuple[float, float]) -> None:
    """Tasks that are taken to be alone are alone in every step, although others are steps ahead."""
    machine, jitter = paced(MACHINE, *slowdowns), Drawn(Exponential(), [1] * N_CLASSES, seed=1)

    fast, _ = replay_steps(program, machine, n_steps=4, jitter=jitter)
    slow, _ = replay_steps(program, replace(machine, settings=ReplaySettings(passes=Passes(collapse=False))), n_steps=4, jitter=jitter)

    assert [span.end_s for span in fast.spans] == [span.end_s for span in slow.spans]
    assert [link.bytes for link in fast.links] == pytest.approx([link.bytes for link in slow.links], rel=1e-12)


@settings(deadline=None)
@given(programs(), st.tuples(SLOWDOWNS, SLOWDOWNS))
def test_a_class_begins_a_step_when_all_of_its_own_has_ended(program: Program, slowdowns: tuple[float, float]) -> None:
    timeline, _ = replay_steps(program, paced(MACHINE, *slowdowns), n_steps=3)

    for rank_class in range(N_CLASSES):
        for step in (1, 2):
            starts = [span.start_s for span in timeline.spans if (span.rank_class, span.step) == (rank_class, step)]
            ends = [span.end_s for span in timeline.spans if (span.rank_class, span.step) == (rank_class, step - 1)]
            assert min(starts, default=0.0) >= max(ends, default=0.0)


@settings(deadline=None)
@given(stories())
def test_the_account_adds_up(story: Story) -> None:
    timeline = story.timeline()
    log = timeline.steps or pytest.fail("several steps have a log")

    ended = sum(each.steps for each in log.classes)
    assert len(log.step_times_s) == story.n_steps
    assert fsum(log.step_times_s) == pytest.approx(log.duration_s, rel=1e-12)
    assert min(log.step_times_s) >= 0.0
    assert sum(each.waited_steps for each in log.classes) <= story.n_steps
    assert sum(count for _, count in log.staleness) == log.applied == ended - sum(each.dropped for each in log.classes)
    assert timeline.step_time_s * story.n_steps == pytest.approx(timeline.duration_s, rel=1e-12)
    for rank_class, each in enumerate(log.classes):
        busy_s = fsum(span.end_s - span.start_s for span in timeline.spans if span.rank_class == rank_class)
        # One pass at a time.
        assert busy_s + each.idle_s == pytest.approx(log.duration_s, rel=1e-9)
        assert each.last_end_s <= log.duration_s
        assert each.waited_steps == 0 or each.waited_s > 0.0


@settings(deadline=None)
@given(SECONDS, st.integers(0, 3), SEEDS)
def test_nobody_is_further_ahead_than_allowed(seconds: list[float], staleness: int, seed: int) -> None:
    timeline = Story(seconds, 8, StaleSynchronous(staleness=staleness), seed).timeline()

    assert timeline.steps is not None
    assert timeline.steps.max_lead <= staleness
    ends = [[span.end_s for span in timeline.spans if span.rank_class == each] for each in range(len(seconds))]
    for span in timeline.spans:
        slowest = min(sum(end_s <= span.start_s for end_s in of_class) for of_class in ends)
        assert span.step - slowest <= staleness


@settings(deadline=None)
@given(SECONDS, SEEDS)
def test_a_bound_of_zero_is_a_collective_that_takes_no_time(seconds: list[float], seed: int) -> None:
    jitter = Drawn(Exponential(), [1] * len(seconds), seed=seed)

    bulk = Story(seconds, 6, StaleSynchronous(staleness=0), seed).log()
    # Without a network of its own, so that nothing comes on top.
    ideal, _ = replay_steps(joined(*seconds), make_machine(), n_steps=6, jitter=jitter)

    assert ideal.steps is not None
    assert bulk.step_times_s == pytest.approx(ideal.steps.step_times_s, rel=1e-9)
    for mine, theirs in zip(bulk.classes, ideal.steps.classes, strict=True):
        assert (mine.idle_s, mine.waited_s) == (pytest.approx(theirs.idle_s, abs=1e-9), pytest.approx(theirs.waited_s, abs=1e-9))
        assert mine.waited_steps == theirs.waited_steps


@settings(deadline=None)
@given(SECONDS, st.integers(0, 3), SEEDS)
def test_a_looser_bound_is_never_slower(seconds: list[float], staleness: int, seed: int) -> None:
    """Nobody begins a step later because others are let on sooner."""
    tight, loose = (Story(seconds, 8, StaleSynchronous(staleness=bound), seed).log() for bound in (staleness, staleness + 1))

    assert loose.duration_s <= tight.duration_s * (1 + 1e-12)


@settings(deadline=None)
@given(SECONDS, SEEDS)
def test_waiting_in_a_barrier_is_charged_to_somebody(seconds: list[float], seed: int) -> None:
    log = Story(seconds, 8, StaleSynchronous(staleness=0), seed).log()

    waited_s, idle_s = fsum(each.waited_s for each in log.classes), fsum(each.idle_s for each in log.classes)
    assert waited_s == pytest.approx(idle_s / len(seconds), rel=1e-9, abs=1e-9)
