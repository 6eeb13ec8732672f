"""Executors and their names: this process, local processes (``local``), or Dask (``dask``, ``dask:ADDRESS``)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from multiprocessing.connection import wait
from time import perf_counter
from types import ModuleType
from typing import Final, ParamSpec, TypeVar

from clustersim.documents.near_names import choices_hint
from clustersim.errors import ScenarioError
from clustersim.progress import advanced

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

KEPT: Final = "what is finished is kept, and the same command goes on"
"""Advice after workers or room on the disk are lost."""
PATIENCE_S: Final = 1.0
"""Duration of work in this process before others are started for the rest, in seconds."""
AHEAD: Final = 2
"""Points that are handed out for each worker, so that none waits for the next one."""


class WorkerPool:
    """An executor that can be restarted, and the number of its workers."""

    def __init__(self, executor: Executor, n_workers: int) -> None:
        self.executor, self.n_workers = executor, n_workers

    def renew(self) -> None:
        """Begin again with fresh workers after one of them has died, where the executor does not do so itself."""

    def check(self) -> None:
        """Raise a ScenarioError if no worker is alive while nothing finishes, where that breaks no executor."""


class InlineExecutor(Executor):
    """Runs tasks at once, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the result of a call, as a future that has ended."""
        future = Future[T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to who asks for the result
            future.set_exception(error)
        return future


class LocalPool(WorkerPool):
    """Local processes on this machine, each started afresh (``spawn``)."""

    def __init__(self, n_workers: int) -> None:
        self._others = {child.pid for child in multiprocessing.active_children()}
        self._managers: list[threading.Thread] = []
        super().__init__(self._start(n_workers), n_workers)

    def renew(self) -> None:
        """Replace the processes by new ones."""
        self.stop()
        self.executor = self._start(self.n_workers)

    def stop(self) -> None:
        """End all processes, also those that are busy, and wait for their end."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        mine = [child for child in multiprocessing.active_children() if child.pid not in self._others]
        for child in mine:
            child.kill()
        for child in mine:
            child.join()
        # The interpreter wakes the manager at its own end, and must not meet one that is just closing.
        for manager in self._managers:
            manager.join()

    def _start(self, n_workers: int) -> Executor:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(n_workers, mp_context=context, initializer=begin_worker)
        threads = set(threading.enumerate())
        with interrupts_kept_from_children(), _script_kept_from_children():
            # One call for each, or later ones would be started outside.
            for _ in range(n_workers):
                executor.submit(os.getpid)
        self._managers = [each for each in threading.enumerate() if each not in threads and not each.daemon]
        return executor


@contextmanager
def _script_kept_from_children() -> Generator[None]:
    """Start processes without the user's script, which ``spawn`` would run again for functions of its own; all of ours are in modules."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def begin_worker() -> None:
    """Make a process ready: it ends with the process that started it, and leaves Ctrl-C to that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


@contextmanager
def local_pool(n_workers: int) -> Generator[WorkerPool]:
    """Yield this process for one worker, otherwise local processes that end in any case."""
    if n_workers == 1:
        yield WorkerPool(InlineExecutor(), 1)
        return
    pool = LocalPool(n_workers)
    try:
        yield pool
    except BaseException:
        pool.stop()
        raise
    pool.executor.shutdown(wait=True)


def in_order(function: Callable[[S], T], items: Sequence[S], *, jobs: int | None = None, chunk: int = 1) -> Generator[T]:
    """Yield what a function gives for each item, in the order of the items, and report progress.

    The first ones are done in this process, and processes are started only where that takes long.

    Parameters
    ----------
    jobs
        Processes; one for each processor when omitted.
    chunk
        Items that a process is handed at once.

    Raises
    ------
    ScenarioError
        When a process dies.
    """
    most, n_done, began_s = jobs or usable_cores(), 0, perf_counter()
    while n_done < len(items) and (most == 1 or n_done + 1 == len(items) or perf_counter() - began_s < PATIENCE_S):
        yield function(items[n_done])
        n_done += 1
        advanced(n_done, len(items))
    if n_done == len(items):
        return
    with local_pool(min(most, len(items) - n_done)) as pool:
        try:
            for found in pool.executor.map(function, items[n_done:], chunksize=chunk):
                yield found
                n_done += 1
                advanced(n_done, len(items))
        except BrokenExecutor as error:
            raise ScenarioError("a worker died: killed, or out of memory", hint="use fewer --jobs") from error


def usable_cores() -> int:
    """Return how many processors this process may use; one that works for another has a single one, and starts no others."""
    if multiprocessing.parent_process() is not None:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_after(sentinel: int) -> None:
    # A parent that is killed cannot tell its children, and they would wait for work for ever.
    wait([sentinel])
    os._exit(1)


@contextmanager
def interrupts_kept_from_children() -> Generator[None]:
    """Hold Ctrl-C back inside: processes that are started meanwhile never see it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


LOCAL: Final = "local"
DASK: Final = "dask"
ADDRESS: Final = "dask:"


def check_executor(name: str) -> None:
    """Refuse an executor that does not exist, or whose library is not installed, before anything else is done.

    Raises
    ------
    ScenarioError
        Says which there are.
    """
    if name not in {LOCAL, DASK} and (not name.startswith(ADDRESS) or name == ADDRESS):
        hint = choices_hint(name, (LOCAL, DASK, "dask:tcp://host:8786"))
        raise ScenarioError(f"'{name}' is no executor", field="--executor", hint=hint)
    if name != LOCAL and find_spec("distributed") is None:
        raise ScenarioError("Dask is not installed", field="--executor", hint="pip install 'clustersim[dask]'")


def make_pool(name: str, jobs: int | None, n_points: int) -> AbstractContextManager[WorkerPool]:
    """Return the workers of an executor, no more than there are points; by default as many as processors."""
    most = min(jobs or usable_cores(), n_points)
    if name == LOCAL:
        return local_pool(most)
    from clustersim.apps.study.dask_pool import cluster_pool, scheduler_pool

    return cluster_pool(most) if name == DASK else scheduler_pool(name.removeprefix(ADDRESS))
