from __future__ import annotations

import pytest

from clustersim.engine.world import SETTLED, Process, World
from clustersim.errors import DeadlockError, ScenarioError


def test_time_stops_when_a_job_has_ended() -> None:
    world = World()

    def endless() -> Process:
        while True:
            yield world.after(1.0)

    def job() -> Process:
        yield world.after(2.5)

    world.process(endless())
    world.run(until=world.process(job()))

    assert world.now == 2.5


def test_a_job_that_waits_for_what_never_happens_is_a_deadlock() -> None:
    world = World()

    def job() -> Process:
        yield world.signal()

    with pytest.raises(DeadlockError, match="nothing is left to happen"):
        world.run(until=world.process(job()))


def test_an_error_of_a_job_comes_out_whole() -> None:
    world = World()

    def job() -> Process:
        yield world.after(1.0)
        raise ScenarioError("wrong", hint="what would be right")

    world.process(job())
    with pytest.raises(ScenarioError) as caught:
        world.run()

    assert caught.value.hint == "what would be right"


def test_a_signal_comes_first_and_what_is_settled_last() -> None:
    world, said = World(0), list[str]()

    def first() -> Process:
        yield world.after(1)
        signal = world.signal()
        world.when(signal, lambda: said.append("signal"))
        signal.fire()

    def other() -> Process:
        yield world.after(1)
        said.append("other")

    def last() -> Process:
        yield world.after(1, SETTLED)
        said.append("settled")

    for process in (last(), first(), other()):
        world.process(process)
    world.run()

    assert said == ["signal", "other", "settled"]


def test_a_world_in_which_time_stands_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersim.engine.world.MOST_AT_ONCE", 100)
    world = World()

    def idle() -> Process:
        while True:
            yield world.after(0.0)

    world.process(idle())

    with pytest.raises(DeadlockError, match="a job never ends: 100 events at one time, 0"):
        world.run()
