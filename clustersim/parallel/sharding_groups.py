"""Groups of ranks with the same parameters, with one copy of the training state, or with the same shard of different copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.parallel.division import Division, Mesh, Part
from clustersim.parallel.training_plan import Strategy
from clustersim.program.tasks import Lane, RankGroups
from clustersim.topology.cluster import IntArray

DENSE = ""
EXPERT = "expert "
"""Kinds of parameters, as the names of their groups begin."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holders:
    """Ranks of one stage with the same parameters, and the number of them that share one copy of the training state."""

    kind: str
    stage: int
    lines: IntArray
    """Shape (n_lines, size): each the ranks with the same parameters, in an order in which neighbours fill nodes."""
    degree: int = 1

    def group(self) -> RankGroups:
        """Return all of them, over which gradients are reduced."""
        return self._named("dp", self.lines)

    def shards(self) -> RankGroups:
        """Return those that hold one copy together: neighbours, so that they fill nodes first.

        Examples
        --------
        >>> Holders(kind=DENSE, stage=0, lines=np.array([[0, 2, 4, 6], [1, 3, 5, 7]]), degree=2).shards().members.tolist()
        [[0, 2], [4, 6], [1, 3], [5, 7]]
        """
        return self._named("shards", self.lines.reshape(-1, self.degree))

    def copies(self) -> RankGroups:
        """Return those that hold the same shard, one of each copy.

        Examples
        --------
        >>> Holders(kind=DENSE, stage=0, lines=np.array([[0, 1, 2, 3]]), degree=2).copies().members.tolist()
        [[0, 2], [1, 3]]
        """
        n_lines, size = self.lines.shape
        copies = self.lines.reshape(n_lines, -1, self.degree).transpose(0, 2, 1)
        return self._named("copies", copies.reshape(-1, size // self.degree))

    def _named(self, name: str, members: IntArray) -> RankGroups:
        return RankGroups(name=f"{self.kind}{name} of stage {self.stage}", dimension="dp", members=members)


def replicas(strategy: Strategy, mesh: Mesh, stage: int) -> Holders:
    """Return who holds the same parameters but those of experts: replicas, and in each the ranks of context parallelism."""
    return Holders(kind=DENSE, stage=stage, lines=mesh.replicas(stage), degree=strategy.sharding.degree)


def expert_replicas(strategy: Strategy, mesh: Mesh, stage: int) -> Holders:
    """Return who holds the same experts."""
    grid = expert_grid(strategy, mesh, stage)
    lines = np.ascontiguousarray(grid.reshape(grid.shape[0], -1).T)
    return Holders(kind=EXPERT, stage=stage, lines=lines, degree=strategy.sharding.expert_degree)


def expert_grid(strategy: Strategy, mesh: Mesh, stage: int) -> IntArray:
    """Return the ranks of a stage as expert parallelism sees them, shape (replicas of experts, ep, etp).

    The stage is laid out anew, in its own order, however data, context and tensor parallelism cut it: neighbours divide each expert, then
    come those with other experts, then those with the same; or the last two the other way round where the placement has dp before ep.

    References
    ----------
    .. [1] D. Liu et al., "MoE Parallel Folding: Heterogeneous Parallelism Mappings for Efficient Large-Scale MoE Model Training with
       Megatron Core", 2025, arXiv 2504.14960, section 3.2.
    """
    order = strategy.placement
    slowest_first = [axis for axis in reversed(order) if axis in ("dp", "cp", "tp")]
    flat = mesh.ranks[stage].transpose([("dp", "cp", "tp").index(axis) for axis in slowest_first]).reshape(-1)
    n_copies, ep, etp = strategy.expert_replicas, strategy.ep, strategy.expert_tp
    if order.index("dp") < order.index("ep"):
        return np.ascontiguousarray(flat.reshape(ep, n_copies, etp).transpose(1, 0, 2))
    return flat.reshape(n_copies, ep, etp)


def replicas_together(strategy: Strategy, mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """Return replicas, by their data-parallel index, in sets whose ranks hold all experts together, of a model that has experts."""
    together = {replica: frozenset((replica,)) for replica in range(strategy.dp)}
    if strategy.ep * strategy.expert_tp > 1:
        of_stage = mesh.ranks[0]
        replica_of = np.empty(int(of_stage.max()) + 1, dtype=np.int64)
        replica_of[of_stage] = np.arange(strategy.dp, dtype=np.int64)[:, None, None]
        for line in replica_of[expert_grid(strategy, mesh, 0).reshape(strategy.expert_replicas, -1)]:
            met = frozenset[int]().union(*(together[replica] for replica in dict.fromkeys(line.tolist())))
            together.update(dict.fromkeys(met, met))
    return tuple(tuple(sorted(found)) for found in dict.fromkeys(together.values()))


def replicas_apart(strategy: Strategy, mesh: Mesh, *, has_experts: bool) -> tuple[Part, ...]:
    """Return replicas that communicate with the same ranks.

    These are single ones; with parameter servers that take the sums of nodes those of a scale-up domain; and those that send tokens to
    each other's experts, which wait for each other in every layer.
    """
    service = strategy.data_parallel.service
    if service is None or not service.reduce_in_node:
        return replicas_together(strategy, mesh) if has_experts else tuple((replica,) for replica in range(strategy.dp))
    domain = mesh.ranks.min(axis=(0, 2, 3)) // strategy.domain_size
    return tuple(tuple(np.flatnonzero(domain == each).tolist()) for each in np.unique(domain))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScope:
    """Shard groups that advance together, and the parts of the replicas whose ranks are in them."""

    division: Division
    stage: int
    parts: tuple[int, ...]
    group: RankGroups

    def lanes(self, stream: str) -> tuple[Lane, ...]:
        """Return a stream of all rank classes in the scope."""
        return tuple(self.division.lane(self.stage, part, stream) for part in self.parts)


def shard_scopes(division: Division, holders: Holders) -> tuple[ShardScope, ...]:
    """Return the shard groups of a stage: by parts, where each lies in one part; otherwise all."""
    whole, stage = holders.shards(), holders.stage
    together = (ShardScope(division=division, stage=stage, parts=tuple(range(division.n_parts)), group=whole),)
    if division.n_parts == 1:
        return together
    part_of = division.part_of(stage, whole.members)
    if (part_of != part_of[:, :1]).any():
        return together
    scopes: list[ShardScope] = []
    for part in range(division.n_parts):
        group = division.named(whole.name, whole.dimension, whole.members[part_of[:, 0] == part], part)
        scopes.append(ShardScope(division=division, stage=stage, parts=(part,), group=group))
    return tuple(scopes)
