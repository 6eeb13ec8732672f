"""Collective operations: bytes on each link, and sequential steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.collectives.direct import DIRECT
from clustersim.collectives.hierarchical import HIERARCHICAL
from clustersim.collectives.nvls import NVLS, NVLS_TREE
from clustersim.collectives.pairwise import PAIRWISE
from clustersim.collectives.pattern import Algorithm
from clustersim.collectives.recursive import HALVING_DOUBLING, PAT, RECURSIVE
from clustersim.collectives.relay import RELAY
from clustersim.collectives.ring import RINGS
from clustersim.collectives.rooted import ROOTED
from clustersim.collectives.sharp import SHARP
from clustersim.collectives.tree import TREE
from clustersim.hardware.library_costs import CollectiveOp


def _by_name(*algorithms: Algorithm) -> Mapping[str, Algorithm]:
    return MappingProxyType({algorithm.name: algorithm for algorithm in algorithms})


ALGORITHMS: Final[Mapping[CollectiveOp, Mapping[str, Algorithm]]] = MappingProxyType(
    {
        "all_reduce": _by_name(RINGS["all_reduce"], TREE, HALVING_DOUBLING, HIERARCHICAL, NVLS["all_reduce"], NVLS_TREE, SHARP),
        "all_gather": _by_name(RINGS["all_gather"], RECURSIVE["all_gather"], PAT["all_gather"], NVLS["all_gather"]),
        "reduce_scatter": _by_name(RINGS["reduce_scatter"], RECURSIVE["reduce_scatter"], PAT["reduce_scatter"], NVLS["reduce_scatter"]),
        "all_to_all": _by_name(DIRECT["all_to_all"], PAIRWISE, RELAY),
        "broadcast": ROOTED["broadcast"],
        "reduce": ROOTED["reduce"],
        "gather": _by_name(DIRECT["gather"]),
        "scatter": _by_name(DIRECT["scatter"]),
        "send_recv": _by_name(DIRECT["send_recv"]),
    }
)
"""The algorithms of each operation, by name."""
