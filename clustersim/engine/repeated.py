"""Replay a step of few micro-batches that stands for one of many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clustersim.engine.repetition import Ways, Window, repeating, states_within, window_of
from clustersim.engine.simulate import Machine, lay
from clustersim.program.program import Program
from clustersim.trace.columns import Repetition
from clustersim.trace.timeline import Timeline


def replay_repeated(
    program: Program, machine: Machine, ways: Ways, *, times: int, holds: Callable[[Window], bool]
) -> tuple[Timeline, tuple[str, ...]] | None:
    """Return the timeline of a program with more micro-batches, and the names of groups that lie unevenly; None where it is not known.

    Parameters
    ----------
    program
        A step like the one that is asked about, with fewer micro-batches.
    times
        How often the micro-batches of one repetition are missing.
    holds
        Whether the passes that start in a stretch of time come so often more, with the next micro-batches, before those behind it.
    """
    laid = lay(program, machine, (), others=()).replayed()
    replay = laid.first
    window = window_of(replay, ways)
    if window is None or not holds(window):
        return None
    again = Repetition(start_s=window.start_s, end_s=window.end_s, times=times, n_micro_batches=ways.n_micro_batches, ways=ways.first)
    within = states_within(replay, window.start_s, window.end_s)
    added_s = {state: times * seconds for state, seconds in within.items()}
    timeline = laid.timeline(replay.end_s(), added_s=added_s)
    timeline = repeating(timeline, again)
    return replace(timeline, step_time_s=timeline.step_time_s + again.added_s), replay.traffic.uneven()
