"""The smallest layout of a model that fits nowhere, and the number of nodes on which it would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from clustersim.apps.plan.asking import PlanRequest, asked_of
from clustersim.apps.plan.drafts import Drafts
from clustersim.apps.plan.space import ParallelLayout, Space, families, layouts
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.parallel.contributors import stage_peak
from clustersim.parallel.stage import stage_of
from clustersim.program.holds import held_bytes
from clustersim.progress import phase
from clustersim.report.facts import memory_text

MOST_DOUBLINGS: Final = 6
"""Doublings of the nodes that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestLayout:
    """The layout that needs least memory on a number of nodes."""

    n_nodes: int
    n_gpus: int
    layout: ParallelLayout
    peak_bytes: float
    capacity_bytes: float


def frugal(asked: PlanRequest) -> Space:
    """Return the part of a space that needs least memory: small micro-batches, all recomputed, most sharded and offloaded."""
    space, n_tried = asked.space, None if asked.writes else 1
    recompute = "full" if "full" in space.recompute else space.recompute[-1]
    return replace(
        space,
        micro_batch_size=(min(space.micro_batch_size),),
        schedule=space.schedule[:1],
        recompute=(recompute,),
        placement=space.placement[:1],
        # A framework may not have the most.
        zero_stage=tuple(sorted(space.zero_stage, reverse=True))[:n_tried],
        offload=tuple(sorted(space.offload, key=len, reverse=True))[:n_tried],
    )


def smallest_layout(asked: PlanRequest, enough_bytes: float = 0.0) -> SmallestLayout | None:
    """Return the layout that needs least memory, or the first that needs no more than enough; None where none is legal."""
    drafts, space, best = Drafts(asked.base, writes=asked.writes), frugal(asked), (inf, None)
    for layout in (layout for family in families(space) for layout in layouts(space, family)):
        plan = drafts.whole_plan(layout)
        if isinstance(plan, str):
            continue
        peak_bytes = max(held_bytes(stage_peak(stage_of(plan, stage))) for stage in {0, plan.strategy.pp - 1})
        best = min(best, (peak_bytes, layout), key=lambda found: found[0])
        if peak_bytes <= enough_bytes:
            break
    peak_bytes, layout = best
    if layout is None:
        return None
    cluster = drafts.first.cluster
    capacity_bytes = min(node.accelerator.memory_bytes for node, _ in cluster.kinds)
    return SmallestLayout(
        n_nodes=cluster.n_nodes, n_gpus=cluster.n_ranks, layout=layout, peak_bytes=peak_bytes, capacity_bytes=capacity_bytes
    )


def nearest_lines(asked: PlanRequest, limits: Sequence[str], margin_fraction: float) -> list[str]:
    """Return by how much the smallest layout does not fit, and on how many nodes one does."""
    with phase("memory"):
        here = smallest_layout(asked)
        if here is None:
            return []
        usable_bytes = (1.0 - margin_fraction) * here.capacity_bytes
        room = f"{memory_text(here.capacity_bytes)}, of which {100 * margin_fraction:g} % stay free"
        over = memory_text(max(0.0, here.peak_bytes - usable_bytes))
        lines = [f"The smallest layout needs {memory_text(here.peak_bytes)} of {room}, {over} too much: {here.layout.words()}."]
        for n_nodes in (here.n_nodes * 2**doubling for doubling in range(1, MOST_DOUBLINGS + 1)):
            try:
                larger = replace(asked_of(_on_nodes(asked.base, n_nodes), limits=limits), writes=asked.writes)
                there = smallest_layout(larger, usable_bytes)
            except ScenarioError:
                break
            if there is not None and there.peak_bytes <= usable_bytes:
                needs = f"{memory_text(there.peak_bytes)}, {there.layout.words()}"
                return [*lines, f"It fits on {n_nodes:,} nodes ({there.n_gpus:,} GPUs), not on {n_nodes // 2:,}: {needs}."]
    return lines


def _on_nodes(base: Mapping[str, Data], n_nodes: int) -> dict[str, object]:
    cluster = base.get("cluster")
    return {**base, "cluster": {**(cluster if isinstance(cluster, dict) else {"name": cluster}), "nodes": n_nodes}}
