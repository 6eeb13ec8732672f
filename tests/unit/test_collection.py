from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from clustersim.apps.run.running import run
from clustersim.collection import collection_paused


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


def test_the_collector_is_off_inside_and_on_again_after() -> None:
    gc.enable()

    with collection_paused():
        inside = gc.isenabled()

    assert not inside
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()

    with collection_paused():
        pass

    assert not gc.isenabled()


def test_an_error_inside_leaves_the_collector_on() -> None:
    gc.enable()

    with pytest.raises(RuntimeError, match="inside"), collection_paused():
        raise RuntimeError("inside")

    assert gc.isenabled()


def test_a_run_leaves_the_collector_on() -> None:
    gc.enable()

    run("1f1b")

    assert gc.isenabled()


def test_the_replay_leaves_nothing_that_only_the_collector_finds() -> None:
    changes = ["strategy.zero_stage=3", "strategy.pp=2", "training.global_batch_size=64"]
    run("llama3-8b-8xh100", set=changes)
    gc.collect()
    gc.disable()

    run("llama3-8b-8xh100", set=changes)

    # The YAML library leaves a few objects that refer to each other; passes and flights would be thousands.
    assert gc.collect() < 1_000
