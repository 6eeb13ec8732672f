"""Who holds the same parameters, who of them keeps one copy of the training state together, and who adds up between copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from clustersim.program.tasks import Group, Lane
from clustersim.strategy.division import Division
from clustersim.strategy.mesh import Mesh
from clustersim.strategy.plan import Strategy
from clustersim.topology.cluster import IntArray

DENSE = ""
EXPERT = "expert "
"""Kinds of parameters, as the names of their groups begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Ranks of one stage that hold the same parameters, and how many of them keep one copy of the training state together."""

    kind: str
    stage: int
    lines: tuple[tuple[int, ...], ...]
    """Each the ranks with the same parameters, in an order in which neighbours fill nodes."""
    degree: int = 1

    def group(self) -> Group:
        """Return all of them, over which gradients are reduced."""
        return self._named("dp", self.lines)

    def shards(self) -> Group:
        """Return those that hold one copy together: neighbours, so that they fill nodes first.

        Examples
        --------
        >>> Holders(kind=DENSE, stage=0, lines=((0, 2, 4, 6), (1, 3, 5, 7)), degree=2).shards().members
        ((0, 2), (4, 6), (1, 3), (5, 7))
        """
        degree = self.degree
        return self._named("shards", (line[start : start + degree] for line in self.lines for start in range(0, len(line), degree)))

    def copies(self) -> Group:
        """Return those that hold the same shard, one of each copy.

        Examples
        --------
        >>> Holders(kind=DENSE, stage=0, lines=((0, 1, 2, 3),), degree=2).copies().members
        ((0, 2), (1, 3))
        """
        return self._named("copies", (line[place :: self.degree] for line in self.lines for place in range(self.degree)))

    def _named(self, name: str, members: Iterable[tuple[int, ...]]) -> Group:
        return Group(name=f"{self.kind}{name} of stage {self.stage}", dimension="dp", members=tuple(members))


def replicas(strategy: Strategy, mesh: Mesh, stage: int) -> Holders:
    """Return who holds the same parameters but those of experts: replicas, and in each the ranks of context parallelism."""
    return Holders(kind=DENSE, stage=stage, lines=mesh.replicas(stage), degree=strategy.sharding.degree)


def expert_replicas(strategy: Strategy, mesh: Mesh, stage: int) -> Holders:
    """Return who holds the same experts."""
    grid = expert_grid(strategy, mesh, stage)
    lines = grid.reshape(grid.shape[0], -1).T.tolist()
    return Holders(kind=EXPERT, stage=stage, lines=tuple(map(tuple, lines)), degree=strategy.sharding.expert_degree)


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
        replica_of = {int(rank): replica for replica in range(strategy.dp) for rank in mesh.ranks[0, replica].reshape(-1)}
        for line in expert_grid(strategy, mesh, 0).reshape(strategy.expert_replicas, -1).tolist():
            met = frozenset[int]().union(*(together[replica_of[rank]] for rank in line))
            together.update(dict.fromkeys(met, met))
    return tuple(tuple(sorted(found)) for found in dict.fromkeys(together.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScope:
    """Shard groups that advance together, and the parts of the replicas whose ranks are in them."""

    division: Division
    stage: int
    parts: tuple[int, ...]
    group: Group

    def lanes(self, stream: str) -> tuple[Lane, ...]:
        """Return a stream of all rank classes in the scope."""
        return tuple(self.division.lane(self.stage, part, stream) for part in self.parts)


def shard_scopes(division: Division, holders: Holders) -> tuple[ShardScope, ...]:
    """Return the shard groups of a stage: by parts, where none of them has ranks of several parts; otherwise all at once."""
    whole, stage = holders.shards(), holders.stage
    part_of = {int(rank): part for part in range(division.n_parts) for rank in division.ranks(stage, part)}
    inside = [{part_of[rank] for rank in members} for members in whole.members]
    if division.n_parts == 1 or any(len(parts) > 1 for parts in inside):
        return (ShardScope(division=division, stage=stage, parts=tuple(range(division.n_parts)), group=whole),)
    scopes: list[ShardScope] = []
    for part in range(division.n_parts):
        members = tuple(ranks for ranks in whole.members if part_of[ranks[0]] == part)
        group = division.named(whole.name, whole.dimension, members, part)
        scopes.append(ShardScope(division=division, stage=stage, parts=(part,), group=group))
    return tuple(scopes)
