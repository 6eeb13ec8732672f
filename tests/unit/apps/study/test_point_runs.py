"""Points are handed to workers, although workers die."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import ParamSpec, TypeVar

import pytest

from clustersim.apps.study.point import Point, PointOutcome, run_points
from clustersim.apps.study.pools import InlineExecutor, WorkerPool, local_pool
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import make_base, make_question

P = ParamSpec("P")
T = TypeVar("T")


class FragileExecutor(Executor):
    """Does nothing but die of some points, and take with it all that it has in hand."""

    def __init__(self, deadly: Callable[[int, int], bool], log: list[tuple[int, ...]]) -> None:
        self.deadly, self.log, self.broken = deadly, log, False
        self.held: list[tuple[int, Future[PointOutcome]]] = []
        self.tries: dict[int, int] = {}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self.broken:
            raise BrokenExecutor
        values = args[1]
        assert isinstance(values, dict)
        future: Future[PointOutcome] = Future()
        self.held.append((values["number"], future))
        if len(self.held) == 2 or values["number"] >= 100:
            self._work()
        return future  # pyright: ignore[reportReturnType] - it is given nothing else than points

    def _work(self) -> None:
        numbers = tuple(number for number, _ in self.held)
        self.log.append(numbers)
        dies = any(self.deadly(number, len(self.log)) for number in numbers)
        for _, future in self.held:
            if dies:
                future.set_exception(BrokenExecutor())
            else:
                future.set_result(PointOutcome(status="ok"))
        self.held, self.broken = [], dies


class FragilePool(WorkerPool):
    """One worker with two points at a time, of which the last works at once."""

    def __init__(self, deadly: Callable[[int, int], bool]) -> None:
        self.deadly, self.log, self.n_renewed = deadly, list[tuple[int, ...]](), 0
        super().__init__(FragileExecutor(deadly, self.log), 1)

    def renew(self) -> None:
        self.n_renewed += 1
        self.executor = FragileExecutor(self.deadly, self.log)


def points(*numbers: int) -> list[Point]:
    return [Point(number=number, values={"number": number}) for number in numbers]


def run(pool: FragilePool, *numbers: int) -> dict[int, PointOutcome]:
    return {point.number: outcome for point, outcome in run_points(make_base(), points(*numbers), pool)}


def test_all_points_are_run_once() -> None:
    pool = FragilePool(lambda _, __: False)

    found = run(pool, 1, 2, 3, 104)

    assert {number: outcome.status for number, outcome in found.items()} == {1: "ok", 2: "ok", 3: "ok", 104: "ok"}
    assert pool.log == [(1, 2), (3, 104)]
    assert pool.n_renewed == 0


def test_a_point_that_kills_its_worker_each_time_is_the_only_one_that_fails() -> None:
    pool = FragilePool(lambda number, _: number == 102)

    found = run(pool, 101, 102, 103)

    assert [found[number].status for number in (101, 102, 103)] == ["ok", "failed", "ok"]
    assert found[102].reason == "the worker died each time: killed, or out of memory"


def test_what_was_lost_by_accident_is_tried_again() -> None:
    pool = FragilePool(lambda _, time: time == 1)

    found = run(pool, 101, 102, 103)

    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert pool.n_renewed == 1


def test_a_worker_that_died_while_it_had_nothing_to_do_is_no_loss() -> None:
    pool = FragilePool(lambda _, __: False)
    assert isinstance(pool.executor, FragileExecutor)
    pool.executor.broken = True

    assert {outcome.status for outcome in run(pool, 101, 102).values()} == {"ok"}
    assert pool.n_renewed == 1


class EndingExecutor(Executor):
    """Ends each future in the same way."""

    def __init__(self, end: Callable[[Future[PointOutcome]], object]) -> None:
        self.end = end

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[PointOutcome]()
        self.end(future)
        return future  # pyright: ignore[reportReturnType] - it is given nothing else than points


def test_work_that_the_scheduler_gives_up_is_an_error() -> None:
    pool = WorkerPool(EndingExecutor(lambda future: (future.cancel(), future.set_running_or_notify_cancel())), 1)

    with pytest.raises(ScenarioError, match="the scheduler gave up the work"):
        list(run_points(make_base(), points(1), pool))


def test_an_error_of_an_executor_is_the_reason_of_its_point() -> None:
    pool = WorkerPool(EndingExecutor(lambda future: future.set_exception(RuntimeError("no way\nto get there"))), 1)

    ((_, outcome),) = run_points(make_base(), points(1), pool)

    assert (outcome.status, outcome.reason) == ("failed", "RuntimeError: no way to get there")


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_no_point() -> None:
    question = make_question("strategy.tp=1,2,4,8", "training.micro_batch_size=1,2,4")
    found: dict[int, PointOutcome] = {}
    before = {child.pid for child in multiprocessing.active_children()}

    with local_pool(2) as pool:
        for point, outcome in run_points(question.base, question.points, pool):
            if not found:
                victim = next(child for child in multiprocessing.active_children() if child.pid not in before)
                victim.kill()
            found[point.number] = outcome

    alone = {point.number: outcome for point, outcome in run_points(question.base, question.points, WorkerPool(InlineExecutor(), 1))}
    assert found == alone
    assert {child.pid for child in multiprocessing.active_children()} <= before
