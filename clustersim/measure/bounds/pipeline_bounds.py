"""Lower bounds of start, busy time and drain of the stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.places import Places
from clustersim.topology.cluster import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlacement:
    """Stages of the parts of a model, as arrays."""

    stage_of: IntArray
    """Shape (n_ways, n_parts)."""
    n_stages: int


def ways_of(places: Places) -> ChunkPlacement:
    """Return places as arrays."""
    stage_of = np.array([[stage for stage, _ in route] for route in places.routes], dtype=np.int64)
    return ChunkPlacement(stage_of=stage_of, n_stages=places.n_stages)


@lru_cache(maxsize=512)
def ways_of_schedule(schedule: str, n_stages: int, n_chunks: int) -> ChunkPlacement:
    """Return where a schedule puts the parts of a model."""
    return ways_of(SCHEDULES[schedule].layout(n_stages, n_chunks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Times by stage, in seconds."""

    fill_s: FloatArray
    """Before its first pass can begin, something must have gone through others."""
    busy_s: FloatArray
    """All of its passes."""
    drain_s: FloatArray
    """Behind its last pass, something has to go through others."""


def lanes(ways: ChunkPlacement, passes: tuple[FloatArray, FloatArray], times: FloatArray) -> Lanes:
    """Return start, busy time and drain of the stages.

    The first pass of a stage waits until a micro-batch has gone forward through all parts of the model before one of the stage's, and
    behind its last one a gradient goes back through them::

        T >= fill + sum of all passes + drain

    Parameters
    ----------
    passes
        Seconds of passes forward and back through each part of the model, each of shape (n_parts,).
    times
        Number of micro-batches that go each way.
    """
    forward_s, backward_s = passes
    stage_of, n_stages = ways.stage_of, ways.n_stages
    flat = stage_of.reshape(-1)
    fill_s, drain_s = np.full(n_stages, np.inf), np.full(n_stages, np.inf)
    for first_s, each_s in ((fill_s, forward_s), (drain_s, backward_s)):
        before_s = np.concatenate(([0.0], each_s[:-1].cumsum()))
        np.minimum.at(first_s, flat, np.broadcast_to(before_s, stage_of.shape).reshape(-1))
    own_s = (forward_s + backward_s)[None] * times[:, None]
    busy_s = np.bincount(flat, weights=own_s.reshape(-1), minlength=n_stages).astype(np.float64)
    return Lanes(fill_s=fill_s, busy_s=busy_s, drain_s=drain_s)
