"""Find a period of several steps that repeats with the next step, so that not each step is replayed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.engine.alone import Carried
from clustersim.engine.repetition import ReplayRecord, flown_within, is_repeated_on_links
from clustersim.engine.replay import Replay
from clustersim.topology.cluster import FloatArray
from clustersim.trace.step_log import Repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """A period of a run in which each task runs once, as in the one before, with its number of repetitions."""

    start_s: float
    end_s: float
    step: int
    """The last one of which something starts in it: the steps that come again are like this one."""
    times: int

    @property
    def period_s(self) -> float:
        """Length of the cycle, in seconds."""
        return self.end_s - self.start_s

    @property
    def repetition(self) -> Repetition:
        """Repeated stretch of the run."""
        return Repetition(start_s=self.start_s, end_s=self.end_s, times=self.times, n_steps=1)


def cycle_of(replay: Replay, n_steps: int, *, times: int) -> Cycle | None:
    """Return a stretch of a run that has ended that is like the one before it, or None where there is none.

    Both lie in steps of which each does all as much later than the one before it as the stretch is long, and neither is the last, behind
    which nobody begins another. So are the steps before, from which somebody may still have waited.

    Parameters
    ----------
    n_steps
        That were replayed, each of them whole.
    times
        How often the stretch is to come again.
    """
    n_tasks = len(replay.program.tasks)
    if not n_tasks:
        return None
    done = sorted(replay.done, key=lambda each: each.number)
    start_s, end_s = np.concatenate([each.start_s for each in done]), np.concatenate([each.ended_s for each in done])
    step = np.repeat(np.arange(n_steps), n_tasks)
    last = n_steps - 2
    period_s = float(start_s[last * n_tasks] - start_s[(last - 1) * n_tasks])
    first = _first_alike(start_s.reshape(n_steps, n_tasks), end_s.reshape(n_steps, n_tasks), period_s)
    later = np.where((step >= first) & (step < last), np.arange(len(step)) + n_tasks, -1)
    rows = ReplayRecord(start_s=start_s, end_s=end_s, next=later)
    found = rows.window(period_s) if period_s > 0.0 else None
    if found is None or not is_repeated_on_links(replay.clock, *found):
        return None
    inside = np.flatnonzero((start_s >= found[0]) & (start_s < found[1]))
    if (np.bincount(inside % n_tasks, minlength=n_tasks) != 1).any():
        return None
    return Cycle(start_s=found[0], end_s=found[1], step=int(step[inside].max()), times=times)


def _first_alike(start_s: FloatArray, end_s: FloatArray, period_s: float) -> int:
    """Return the first of the final steps that are each the same time after the one before.

    Parameters
    ----------
    start_s, end_s
        Of every task, shape (n_steps, n_tasks).
    """
    alike = [(np.diff(each[:-1], axis=0) == period_s).all(axis=1) for each in (start_s, end_s)]
    (others,) = np.nonzero(~np.concatenate(([False], alike[0] & alike[1])))
    return int(others[-1]) + 1


def carried_again(replay: Replay, cycle: Cycle) -> Carried:
    """Return the traffic of all that comes again: each task once in each repetition."""
    again = Carried(seconds=flown_within(replay.clock, cycle.start_s, cycle.end_s))
    for index, template in enumerate(replay.prepared.templates.of_task):
        carried = replay.prepared.carried[template]
        again.add(Carried(bytes=carried.bytes) if index in replay.contended else carried)
    return again.times(cycle.times)
