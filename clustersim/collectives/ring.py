"""Ring all-reduce, all-gather and reduce-scatter: bytes on each edge, and sequential steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from clustersim.collectives.collective_flows import flow_set
from clustersim.collectives.group_layout import ring_flows
from clustersim.collectives.pattern import Algorithm, Grouping, Pattern
from clustersim.topology.wired import Cluster

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
    ring = flow_set(cluster, inside=flows.inside, between=flows.between, share=rounds * (n - 1) / n / flows.n_rings, steps=steps)
    return Pattern(phases=((ring,),), uniform=group.per_domain > 0)


RINGS: Final[Mapping[RingOp, Algorithm]] = MappingProxyType({op: Algorithm(name="ring", lay=partial(lay_ring, op)) for op in ROUNDS})
"""The ring, for each operation that it performs."""
