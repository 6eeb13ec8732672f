"""Ranks on the mesh of parallel dimensions, and rank classes: stages, divided where some of their replicas are unlike others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustersim.parallel.training_plan import Strategy
from clustersim.program.tasks import COMPUTE_STREAM, Lane, RankGroups
from clustersim.topology.cluster import IntArray, ascending
from clustersim.trace.timeline import RankClass, ranks_text

Part = tuple[int, ...]
"""Replicas, by their data-parallel index, all of whose ranks do the same work at the same time on every stage."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mesh:
    """All global ranks as an array with one axis for each of pp, dp, cp, tp."""

    ranks: IntArray
    """Shape (pp, dp, cp, tp)."""

    def groups(self, dimension: Literal["dp", "cp", "tp"], stage: int, replicas: Part | None = None) -> IntArray:
        """Return the groups of one dimension among the ranks of a stage, or of some of its replicas, shape (n_groups, size)."""
        ranks = self.ranks[stage] if replicas is None else self.ranks[stage][list(replicas)]
        lines = np.moveaxis(ranks, ("dp", "cp", "tp").index(dimension), -1)
        return lines.reshape(-1, lines.shape[-1])

    def replicas(self, stage: int) -> IntArray:
        """Return, for each place in the model, the ranks of a stage that hold it: data and context parallelism together, in rank order."""
        return ascending(np.ascontiguousarray(self.ranks[stage].reshape(-1, self.ranks.shape[3]).T))

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Division:
    """All ranks as classes; class ``stage * n_parts + part`` holds the ranks of one stage of the replicas of one part."""

    mesh: Mesh
    parts: tuple[Part, ...]

    @property
    def n_stages(self) -> int:
        """Pipeline stages."""
        return self.mesh.ranks.shape[0]

    @property
    def stages(self) -> range:
        """Numbers of the pipeline stages."""
        return range(self.n_stages)

    @property
    def n_parts(self) -> int:
        """Kinds of replicas; 1 where all are equal."""
        return len(self.parts)

    def rank_class(self, stage: int, part: int) -> int:
        """Return the number of a class."""
        return stage * self.n_parts + part

    def lane(self, stage: int, part: int, stream: str = COMPUTE_STREAM) -> Lane:
        """Return a stream of a class."""
        return Lane(stage * len(self.parts) + part, stream)

    def lanes(self, stage: int, stream: str = COMPUTE_STREAM) -> tuple[Lane, ...]:
        """Return a stream of all classes of a stage, for what all of its ranks take part in."""
        return tuple(self.lane(stage, part, stream) for part in range(self.n_parts))

    def ranks(self, stage: int, part: int) -> IntArray:
        """Return the ranks of a class, in the same order for every stage."""
        of_stage = self.mesh.ranks[stage]
        return (of_stage if self.n_parts == 1 else of_stage[list(self.parts[part])]).reshape(-1)

    def part_of(self, stage: int, ranks: IntArray) -> IntArray:
        """Return the part of each of some ranks of a stage."""
        of_stage = self.mesh.ranks[stage]
        first = int(of_stage.min())
        parts = np.empty(int(of_stage.max()) + 1 - first, dtype=np.int64)
        for part in range(self.n_parts):
            parts[self.ranks(stage, part) - first] = part
        return parts[ranks - first]

    def group(self, dimension: Literal["dp", "cp", "tp"], stage: int, part: int) -> RankGroups:
        """Return the groups of a dimension among the ranks of a class; for dp, the ranks of the class."""
        return self.named(f"{dimension} of stage {stage}", dimension, self.mesh.groups(dimension, stage, self.parts[part]), part)

    def named(self, name: str, dimension: str, members: IntArray, part: int) -> RankGroups:
        """Return groups of the ranks of one part, under their own name: different groups have different names."""
        return RankGroups(name=self.name(name, part), dimension=dimension, members=members)

    def name(self, name: str, part: int) -> str:
        """Return a name with the part of a thing, where there are several."""
        return f"{name}, part {part}" if self.n_parts > 1 else name

    def rank_classes(self) -> tuple[RankClass, ...]:
        """Return the classes in the order of their numbers."""
        return tuple(self._rank_class(stage, part) for stage in self.stages for part in range(self.n_parts))

    def _rank_class(self, stage: int, part: int) -> RankClass:
        ranks = self.ranks(stage, part)
        where = [f"stage {stage}"] if self.n_stages > 1 else []
        where += [ranks_text(ranks)] if self.n_parts > 1 else []
        name = ", ".join(where) or "all ranks"
        return RankClass(name=name, stage=stage, representative_rank=int(ranks[0]), ranks=ascending(ranks))


def divided(mesh: Mesh, parts: Sequence[Iterable[int]] | None = None) -> Division:
    """Return the classes of a mesh; without parts all replicas are equal."""
    given = [range(mesh.ranks.shape[1])] if parts is None else parts
    return Division(mesh=mesh, parts=tuple(tuple(part) for part in given))
