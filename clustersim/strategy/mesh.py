"""Ranks on the mesh of parallel dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustersim.strategy.plan import Strategy
from clustersim.topology.cluster import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mesh:
    """All global ranks as an array with one axis for each of pp, dp, cp, tp."""

    ranks: IntArray
    """Shape (pp, dp, cp, tp)."""

    def groups(self, dimension: Literal["dp", "cp", "tp"], stage: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of one dimension among the ranks of a stage, one tuple of ranks each."""
        axis = ("dp", "cp", "tp").index(dimension)
        lines = np.moveaxis(self.ranks[stage], axis, -1).reshape(-1, self.ranks.shape[1 + axis])
        return tuple(tuple(int(rank) for rank in line) for line in lines)

    def replicas(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """Return, for each place in the model, the ranks of a stage that hold it: data and context parallelism together, in rank order."""
        lines = np.sort(self.ranks[stage].reshape(-1, self.ranks.shape[3]).T, axis=1)
        return tuple(tuple(int(rank) for rank in line) for line in lines)

    def stage_ranks(self, stage: int) -> IntArray:
        """Return the ranks of a stage, in the same order for every stage: pipeline neighbours have equal positions."""
        return self.ranks[stage].reshape(-1)


def place(strategy: Strategy) -> Mesh:
    """Return the mesh for a placement order, fastest-varying dimension first.

    With ``placement = (tp, cp, ep, dp, pp)`` the rank is ``tp_i + tp (cp_i + cp (dp_i + dp pp_i))``; expert parallelism
    lives inside the data-parallel ranks and takes no axis of its own.
    """
    sizes = {"pp": strategy.pp, "dp": strategy.dp, "cp": strategy.cp, "tp": strategy.tp}
    slowest_first: Sequence[str] = [dimension for dimension in reversed(strategy.placement) if dimension != "ep"]
    ranks = np.arange(strategy.pp * strategy.dp * strategy.cp * strategy.tp, dtype=np.int64)
    cube = ranks.reshape([sizes[dimension] for dimension in slowest_first])
    return Mesh(ranks=cube.transpose([slowest_first.index(dimension) for dimension in ("pp", "dp", "cp", "tp")]))
