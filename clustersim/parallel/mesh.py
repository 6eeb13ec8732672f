"""Ranks on the mesh of parallel dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustersim.parallel.training_plan import Strategy
from clustersim.topology.cluster import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mesh:
    """All global ranks as an array with one axis for each of pp, dp, cp, tp."""

    ranks: IntArray
    """Shape (pp, dp, cp, tp)."""

    def groups(self, dimension: Literal["dp", "cp", "tp"], stage: int) -> IntArray:
        """Return the groups of one dimension among the ranks of a stage, shape (n_groups, size)."""
        axis = ("dp", "cp", "tp").index(dimension)
        return np.moveaxis(self.ranks[stage], axis, -1).reshape(-1, self.ranks.shape[1 + axis])

    def replicas(self, stage: int) -> IntArray:
        """Return, for each place in the model, the ranks of a stage that hold it: data and context parallelism together, in rank order."""
        return np.sort(self.ranks[stage].reshape(-1, self.ranks.shape[3]).T, axis=1)

    def stage_ranks(self, stage: int) -> IntArray:
        """Return the ranks of a stage, in the same order for every stage: pipeline neighbours have equal positions."""
        return self.ranks[stage].reshape(-1)


def place(strategy: Strategy) -> Mesh:
    """Return the mesh for a placement order, fastest-varying dimension first.

    With ``placement = (tp, cp, ep, dp, pp)`` the rank is ``tp_i + tp (cp_i + cp (dp_i + dp pp_i))``. Expert parallelism lives inside the
    ranks of a stage. Where pipeline stages stand between ep and dp, the replicas that hold all experts together stay together:
    ``ep`` takes as much of the data-parallel axis as they fill, and ``dp`` the rest.
    """
    together = _replicas_together(strategy)
    sizes = {"pp": strategy.pp, "dp": strategy.dp // together, "ep": together, "cp": strategy.cp, "tp": strategy.tp}
    slowest_first: Sequence[str] = [dimension for dimension in reversed(strategy.placement) if dimension != "ep" or together > 1]
    ranks = np.arange(strategy.pp * strategy.dp * strategy.cp * strategy.tp, dtype=np.int64)
    cube = ranks.reshape([sizes[dimension] for dimension in slowest_first])
    axes = ("pp", "dp", "ep", "cp", "tp") if together > 1 else ("pp", "dp", "cp", "tp")
    shape = (strategy.pp, strategy.dp, strategy.cp, strategy.tp)
    return Mesh(ranks=cube.transpose([slowest_first.index(dimension) for dimension in axes]).reshape(shape))


def _replicas_together(strategy: Strategy) -> int:
    """Return the number of replicas placed before the pipeline stages; 1 where none are."""
    order = strategy.placement
    if not order.index("ep") < order.index("pp") < order.index("dp"):
        return 1
    filled = max(1, strategy.ep * strategy.expert_tp // (strategy.cp * strategy.tp))
    return filled if strategy.dp % filled == 0 else 1
