"""Show the progress of a run: a line while it lasts, a profile at its end."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

from clustersim.cli.terminal import notice, tells_a_person
from clustersim.progress import Watcher, watched_by

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S: Final = 1.0
"""Minimum time before a run is shown, in seconds."""
EVERY_S: Final = 10.0
"""Time between lines of progress where stderr is no terminal, in seconds."""


@dataclass(slots=True)
class Profile(Watcher):
    """Seconds of every phase, those inside others included in them."""

    phases: dict[tuple[str, ...], tuple[int, float]] = field(default_factory=dict[tuple[str, ...], tuple[int, float]])
    """Count and total seconds of each phase, by path from the outermost phase."""
    _open: list[str] = field(default_factory=list[str])
    _began_s: float = field(default_factory=perf_counter)

    def begun(self, phase: str) -> None:
        """Take notice that a phase has begun."""
        self._open.append(phase)
        self.phases.setdefault(tuple(self._open), (0, 0.0))

    def ended(self, phase: str, seconds: float) -> None:
        """Take notice that the innermost phase has ended."""
        times, before_s = self.phases[tuple(self._open)]
        self.phases[tuple(self._open)] = (times + 1, before_s + seconds)
        assert self._open.pop() == phase

    def lines(self) -> list[str]:
        """Return a table of all phases, in order of their first start, and of the time outside them."""
        total_s = perf_counter() - self._began_s
        named_s = sum(seconds for way, (_, seconds) in self.phases.items() if len(way) == 1)
        rows = [("  " * (len(way) - 1) + way[-1], times, seconds) for way, (times, seconds) in self.phases.items()]
        rows += [("elsewhere", 1, total_s - named_s), ("altogether", 1, total_s)]
        width = max(len(name) for name, _, _ in rows)
        return [
            f"{name:<{width}}  {seconds:8.3f} s  {100 * seconds / total_s:5.1f} %{f'  {times} times' if times > 1 else ''}"
            for name, times, seconds in rows
        ]


@dataclass(slots=True)
class _PhaseProgress:
    """A phase that goes on, and how far it is."""

    name: str
    n_done: int = 0
    n_total: int | None = None
    counts: str = ""
    """Work done in words, where no total is known."""

    @property
    def text(self) -> str:
        """Name and progress."""
        share = "" if self.n_total is None else f"{self.n_done:,} of {self.n_total:,}"
        return ", ".join(filter(None, (self.name, share, self.counts)))


@dataclass(slots=True)
class ProgressLine(Watcher):
    """The current phase: on a terminal a line, shown after a delay and removed at the end; elsewhere a new line now and then."""

    on_terminal: bool = True
    _open: list[_PhaseProgress] = field(default_factory=list[_PhaseProgress])
    """The outermost first."""
    _began_s: float = field(default_factory=perf_counter)
    _progress: Progress | None = None
    _task: TaskID | None = None
    _told_s: float = field(default_factory=perf_counter)
    _place: str = ""
    _notes: dict[str, str] = field(default_factory=dict[str, str])
    """Findings so far, by phase."""
    _told: dict[str, None] = field(default_factory=dict[str, None])

    def begun(self, phase: str) -> None:
        """Take notice that a phase has begun."""
        self._open.append(_PhaseProgress(phase))
        self._notes.pop(phase, None)
        self._show()

    def ended(self, phase: str, seconds: float) -> None:  # noqa: ARG002 - a bar shows what goes on, not how long it took
        """Take notice that a phase has ended; that of a generator which an error left open ends late, after those around it."""
        places = [place for place, each in enumerate(self._open) if each.name == phase]
        del self._open[places[-1] if places else len(self._open) :]
        self._show()

    def advanced(self, n_done: int, n_total: int) -> None:
        """Take notice of how much of the innermost phase is done."""
        if self._open:
            self._open[-1].n_done, self._open[-1].n_total = n_done, n_total
            self._show()

    def counted(self, text: str) -> None:
        """Take notice of what the innermost phase has done."""
        if self._open:
            self._open[-1].counts = text
            self._show()

    def noted(self, text: str) -> None:
        """Take notice of what the innermost phase has found so far."""
        open_ = [each.name for each in self._open]
        if open_:
            self._notes = {phase: note for phase, note in self._notes.items() if phase in open_} | {open_[-1]: text}

    def told(self, text: str) -> None:
        """Write a line once, however often its file is read."""
        if text not in self._told:
            self._told[text] = None
            notice(text)

    def stopped(self, hint: str) -> None:
        """Say how far it was, and what was found so far."""
        notice(f"stopped after {self._place}")
        for line in (*"\n".join(self._notes.values()).splitlines(), hint):
            notice(line)

    def close(self) -> None:
        """Take the line away."""
        if self._progress is not None:
            self._progress.stop()

    def shown(self) -> str:
        """Return the outermost phase with a total, or the line would begin again with each part of it, and counts inside it."""
        whole = next((each for each in self._open if each.n_total is not None), None)
        within = [each for each in self._open if each.counts and each is not whole]
        return "; ".join(each.text for each in filter(None, (whole, *within))) or self._open[-1].name

    def _show(self) -> None:
        if not self._open:
            return
        now_s = perf_counter()
        self._place = f"{now_s - self._began_s:.0f} s: {self.shown()}"
        if not self.on_terminal:
            if now_s - self._told_s >= EVERY_S:
                self._told_s = now_s
                notice(self._place)
            return
        if now_s - self._began_s < PATIENCE_S:
            return
        if self._progress is None:
            self._progress = _make_progress()
            self._task = self._progress.add_task("", total=None)
            self._progress.start()
        assert self._task is not None
        self._progress.update(self._task, description=self.shown())


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        transient=True,
    )


@contextmanager
def watched(*, profiles: bool = False, shows: bool = True, hint: str | None = None) -> Generator[None]:
    """Show progress on stderr, and a profile at the end if requested.

    Parameters
    ----------
    hint
        Ways to a faster end; with one, a person who stops the run is told how far it was and what was found so far.
    """
    bar = ProgressLine(on_terminal=tells_a_person()) if shows else None
    profile = Profile() if profiles else None
    try:
        with watched_by(*(watcher for watcher in (bar, profile) if watcher is not None)):
            yield
    except KeyboardInterrupt:
        if bar is not None and hint is not None:
            bar.close()
            bar.stopped(hint)
        raise
    finally:
        if bar is not None:
            bar.close()
    if profile is not None:
        for line in profile.lines():
            notice(line)
