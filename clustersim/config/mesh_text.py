"""Placement of the parallel dimensions on the machine, for people and for one warning."""

from __future__ import annotations

import math
from dataclasses import dataclass

from clustersim.parallel.training_plan import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshDimension:
    """One dimension of the mesh: its groups are ``degree`` ranks, ``stride`` apart."""

    dimension: str
    degree: int
    stride: int
    reach: str
    """Reach of a group: ``inside a node``, ``inside a scale-up domain`` or ``across the fabric``."""


def rank_layout(strategy: Strategy, *, node_size: int, domain_size: int) -> tuple[MeshDimension, ...]:
    """Return the dimensions in placement order, fastest-varying first.

    Parameters
    ----------
    node_size, domain_size
        Accelerators of a node and of a scale-up domain.
    """
    degrees = {"tp": strategy.tp, "cp": strategy.cp, "dp": strategy.dp, "pp": strategy.pp}
    spans: list[MeshDimension] = []
    # A room that holds all ranks has no border for a group to cross.
    n_ranks = math.prod(degrees.values())
    node_size, domain_size = min(node_size, n_ranks), min(domain_size, n_ranks)
    stride = 1
    # Expert parallelism lives inside the data-parallel ranks and has no place of its own.
    for dimension in (name for name in strategy.placement if name != "ep"):
        degree = degrees[dimension]
        spans.append(MeshDimension(dimension=dimension, degree=degree, stride=stride, reach=_reach(degree, stride, node_size, domain_size)))
        stride *= degree
    return tuple(spans)


def _reach(degree: int, stride: int, node_size: int, domain_size: int) -> str:
    if degree == 1:
        return "no communication"
    if _tiles(stride * degree, node_size):
        return "inside a node"
    return "inside a scale-up domain" if _tiles(stride * degree, domain_size) else "across the fabric"


def _tiles(block: int, room: int) -> bool:
    """Return whether blocks of ranks, laid one after the other, never cross from one room into the next."""
    return block <= room and room % block == 0
