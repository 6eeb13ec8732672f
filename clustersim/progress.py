"""Progress of a run: named phases, and how far the longest have come, for a watcher."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Final


class Watcher:
    """An observer of progress, such as a progress bar or a profile; it ignores what it does not override."""

    def begun(self, phase: str) -> None:
        """Take notice that a phase has begun, inside the one that is going on."""

    def ended(self, phase: str, seconds: float) -> None:
        """Record the end of the innermost phase, after a number of seconds."""

    def advanced(self, n_done: int, n_total: int) -> None:
        """Take notice of how much of the innermost phase is done."""

    def counted(self, text: str) -> None:
        """Take notice of what the innermost phase has done, where nobody knows how much will come."""

    def noted(self, text: str) -> None:
        """Take notice of what the innermost phase has found so far."""

    def told(self, text: str) -> None:
        """Take a line that users should see, such as one on a file that was read."""


_WATCHERS: Final[ContextVar[tuple[Watcher, ...]]] = ContextVar("watchers", default=())


@contextmanager
def watched_by(*watchers: Watcher) -> Generator[None]:
    """Tell some watchers what goes on inside."""
    token = _WATCHERS.set((*_WATCHERS.get(), *watchers))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


@contextmanager
def phase(name: str) -> Generator[None]:
    """Report to observers that a phase runs inside.

    Examples
    --------
    >>> with phase("lower"):
    ...     pass
    """
    watchers = _WATCHERS.get()
    if not watchers:
        yield
        return
    for watcher in watchers:
        watcher.begun(name)
    began_s = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - began_s
        for watcher in watchers:
            watcher.ended(name, seconds)


def advanced(n_done: int, n_total: int) -> None:
    """Report the progress of the innermost phase to observers."""
    for watcher in _WATCHERS.get():
        watcher.advanced(n_done, n_total)


def counted(text: str) -> None:
    """Report what the innermost phase has done to observers, in words with counts: of a search nobody knows how much will come."""
    for watcher in _WATCHERS.get():
        watcher.counted(text)


def noted(text: str) -> None:
    """Report what the innermost phase has found so far to observers, for people who stop it."""
    for watcher in _WATCHERS.get():
        watcher.noted(text)


def told(text: str) -> None:
    """Pass a line that users should see to observers."""
    for watcher in _WATCHERS.get():
        watcher.told(text)
