"""In which order the parallel dimensions lie on the ranks where a scenario leaves that open."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from clustersim.report.metrics import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustersim.hardware.models import Fabric, Node
    from clustersim.strategy.plan import Dimension, StrategySettings

NEAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "pp", "dp")
"""Stages of one replica are neighbours, and replicas are far from each other."""

FAR_STAGES: tuple[Dimension, ...] = ("tp", "cp", "ep", "dp", "pp")
"""Replicas of one stage are neighbours, and stages are far from each other."""


def placement_of(asked: StrategySettings, nodes: Sequence[Node], fabric: Fabric) -> tuple[tuple[Dimension, ...], tuple[Flag, ...]]:
    """Return the order of dimensions, fastest-varying first, and what was chosen where the scenario says ``auto``.

    Tensor parallelism, which communicates several times in every layer, comes first and stays in the scale-up domain as far as it fits;
    then context and expert parallelism, once or twice in every layer. All stages of a group of replicas come next where they fit
    under one leaf, so that what they send stays there; otherwise replicas do, because stages send least of all.
    """
    if asked.placement:
        return asked.placement, ()
    etp = asked.tp if asked.etp is None else asked.etp
    near = max(asked.tp * asked.cp, asked.ep * etp)
    leaf = fabric.nodes_per_leaf * nodes[0].n_accelerators
    order = NEAR_STAGES if asked.pp > 1 and prod((near, asked.pp)) <= leaf else FAR_STAGES
    under = f"{near * asked.pp} ranks of neighbouring stages fit under a leaf of {leaf}"
    why = under if order is NEAR_STAGES else "stages are placed apart" if asked.pp > 1 else "there are no stages"
    return order, (Flag(code="chosen_placement", message=f"placement auto: [{', '.join(order)}], because {why}"),)
