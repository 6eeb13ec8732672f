"""Work in this process and in others."""

from __future__ import annotations

import math
import operator
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.apps.study import pools
from clustersim.apps.study.pools import in_order
from clustersim.errors import ScenarioError
from clustersim.progress import Watcher, watched_by


class Told(Watcher):
    def __init__(self) -> None:
        self.progress: list[tuple[int, int]] = []

    def advanced(self, n_done: int, n_total: int) -> None:
        self.progress.append((n_done, n_total))


def test_what_is_quick_is_done_in_this_process() -> None:
    assert list(in_order(lambda item: (item, os.getpid()), [1, 2, 3], jobs=2)) == [(each, os.getpid()) for each in (1, 2, 3)]


@pytest.mark.parametrize(("jobs", "chunk"), [(1, 1), (2, 1), (2, 3), (None, 1)])
def test_the_order_is_that_of_the_items_and_progress_is_told(jobs: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)
    told = Told()

    with watched_by(told):
        found = list(in_order(math.factorial, range(6), jobs=jobs, chunk=chunk))

    assert found == [1, 1, 2, 6, 24, 120]
    assert told.progress == [(number, 6) for number in range(1, 7)]


def test_what_takes_long_gets_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)

    # Each has a core to itself, and says so.
    assert list(in_order(eval, ["__import__('multiprocessing').parent_process() is not None"] * 2, jobs=2)) == [True, True]


def test_a_worker_that_dies_is_an_error_and_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)

    with pytest.raises(ScenarioError, match="a worker died: killed, or out of memory"):
        list(in_order(os._exit, [1, 1], jobs=2))


def test_an_error_of_the_work_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)

    with pytest.raises(ZeroDivisionError):
        list(in_order(operator.methodcaller("__rfloordiv__", 1), [0, 0], jobs=2))


def test_a_script_without_a_guard_is_not_run_again_by_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    lines = (
        "from os import getpid",
        "from clustersim.apps.study.pools import LocalPool",
        "pool = LocalPool(2)",
        "print(pool.executor.submit(getpid).result() != getpid())",
        "pool.stop()",
    )
    script.write_text("\n".join(lines), encoding="utf-8")

    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("True\n", "", 0)
