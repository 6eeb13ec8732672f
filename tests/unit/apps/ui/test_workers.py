"""Replays in processes of their own."""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import pytest

from clustersim.apps.study.pools import usable_cores
from clustersim.apps.ui.layouts import layout_rows
from clustersim.apps.ui.workers import MOST_AT_ONCE, AbandonedError, Asker, LimitError, WorkerError, Workers, make_ready, stop
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.progress import advanced, phase

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")


@pytest.fixture(autouse=True)
def ready() -> None:
    make_ready()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def asker(name: str = "a page", is_gone: Callable[[], bool] = lambda: False) -> Asker:
    return Asker(name=name, is_gone=is_gone)


def ends(future: Future[None], error: type[Exception]) -> None:
    with pytest.raises(error):
        future.result(timeout=20)


def test_the_result_comes_from_another_process() -> None:
    assert Workers().call(asker(), os.getpid) != os.getpid()


def test_an_error_for_the_user_arrives_as_it_was_raised() -> None:
    with pytest.raises(ScenarioError) as caught:
        Workers().call(asker(), layout_rows, {"model": "mine.yaml"})

    assert (caught.value.message, caught.value.field) == ("no file is read here", "model")
    assert not isinstance(caught.value, LimitError | InfeasibleError)


def test_a_bug_is_named_with_its_place() -> None:
    with pytest.raises(WorkerError, match=re.escape("ZeroDivisionError: division by zero (_work, line ")):
        Workers().call(asker(), operator.truediv, 1, 0)


def test_a_newer_request_of_a_page_ends_the_older_one(threads: ThreadPoolExecutor) -> None:
    workers = Workers()
    older = threads.submit(workers.call, asker(), time.sleep, 60)
    time.sleep(0.5)

    assert workers.call(asker(), operator.add, 1, 2) == 3
    ends(older, AbandonedError)


def test_a_request_that_begins_late_does_not_end_a_newer_one(threads: ThreadPoolExecutor) -> None:
    workers, older = Workers(), asker()
    newer = threads.submit(workers.call, asker(), time.sleep, 2)
    time.sleep(0.5)

    with pytest.raises(AbandonedError):
        workers.call(older, operator.add, 1, 2)

    assert newer.result(timeout=20) is None


def test_requests_of_other_pages_go_on(threads: ThreadPoolExecutor) -> None:
    workers = Workers()
    other = threads.submit(workers.call, asker("another page"), time.sleep, 1)
    time.sleep(0.2)

    workers.call(asker(), operator.add, 1, 2)

    assert other.result(timeout=20) is None


def test_a_page_that_is_gone_ends_its_request() -> None:
    began_s = time.monotonic()

    with pytest.raises(AbandonedError):
        Workers().call(asker(is_gone=lambda: time.monotonic() - began_s > 0.5), time.sleep, 60)

    # Loose, for a busy machine; the call itself would take a minute.
    assert time.monotonic() - began_s < 30


def counted(pause_s: float) -> None:
    """Report progress once, and wait."""
    with phase("search"):
        advanced(3, 7)
        time.sleep(pause_s)


def test_a_request_tells_its_progress_until_it_is_stopped(threads: ThreadPoolExecutor) -> None:
    workers = Workers()
    waiting = threads.submit(workers.call, asker(), counted, 60.0)
    began_s = time.monotonic()
    while not (told := workers.progress("a page")) and time.monotonic() - began_s < 30:
        time.sleep(0.05)

    workers.abandon("a page")

    assert told == "search: 3 of 7"
    ends(waiting, AbandonedError)
    assert workers.progress("a page") == ""


def test_no_more_are_at_work_than_allowed_and_who_waits_can_leave(threads: ThreadPoolExecutor) -> None:
    workers, gone = Workers(), [False]
    working = [threads.submit(workers.call, asker(f"page {number}", lambda: gone[0]), time.sleep, 60) for number in range(MOST_AT_ONCE)]
    time.sleep(0.5)
    began_s = time.monotonic()

    with pytest.raises(AbandonedError):
        workers.call(asker("one more", lambda: time.monotonic() - began_s > 0.5), pytest.fail, "it is run")

    gone[0] = True
    for each in working:
        ends(each, AbandonedError)
    assert workers.call(asker("one more"), operator.add, 1, 2) == 3


def test_time_is_limited() -> None:
    with pytest.raises(LimitError, match="more than 500 ms"):
        Workers(most_s=0.5).call(asker(), time.sleep, 60)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell how much memory a process has")  # noqa: PTH110 - not a file
def test_memory_is_limited() -> None:
    with pytest.raises(LimitError, match="more than 600 MB of memory"):
        Workers(most_bytes=6e8).call(asker(), list, count())


def test_a_process_that_is_killed_is_told_and_is_no_bug(threads: ThreadPoolExecutor) -> None:
    killed = threads.submit(Workers().call, asker(), time.sleep, 60)
    time.sleep(0.5)

    stop()

    with pytest.raises(LimitError, match="was killed"):
        killed.result(timeout=20)


def test_a_worker_starts_no_workers() -> None:
    assert Workers().call(asker(), usable_cores) == 1
