"""When each stage of a pipeline has done its passes if they go in the order of the schedule and nothing else is in their way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustersim.strategy.schedules.order import StageOrder
from clustersim.strategy.schedules.places import Places
from clustersim.topology.cluster import FloatArray


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
