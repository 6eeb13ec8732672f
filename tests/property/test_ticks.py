"""Time in whole ticks: a replay does not depend on the moment at which it begins."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from clustersim.engine.passes import Passes, ReplaySettings
from clustersim.engine.replay import Replay
from clustersim.engine.steps import replay_steps
from clustersim.engine.world import World
from clustersim.network.in_flight import LONGEST_S, TICK_S
from clustersim.program.program import Program
from tests.property.test_contention import programs
from tests.unit.engine.factories import LATENT_NETWORK, joined, make_machine, replay_of

MACHINE = make_machine(network=LATENT_NETWORK)
N_TICKS = int(LONGEST_S / TICK_S)


def begun_at(start_s: float, program: Program, *, contended: bool) -> Replay:
    replay = replay_of(MACHINE, program, range(len(program.tasks)) if contended else ())
    replay.clock.world = World(start_s)
    return replay.run()


@settings(deadline=None)
@given(programs(), st.integers(0, N_TICKS // 2), st.booleans())
@example(Program(rank_classes=(), tasks=()), N_TICKS // 2, True)
def test_a_replay_that_begins_later_is_the_same_to_the_last_bit(program: Program, n_ticks: int, contended: bool) -> None:
    start_s = n_ticks * TICK_S

    first, later = (begun_at(each, program, contended=contended) for each in (0.0, start_s))

    assert [end_s + start_s for end_s in first.ended_s] == list(later.ended_s)
    assert [end_s - start_s for end_s in later.ended_s] == list(first.ended_s)
    assert later.clock.n_events == first.clock.n_events


def test_the_last_of_ten_thousand_steps_is_the_same_as_the_first_to_the_last_bit() -> None:
    machine = replace(MACHINE, settings=ReplaySettings(passes=Passes(repeat=False)))

    timeline, _ = replay_steps(joined(0.1, 0.3), machine, n_steps=10_000)

    assert timeline.steps is not None
    assert len(timeline.steps.step_times_s) == 10_000
    assert len(set(timeline.steps.step_times_s)) == 1
