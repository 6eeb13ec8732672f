"""Replays of the page: each in a process of its own, which ends when nobody waits for it or it takes too much."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BoundedSemaphore
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar, cast

from clustersim.apps.study.pools import begin_worker, interrupts_kept_from_children
from clustersim.errors import ClustersimError, ScenarioError
from clustersim.progress import Watcher, watched_by
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

T = TypeVar("T")

MOST_AT_ONCE: Final = 2
"""Replays of all pages together; the next one waits."""
MOST_S: Final = 60.0
"""Duration of one replay, or of one search for layouts."""
MOST_BYTES: Final = 1.5e9
"""Resident memory of one replay, where the system tells it (``/proc``)."""
_LOOK_S: Final = 0.1
"""Interval of checks that somebody still waits, in seconds."""
_SPAWN: Final = multiprocessing.get_context("spawn")
_NUMBERS: Final = count(1)
REPLAYS: Final = "clustersim.apps.compare.compared_runs"
"""Module that imports those of a replay."""
_CHARTS: Final = "clustersim.report.page.interactive_charts"
_PRELOADED: Final = ("__main__", "clustersim.apps.ui.callbacks", REPLAYS, "clustersim.apps.ui.layouts", _CHARTS)
"""Modules that all processes share, so that each of them starts at once."""


class LimitError(ScenarioError):
    """A replay that is too large for the page."""


class AbandonedError(ClustersimError):
    """Nobody waits for a result any more."""


class WorkerError(ClustersimError):
    """A replay that ended as a bug; names the error and its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """A request of a page."""

    name: str
    """Page, and the part of it that waits: a newer request of the same name takes the place of an older one."""
    is_gone: Callable[[], bool]
    """Whether the connection has ended."""
    number: int = field(default_factory=lambda: next(_NUMBERS))
    """In the order of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Processes for the replays of all pages."""

    most_s: float = MOST_S
    most_bytes: float = MOST_BYTES
    _places: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(MOST_AT_ONCE))
    _progress: dict[str, str] = field(default_factory=dict[str, str])
    """Progress of the request of each name, in words."""
    _newest: dict[str, int] = field(default_factory=dict[str, int])
    """Number of the newest request of each name, also after its end: an older one looks for it now and then."""

    def call(self, asker: Asker, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function gives in a process of its own.

        Raises
        ------
        AbandonedError
            When the page has asked anew, or is gone.
        LimitError
            When the function takes too long, or too much memory.
        WorkerError
            When it raises anything but an error of clustersim, which is raised here as it is.
        """
        self._newest[asker.name] = max(asker.number, self._newest.get(asker.name, 0))
        self._check_wanted(asker)
        while not self._places.acquire(timeout=_LOOK_S):
            self._check_wanted(asker)
        try:
            return self._result(asker, function, arguments)
        finally:
            self._places.release()

    def progress(self, name: str) -> str:
        """Return the progress of the request of a name, in words; empty where it is not known."""
        return self._progress.get(name, "")

    def abandon(self, name: str) -> None:
        """End the request of a name."""
        if name in self._newest:
            self._newest[name] = next(_NUMBERS)

    def _check_wanted(self, asker: Asker) -> None:
        if self._newest.get(asker.name, 0) > asker.number or asker.is_gone():
            raise AbandonedError("nobody waits for this any more")

    def _result(self, asker: Asker, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        context = _context()
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(sending, function, arguments), daemon=True)
        process.start()
        sending.close()
        ends_s = monotonic() + self.most_s
        try:
            answer: object = ""
            while isinstance(answer, str):
                if answer:
                    self._progress[asker.name] = answer
                while not receiving.poll(_LOOK_S):
                    self._check_wanted(asker)
                    self._check_limits(process.pid, ends_s)
                answer = receiving.recv()
        except EOFError as ended:
            raise LimitError("the replay was killed, as happens where a machine runs out of memory") from ended
        finally:
            self._progress.pop(asker.name, None)
            process.kill()
            process.join()
            receiving.close()
        result, error = cast("tuple[T, Exception | None]", answer)
        if error is not None:
            raise error
        return result

    def _check_limits(self, pid: int | None, ends_s: float) -> None:
        if monotonic() > ends_s:
            raise LimitError(f"this takes more than {format_quantity(self.most_s, 's')}, the limit of this page")
        if _resident_bytes(pid) > self.most_bytes:
            raise LimitError(f"this takes more than {format_quantity(self.most_bytes, 'B')} of memory, the limit of this page")


def make_ready() -> None:
    """Begin to load what processes share, so that the first of them starts as fast as the others."""
    if _context() is not _SPAWN:
        with interrupts_kept_from_children():
            forkserver.ensure_running()


@cache
def _context() -> ForkServerContext | SpawnContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return _SPAWN
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context


def stop() -> None:
    """End all processes."""
    for process in multiprocessing.active_children():
        process.kill()


@dataclass(slots=True, kw_only=False)
class _ProgressWatcher(Watcher):
    """A watcher that sends the progress of a process, at most so often as somebody looks."""

    sending: Connection
    _phases: list[str] = field(default_factory=list[str])
    _next_s: float = 0.0

    def begun(self, phase: str) -> None:
        """Take notice that a phase has begun."""
        self._phases.append(phase)

    def ended(self, phase: str, seconds: float) -> None:  # noqa: ARG002 - only what goes on is sent
        """Take notice that the innermost phase has ended."""
        self._phases.pop()

    def advanced(self, n_done: int, n_total: int) -> None:
        """Send the innermost phase and its progress."""
        self.counted(f"{n_done} of {n_total}")

    def counted(self, text: str) -> None:
        """Send the innermost phase and what it has done."""
        if self._phases and monotonic() >= self._next_s:
            self._next_s = monotonic() + _LOOK_S
            self.sending.send(f"{self._phases[-1]}: {text}")


def _work(sending: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    begin_worker()
    try:
        with watched_by(_ProgressWatcher(sending)):
            answer = (function(*arguments), None)
    except ClustersimError as error:
        answer = (None, error)
    except MemoryError:
        answer = (None, LimitError("this takes more memory than there is"))
    except Exception as error:  # noqa: BLE001 - a bug is told on the page, which goes on
        place = traceback.extract_tb(error.__traceback__)[-1]
        answer = (None, WorkerError(f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"))
    sending.send(answer)


def _resident_bytes(pid: int | None) -> float:
    """Return the memory of a process; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
