"""Hand points to workers and collect what comes back, although workers may die."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from functools import partial
from typing import Final

from clustersim.apps.study.point import Base, Point, PointOutcome, ResultRow, evaluate
from clustersim.apps.study.pools import AHEAD, KEPT, WorkerPool, in_order
from clustersim.errors import ScenarioError

MOST_DEATHS: Final = 2
"""Workers that a point may take with it, while nothing else is at work, before it counts as failed."""
_PATIENCE_S: Final = 0.5
"""Time between checks for Ctrl-C, in seconds, where waiting would not notice it."""


class _Handing:
    """Points that wait, points at work, and points that were at work when a worker died."""

    def __init__(self, base: Base, points: Sequence[Point], pool: WorkerPool) -> None:
        self.base, self.pool = base, pool
        self.waiting = deque(points)
        self.suspects = deque[Point]()
        self.deaths: dict[int, int] = {}
        self.running: dict[Future[PointOutcome], Point] = {}

    def hand_out(self) -> None:
        """Keep all workers busy; a suspect runs alone, to identify the one that killed its worker."""
        if self.suspects:
            if not self.running:
                self._submit(self.suspects)
            return
        if any(point.number in self.deaths for point in self.running.values()):
            return
        while self.waiting and len(self.running) < AHEAD * self.pool.n_workers and self._submit(self.waiting):
            pass

    def _submit(self, queue: deque[Point]) -> bool:
        """Hand out the first point of a queue, and return whether it was taken."""
        try:
            future = self.pool.executor.submit(evaluate, self.base, queue[0].values)
        except BrokenExecutor:
            if not self.running:
                self.pool.renew()
            # Else what is running will say so too, and is tried again.
            return False
        self.running[future] = queue.popleft()
        return True

    def collect(self) -> Iterator[tuple[Point, PointOutcome]]:
        """Yield what has finished since the last time."""
        done, _ = wait(self.running, timeout=_PATIENCE_S, return_when=FIRST_COMPLETED)
        if not done:
            self.pool.check()
        for future in sorted(done, key=lambda each: self.running[each].number):
            error = None if future.cancelled() else future.exception()
            if isinstance(error, BrokenExecutor):
                continue
            point = self.running.pop(future)
            if future.cancelled() or isinstance(error, CancelledError):
                raise ScenarioError("the scheduler gave up the work", hint=KEPT)
            yield point, future.result() if error is None else _lost(f"{type(error).__name__}: {error}")
        if any(not each.cancelled() and isinstance(each.exception(), BrokenExecutor) for each in done):
            yield from self._after_death()

    def _after_death(self) -> Iterator[tuple[Point, PointOutcome]]:
        lost = sorted(self.running.values(), key=lambda point: point.number)
        if len(lost) == 1:
            (point,) = lost
            self.deaths[point.number] = self.deaths.get(point.number, 0) + 1
            if self.deaths[point.number] >= MOST_DEATHS:
                lost = []
                yield point, _lost("the worker died each time: killed, or out of memory")
        for point in lost:
            self.deaths.setdefault(point.number, 0)
        self.suspects.extend(lost)
        self.running.clear()
        self.pool.renew()


def run_points(base: Base, points: Sequence[Point], pool: WorkerPool) -> Iterator[tuple[Point, PointOutcome]]:
    """Yield each point with what came of it, in the order in which they finish.

    Where a worker dies, all are started anew and what was at work is tried again, point by point.
    """
    handing = _Handing(base, points, pool)
    while handing.waiting or handing.suspects or handing.running:
        handing.hand_out()
        yield from handing.collect()


def evaluated(base: Base, points: Sequence[Point], *, jobs: int | None = 1) -> tuple[ResultRow, ...]:
    """Return what comes of some points, in their order.

    Parameters
    ----------
    jobs
        Processes, None for one for each processor.
    """
    outcomes = in_order(partial(evaluate, base), [point.values for point in points], jobs=jobs)
    return tuple(ResultRow(point=point, outcome=outcome) for point, outcome in zip(points, outcomes, strict=True))


def _lost(reason: str) -> PointOutcome:
    return PointOutcome(status="failed", reason=" ".join(reason.split()))
