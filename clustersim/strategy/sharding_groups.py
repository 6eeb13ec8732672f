"""Who holds one copy of the training state together, and who adds up between copies."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.program.tasks import Group, Lane
from clustersim.strategy.division import Division
from clustersim.strategy.mesh import Mesh


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


def shard_group(mesh: Mesh, stage: int, degree: int) -> Group:
    """Return the groups of a stage that hold one copy together: consecutive replicas, so that they fill nodes first.

    Examples
    --------
    >>> import numpy as np
    >>> mesh = Mesh(ranks=np.arange(8).reshape(1, 4, 1, 2))
    >>> shard_group(mesh, 0, 2).members
    ((0, 2), (4, 6), (1, 3), (5, 7))
    """
    lines = mesh.groups("dp", stage)
    members = tuple(line[start : start + degree] for line in lines for start in range(0, len(line), degree))
    return Group(name=f"shards of stage {stage}", dimension="dp", members=members)


def copy_group(mesh: Mesh, stage: int, degree: int) -> Group:
    """Return the groups of ranks that hold the same shard, one of each copy.

    Examples
    --------
    >>> import numpy as np
    >>> mesh = Mesh(ranks=np.arange(4).reshape(1, 4, 1, 1))
    >>> copy_group(mesh, 0, 2).members
    ((0, 2), (1, 3))
    """
    members = tuple(line[place::degree] for line in mesh.groups("dp", stage) for place in range(degree))
    return Group(name=f"copies of stage {stage}", dimension="dp", members=members)


def shard_scopes(division: Division, stage: int, degree: int) -> tuple[ShardScope, ...]:
    """Return the shard groups of a stage: by parts, where none of them has ranks of several parts; otherwise all at once."""
    whole = shard_group(division.mesh, stage, degree)
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
