"""A sweep on a Dask cluster: with a real scheduler and two workers on this machine."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from clustersim.apps.study import dask_pool
from clustersim.apps.study.dask_pool import cluster_pool, scheduler_pool
from clustersim.apps.study.point import run_points
from clustersim.apps.study.pools import InlineExecutor, WorkerPool
from clustersim.errors import ScenarioError
from tests.unit.apps.study.factories import make_question

pytest.importorskip("distributed")

ROOT = Path(__file__).parents[4]
DASHBOARD_PORT = 8787
"""On which Dask looks for its page."""
OVER = ("strategy.tp=1,2,3,4,8", "training.micro_batch_size=1,2,4,8")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:], "--no-dashboard"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until_it_says(process: subprocess.Popen[str], what: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(what, line):
            return
    raise AssertionError(f"it ended without saying {what}")


@contextmanager
def scheduler(n_workers: int) -> Generator[tuple[str, list[subprocess.Popen[str]]]]:
    """Give the address of a scheduler, and its processes: its own first."""
    address = f"tcp://127.0.0.1:{free_port()}"
    processes = [started("dask_scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2])]
    try:
        until_it_says(processes[0], "Scheduler at:")
        processes += [started("dask_worker", address, "--nthreads", "1", "--no-nanny") for _ in range(n_workers)]
        for worker in processes[1:]:
            until_it_says(worker, "Registered to:")
        yield address, processes
    finally:
        for process in reversed(processes):
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_worker_that_is_killed_midway_costs_no_point() -> None:
    question = make_question(*OVER)
    found = []

    with scheduler(2) as (address, processes), scheduler_pool(address) as pool:
        assert pool.n_workers == 2
        for point, outcome in run_points(question.base, question.points, pool):
            if not found:
                processes[1].kill()
            found.append((point.number, outcome))

    alone = [(point.number, outcome) for point, outcome in run_points(question.base, question.points, WorkerPool(InlineExecutor(), 1))]
    assert sorted(found, key=lambda each: each[0]) == alone


@pytest.mark.slow
def test_a_cluster_of_its_own_gives_the_same_beside_another_on_the_usual_port() -> None:
    question = make_question(*OVER)

    with socket.socket() as other:
        with suppress(OSError):  # then there is another already
            other.bind(("", DASHBOARD_PORT))
            other.listen()
        with cluster_pool(2) as pool:
            found = {point.number: outcome for point, outcome in run_points(question.base, question.points, pool)}

    here = WorkerPool(InlineExecutor(), 1)
    assert found == {point.number: outcome for point, outcome in run_points(question.base, question.points, here)}


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_scheduler_or_its_last_worker_that_goes_away_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    question = make_question("strategy.tp=1,2,4,8", "training.global_batch_size=64..1024 step 64")
    monkeypatch.setattr(dask_pool, "PATIENCE_S", 3.0)
    found = []

    def run(pool: WorkerPool, process: subprocess.Popen[str]) -> None:
        for point, _ in run_points(question.base, question.points, pool):
            if not found:
                process.kill()
            found.append(point)

    with scheduler(1) as (address, processes), pytest.raises(ScenarioError) as caught, scheduler_pool(address) as pool:
        run(pool, processes[index])

    # A client that lost its scheduler may first see that there are no workers; on a busy machine that is all it sees.
    seen = ("the Dask scheduler does not answer any more", "the Dask scheduler has no worker any more", "the scheduler gave up the work")
    assert caught.value.message in seen
    assert caught.value.hint == "what is finished is kept, and the same command goes on"
    assert len(found) < len(question.points)


def test_a_scheduler_that_does_not_answer_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "PATIENCE_S", 0.5)

    with pytest.raises(ScenarioError) as caught, scheduler_pool(f"tcp://127.0.0.1:{free_port()}"):
        pass

    assert re.fullmatch(r"the Dask scheduler at tcp://127.0.0.1:\d+ does not answer within 0.5 s", caught.value.message)
    assert (caught.value.field, caught.value.hint) == ("--executor", "check its address, and that it runs")


def test_a_scheduler_without_workers_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "PATIENCE_S", 1.0)

    with (
        scheduler(0) as (address, _),
        pytest.raises(ScenarioError, match="has no worker; start one with dask worker"),
        scheduler_pool(address),
    ):
        pass


def test_workers_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "__version__", "9.9.9")

    with (
        scheduler(1) as (address, _),
        pytest.raises(ScenarioError, match=r"worker tcp://.* has clustersim .*, and this is 9\.9\.9"),
        scheduler_pool(address),
    ):
        pass
