"""When stages of a pipeline can begin, how long they are busy, and what is still to come behind them: at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.schedules.places import Places
from clustersim.topology.cluster import FloatArray, IntArray


def pass_ends_s(
    places: Places, orders: Sequence[StageOrder], passes: tuple[FloatArray, FloatArray], *, send_s: float, sends_block: bool
) -> FloatArray:
    """Return when the last pass of each stage ends at the earliest, shape (n_stages,).

    A pass begins when the one before it on its stage has ended and its input has come: the longest way through the graph of passes, where
    each takes as long as it takes by itself.

    Parameters
    ----------
    places
        One way through the model.
    orders
        Of passes forward and back on each stage.
    passes
        Seconds of passes forward and back through each part of the model, each of shape (n_parts,).
    send_s
        Of one send between stages.
    sends_block
        Whether a stage waits for its sends.
    """
    (route,) = places.routes
    n_parts, n_stages = len(route), places.n_stages
    part_of = {stop: part for part, stop in enumerate(route)}
    forward_s, backward_s = passes[0].tolist(), passes[1].tolist()
    # When what a pass needs has come, by part, micro-batch and whether it goes back; the first part waits for nothing.
    come: dict[tuple[int, int, bool], float] = {}
    free_s, ended_s, done = [0.0] * n_stages, [0.0] * n_stages, [0] * n_stages
    todo = list(range(n_stages - 1, -1, -1))
    while todo:
        stage = todo.pop()
        order = orders[stage]
        while done[stage] < len(order):
            step = order[done[stage]]
            part, back = part_of[stage, step.chunk], step.goes_back
            arrived_s = come.get((part, step.micro_batch, back)) if part or back else 0.0
            if arrived_s is None:
                break
            done[stage] += 1
            end_s = max(free_s[stage], arrived_s) + (backward_s[part] if back else forward_s[part])
            free_s[stage] = ended_s[stage] = end_s
            turns = part == n_parts - 1 and not back
            target = part if turns else part + (-1 if back else 1)
            if target < 0:
                continue
            receiver = route[target][0]
            sent_s = end_s + (send_s if receiver != stage else 0.0)
            come[target, step.micro_batch, back or turns] = sent_s
            if receiver != stage:
                todo.append(receiver)
                free_s[stage] = sent_s if sends_block else end_s
    return np.array(ended_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlacement:
    """Stages of the parts of a model, as arrays."""

    stage_of: IntArray
    """Shape (n_ways, n_parts)."""
    leaves: IntArray
    """Shape (n_ways, n_parts): whether the next part is on another stage; 0 for the last."""
    n_stages: int


def ways_of(places: Places) -> ChunkPlacement:
    """Return places as arrays."""
    stage_of = np.array([[stage for stage, _ in route] for route in places.routes], dtype=np.int64)
    leaves = np.zeros_like(stage_of)
    leaves[:, :-1] = stage_of[:, 1:] != stage_of[:, :-1]
    return ChunkPlacement(stage_of=stage_of, leaves=leaves, n_stages=places.n_stages)


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
    """All of its passes, with the sends for which they wait."""
    drain_s: FloatArray
    """Behind its last pass, something has to go through others."""


def lanes(
    ways: ChunkPlacement,
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
