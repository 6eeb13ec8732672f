"""Show the progress of a run: a bar while it lasts, a profile at its end."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

from clustersim.cli.terminal import notice, tells_a_person
from clustersim.progress import Watcher, watched_by
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S: Final = 1.0
"""Minimum time before a run is shown, in seconds."""
EVERY_S: Final = 10.0
"""Time between lines of progress where stderr is no terminal, in seconds."""
MOST_SHOWN: Final = 0.99
"""Largest share of a phase that is shown."""


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
class ProgressLine(Watcher):
    """The current phase: on a terminal a line, shown after a delay and removed at the end; elsewhere a new line now and then."""

    on_terminal: bool = True
    _open: list[tuple[str, float, int | None]] = field(default_factory=list[tuple[str, float, "int | None"]])
    """Active phases, the outermost first, with their progress and total where known."""
    _began_s: float = field(default_factory=perf_counter)
    _progress: Progress | None = None
    _task: TaskID | None = None
    _phase: str | None = None
    _told_s: float = field(default_factory=perf_counter)
    _ends_s: float = 0.0
    """Expected end of what goes on, where it is known."""
    _place: str = ""
    _notes: dict[str, str] = field(default_factory=dict[str, str])
    """Findings so far, by phase."""
    _told: dict[str, None] = field(default_factory=dict[str, None])

    def begun(self, phase: str) -> None:
        """Take notice that a phase has begun."""
        self._open.append((phase, 0, None))
        self._notes.pop(phase, None)
        self._show()

    def ended(self, phase: str, seconds: float) -> None:  # noqa: ARG002 - a bar shows what goes on, not how long it took
        """Take notice that a phase has ended; that of a generator which an error left open ends late, after those around it."""
        places = [place for place, each in enumerate(self._open) if each[0] == phase]
        del self._open[places[-1] if places else len(self._open) :]
        self._show()

    def advanced(self, n_done: int, n_total: int, left_s: float) -> None:
        """Take notice of how much of the innermost phase is done."""
        if self._open:
            phase, before, of = self._open[-1]
            # More work may come up, and no share goes back.
            least = 0.0 if of is None else n_total * before / max(of, 1)
            # A phase that is open is not over, and what it shows last must leave room for the work that comes up.
            self._open[-1] = (phase, min(max(n_done, least), MOST_SHOWN * n_total), n_total)
            if left_s < inf and self.shown() == self._open[-1]:
                self._ends_s = perf_counter() + left_s
            self._show()

    def noted(self, text: str) -> None:
        """Take notice of what the innermost phase has found so far."""
        open_ = [phase for phase, *_ in self._open]
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

    def shown(self) -> tuple[str, float, int | None]:
        """Return the phase to show: the outermost with a count, or the bar would restart with each part of it."""
        return next((each for each in self._open if each[2] is not None), self._open[-1])

    def _show(self) -> None:
        if not self._open:
            return
        phase, n_done, n_total = self.shown()
        now_s = perf_counter()
        share = "" if n_total is None else f", {100 * n_done / max(n_total, 1):.0f} %"
        left = "" if self._ends_s <= now_s else f", about {format_quantity(self._ends_s - now_s, 's', 2)} left"
        self._place = f"{now_s - self._began_s:.0f} s: {phase}{share}"
        if not self.on_terminal:
            if now_s - self._told_s >= EVERY_S:
                self._told_s = now_s
                notice(self._place + left)
            return
        if now_s - self._began_s < PATIENCE_S:
            return
        if self._progress is None:
            self._progress = _make_progress()
            self._task = self._progress.add_task(phase, total=None)
            self._progress.start()
        assert self._task is not None
        if phase != self._phase:
            self._progress.reset(self._task, total=n_total, completed=round(n_done))
            self._phase = phase
        self._progress.update(self._task, description=phase + left, completed=n_done, total=n_total)


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
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
