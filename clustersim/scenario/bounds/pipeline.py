"""When stages of a pipeline can begin, how long they are busy, and what is still to come behind them: at least."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clustersim.strategy.schedules import SCHEDULES
from clustersim.strategy.schedules.places import Places
from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Where the parts of a model lie, as arrays."""

    stage_of: IntArray
    """Shape (n_ways, n_parts)."""
    leaves: IntArray
    """Shape (n_ways, n_parts): whether the next part is on another stage; 0 for the last."""
    n_stages: int


def ways_of(places: Places) -> Ways:
    """Return places as arrays."""
    stage_of = np.array([[stage for stage, _ in route] for route in places.routes], dtype=np.int64)
    leaves = np.zeros_like(stage_of)
    leaves[:, :-1] = stage_of[:, 1:] != stage_of[:, :-1]
    return Ways(stage_of=stage_of, leaves=leaves, n_stages=places.n_stages)


@lru_cache(maxsize=512)
def ways_of_schedule(schedule: str, n_stages: int, n_chunks: int) -> Ways:
    """Return where a schedule puts the parts of a model."""
    return ways_of(SCHEDULES[schedule].layout(n_stages, n_chunks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Of each stage."""

    fill_s: FloatArray
    """Before its first pass can begin, something must have gone through others."""
    busy_s: FloatArray
    """All of its passes, with the sends for which they wait."""
    drain_s: FloatArray
    """Behind its last pass, something has to go through others."""


def lanes(
    ways: Ways,
    passes: tuple[FloatArray, FloatArray],
    times: FloatArray,
    *,
    send_s: float,
    sends_block: bool,
    more_s: FloatArray | float = 0.0,
) -> Lanes:
    """Return when stages can begin, how long they are busy and what comes behind them.

    The first pass of a stage waits until a micro-batch has gone forward through all parts of the model before one of the stage's, and
    behind its last one a gradient goes back through them::

        T >= fill + sum of all passes + drain

    Parameters
    ----------
    passes
        Seconds of passes forward and back through each part of the model, each of shape (n_parts,).
    times
        How many micro-batches go each way.
    send_s
        Of one send between stages.
    sends_block
        Whether a stage waits for its sends.
    more_s
        Seconds that a micro-batch's two passes through each part wait for besides, shape (n_parts,). They can pass beside sends, and before
        the first pass while nothing has arrived yet.
    """
    forward_s, backward_s = passes
    stage_of, leaves, n_stages = ways.stage_of, ways.leaves, ways.n_stages
    before_s, behind_s = np.zeros(stage_of.shape), np.zeros(stage_of.shape)
    before_s[:, 1:] = (forward_s[:-1] + send_s * leaves[:, :-1]).cumsum(axis=1)
    behind_s[:, 1:] = (backward_s[:-1] + send_s * leaves[:, :-1]).cumsum(axis=1)
    flat = stage_of.reshape(-1)
    fill_s, drain_s = np.full(n_stages, np.inf), np.full(n_stages, np.inf)
    np.minimum.at(fill_s, flat, before_s.reshape(-1))
    np.minimum.at(drain_s, flat, behind_s.reshape(-1))
    own_s = (forward_s + backward_s)[None] * times[:, None]
    busy_s = np.bincount(flat, weights=own_s.reshape(-1), minlength=n_stages).astype(np.float64)
    often = (times[:, None] - 1.0) * np.broadcast_to(more_s, forward_s.shape)
    waits_s = np.maximum(np.bincount(flat, weights=often.reshape(-1), minlength=n_stages), 0.0)
    if sends_block and send_s > 0.0:
        sends = leaves.astype(np.float64)
        sends[:, 1:] += leaves[:, :-1]
        n_sends = np.bincount(flat, weights=(sends * times[:, None]).reshape(-1), minlength=n_stages)
        # The last one belongs to what comes behind.
        waits_s = np.maximum(waits_s, send_s * np.maximum(n_sends - 1.0, 0.0))
    return Lanes(fill_s=fill_s, busy_s=busy_s + waits_s, drain_s=drain_s)
