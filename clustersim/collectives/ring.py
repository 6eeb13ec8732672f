"""Ring all-reduce, all-gather and reduce-scatter: bytes on each edge, and sequential steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.collectives.collective_flows import wave
from clustersim.collectives.group_layout import ring_flows
from clustersim.collectives.pattern import Algorithm, Grouping, MessageSchedule, Pattern, PatternStep
from clustersim.topology.cluster import Cluster

RingOp = Literal["all_reduce", "all_gather", "reduce_scatter"]

ROUNDS: Final[Mapping[RingOp, int]] = MappingProxyType({"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1})
"""Trips of a tensor around the ring, by operation."""


def lay_ring(op: RingOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return a ring collective: ``rounds (n - 1) / n * S / n_rings`` on each edge of each ring, after ``rounds (n - 1)`` steps.

    Over N domains ``rounds (N - 1)`` of the steps are between domains.

    References
    ----------
    .. [1] P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
    .. [2] NVIDIA NCCL 2.30, ``src/graph/tuning.cc``: the steps of the ring algorithm.
    """
    rounds, n = ROUNDS[op], group.size
    flows = ring_flows(cluster, group)
    steps = (rounds * (n - group.n_domains), rounds * (group.n_domains - 1))
    ring = wave(cluster, inside=flows.inside, between=flows.between, share=rounds * (n - 1) / n / flows.n_rings, steps=steps)
    return Pattern(phases=((ring,),), uniform=group.per_domain > 0)


def ring_schedule(op: RingOp, n_ranks: int) -> MessageSchedule:
    """Return the messages of one ring: part c ends its reduction at rank c, and starts from there to be gathered."""
    places = np.arange(n_ranks, dtype=np.int64)
    there = (places + 1) % n_ranks
    trip = range(n_ranks - 1)
    reducing = [PatternStep(sources=places, destinations=there, chunks=(places - 1 - step) % n_ranks, reduces=True) for step in trip]
    gathering = [PatternStep(sources=places, destinations=there, chunks=(places - step) % n_ranks, reduces=False) for step in trip]
    steps = {"all_reduce": [*reducing, *gathering], "reduce_scatter": reducing, "all_gather": gathering}[op]
    return MessageSchedule(n_ranks=n_ranks, n_chunks=n_ranks, steps=tuple(steps))


RINGS: Final[Mapping[RingOp, Algorithm]] = MappingProxyType(
    {op: Algorithm(name="ring", lay=partial(lay_ring, op), schedule=partial(ring_schedule, op)) for op in ROUNDS}
)
"""The ring, for each operation that it performs."""
