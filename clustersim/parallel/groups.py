"""Ranks that work together on the layers of one stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.parallel.division import Division
from clustersim.parallel.sharding_groups import expert_grid
from clustersim.parallel.training_plan import Strategy
from clustersim.program.tasks import RankGroups
from clustersim.topology.cluster import IntArray
from clustersim.workloads.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """Groups of ranks that exchange tokens on one stage."""

    whole: RankGroups
    """Ranks that hold all experts together."""
    slices: RankGroups
    """Ranks that divide each expert."""
    between: RankGroups | None
    """Ranks of the whole with equal places in their nodes, where tokens go to each node once."""
    inside: RankGroups | None
    """Ranks of the whole in one node."""


def expert_groups(strategy: Strategy, division: Division, stage: int, part: int) -> ExpertGroups:
    """Return the groups of expert parallelism among the ranks of a class.

    Where a token is sent once to each node, an orbit of ranks with equal places in their nodes sends between nodes, and the ranks of a
    node pass tokens on among them; so it is done where the members of every group fill equally many places in several nodes.
    """
    grid = expert_grid(strategy, division.mesh, stage)
    lines, slices = grid.transpose(0, 2, 1).reshape(-1, strategy.ep), grid.reshape(-1, strategy.expert_tp)
    if division.n_parts > 1:
        lines, slices = (members[division.part_of(stage, members[:, 0]) == part] for members in (lines, slices))
    between, inside = _by_domain(lines, strategy.domain_size) if strategy.dispatch == "per_node" else (None, None)

    def named(name: str, members: IntArray | None) -> RankGroups | None:
        return None if members is None else division.named(f"{name} of stage {stage}", "ep", members, part)

    return ExpertGroups(
        whole=division.named(f"ep of stage {stage}", "ep", lines, part),
        slices=division.named(f"etp of stage {stage}", "ep", slices, part),
        between=named("ep between nodes", between),
        inside=named("ep inside nodes", inside),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelGroups:
    """Groups of tensor, context and expert parallelism."""

    tp: RankGroups
    cp: RankGroups
    replica: RankGroups
    """Ranks of the stage in one replica: tensor and context parallelism together."""
    stage: RankGroups
    """All ranks of the class as one group."""
    experts: ExpertGroups | None = None
    """None for a model without experts."""


def parallel_groups(model: Model, strategy: Strategy, division: Division, *, stage: int, part: int) -> ParallelGroups:
    """Return the groups that work on the layers of a stage, among the ranks of a class."""
    ranks = division.ranks(stage, part)
    return ParallelGroups(
        tp=division.group("tp", stage, part),
        cp=division.group("cp", stage, part),
        replica=division.named(f"tp and cp of stage {stage}", "tp", ranks.reshape(-1, strategy.cp * strategy.tp), part),
        stage=division.named(f"stage {stage}", "dp", ranks[None, :], part),
        experts=expert_groups(strategy, division, stage, part) if model.experts else None,
    )


def _by_domain(lines: IntArray, domain_size: int) -> tuple[IntArray | None, IntArray | None]:
    """Return groups divided by domain, and groups across domains of ranks with equal index; nothing where domains are unequal."""
    ordered = np.take_along_axis(lines, np.argsort(lines // domain_size, axis=1, kind="stable"), axis=1)
    n_rooms = len(np.unique(lines[0] // domain_size))
    size, rest = divmod(lines.shape[1], n_rooms)
    if n_rooms == 1 or rest:
        return None, None
    members = ordered.reshape(-1, n_rooms, size)
    rooms = members // domain_size
    if (rooms != rooms[:, :, :1]).any() or (rooms[:, 1:, 0] == rooms[:, :-1, 0]).any():
        return None, None
    return members.transpose(0, 2, 1).reshape(-1, n_rooms), members.reshape(-1, size)
