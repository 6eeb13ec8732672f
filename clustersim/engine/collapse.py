"""The `collapse` pass: uncontended tasks, found by replaying a step on the assumption that they are uncontended."""

from __future__ import annotations

from typing import Final

from clustersim.engine.clock import Clock
from clustersim.engine.contention import Contention
from clustersim.engine.replay import Replay

ROUNDS: Final = 4
"""Replays after which all tasks that share links with others are taken to be contended."""

MANY: Final = 0.5
"""Share of tasks that meet others from which all that share links are taken to be contended at once."""


def collapsed(replay: Replay, contention: Contention) -> Replay:
    """Return a finished replay of one step in which only contended tasks passed through simulated time.

    First every task is taken to be alone. Where no two tasks that share a link were in progress at the same time, that is exact: the first
    moment at which it were otherwise would have shown them together. Otherwise those tasks go through the network in the next round, with
    the tasks that they then meet in the one after it. Where most tasks meet others, all that can go there at once.

    Parameters
    ----------
    replay
        Replay of a program that has the network to itself; it has not started.
    contention
        Tasks that could meet each other.
    """
    for _ in range(ROUNDS):
        met = contention.meetings(replay.run().start_s, replay.ended_s)
        if met <= replay.contended:
            return replay
        if len(met) > MANY * len(replay.ended_s):
            break
        replay = _again(replay, replay.contended | met)
    return _again(replay, contention.all()).run()


def _again(replay: Replay, contended: frozenset[int]) -> Replay:
    """Return a replay with other tasks on the network, which has not started."""
    clock = replay.clock
    if replay.contended:
        clock = Clock(network=clock.network.emptied(), n_events=clock.n_events, log=[])
    return Replay(prepared=replay.prepared, clock=clock, contended=contended)
