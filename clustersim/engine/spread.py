"""Spread of a step under tiny changes of its computation: large where contention is chaotic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from clustersim.engine.clock import Clock
from clustersim.engine.replay import Replay

VARIATION: Final = 1e-6
"""Largest share by which the computation of a rank class is made longer or shorter."""
CHAOTIC: Final = 1e-4
"""Spread of a chaotic step: a hundred times the variation. Without contention the spread is at most the variation."""
N_DRAWS: Final = 4
"""Replays of a chaotic step; of any other there is one."""
MOST_EVENTS: Final = 50_000
"""Maximum events of a step that is replayed again: about two seconds of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Varied:
    """A slightly different pace of each rank class."""

    seed: int

    def factor(self, rank_class: int, step: int) -> float:
        """Return the ratio of the duration of computation to its usual one."""
        return 1.0 + VARIATION * float(np.random.default_rng((self.seed, rank_class, step)).uniform(-1.0, 1.0))


def spread_of(replay: Replay) -> float:
    """Return the largest relative change of a replayed step when the computation of each rank class varies by a millionth.

    Times are sums and maxima of durations where nothing is contended, so they change by no more than the durations, and nothing is
    replayed. A contended step is replayed again, with the same tasks on the network. It is 0 for several steps, whose times differ
    where they are chaotic, and for a step of more than ``MOST_EVENTS``, which is not replayed again.
    """
    usual_s = replay.end_s()
    if not replay.contended or replay.jitter is not None or len(replay.done) != 1 or replay.is_open or usual_s <= 0.0:
        return 0.0
    if replay.clock.n_events > MOST_EVENTS:
        return 0.0
    spread = 0.0
    for seed in range(N_DRAWS):
        clock = Clock(network=replay.clock.network.emptied())
        varied = Replay(prepared=replay.prepared, clock=clock, contended=replay.contended, jitter=_Varied(seed=seed)).run()
        spread = max(spread, abs(varied.end_s() / usual_s - 1.0))
        if spread <= CHAOTIC:
            break
    return spread
