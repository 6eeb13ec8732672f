"""Fabrics that are trees: adapters below leaves, leaves below the spines of a pod, pods below a core; uplinks as bundles or one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import BoolArray, IntArray
from clustersim.topology.scale_out import Below, Leaves, RouteRows, RoutingState, ScaleOut
from clustersim.topology.spines import LeafTree, spine_tree, uplinks_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundledTree(LeafTree):
    """Leaves, pods and a core, with routing that spreads every flow evenly over all equal paths.

    The spines of a pod then act as one switch, and so does the core, so that nothing is lost. Links count up and down of
    each leaf, where there is more than one leaf; then up and down of each pod, where there is more than one pod.
    """

    def pod_up(self, pods: IntArray) -> IntArray:
        """Return the link from the spines of each pod to the core; the one after it leads down."""
        return 2 * self.leaves.n_leaves + 2 * pods

    def leaf_classes(self, works: BoolArray) -> IntArray:
        """Return a number for each leaf; different leaves with the same number reach the same others."""
        pods = self.leaves.pod_of(np.arange(self.leaves.n_leaves, dtype=np.int64))
        if self.leaves.n_leaves == 1:
            return pods
        return pods * 4 + works[: 2 * self.leaves.n_leaves].reshape(-1, 2) @ np.array([1, 2])

    def link_name(self, link: int) -> str:
        """Return the name of a link."""
        bundle, down = divmod(link, 2)
        place = f"leaf{bundle}" if bundle < self.leaves.n_leaves else f"pod{bundle - self.leaves.n_leaves}"
        return f"{place}/{'down' if down else 'up'}"

    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of the two ends of a link."""
        bundle, down = divmod(link, 2)
        n_leaves = self.leaves.n_leaves
        if bundle < n_leaves:
            low, high = f"leaf{bundle}", f"pod{bundle // self.leaves.leaves_per_pod}/spines"
        else:
            low, high = f"pod{bundle - n_leaves}/spines", "core"
        return (high, low) if down else (low, high)

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return leaf up, pod up, pod down and leaf down of each pair, as far as its route leads."""
        source_pod, pod = self.leaves.pod_of(sources), self.leaves.pod_of(destinations)
        same_leaf, same_pod = sources == destinations, source_pod == pod
        # The core is left out where nobody climbs to it, and the spines too.
        climb = 0 if same_leaf.all() else 1 if same_pod.all() else 2
        link_ids = np.empty((len(sources), 2 * climb), dtype=np.int64)
        if climb > 0:
            link_ids[:, 0], link_ids[:, -1] = 2 * sources, 2 * destinations + 1
        if climb > 1:
            link_ids[:, 1], link_ids[:, 2] = self.pod_up(source_pod), self.pod_up(pod) + 1
            link_ids[same_pod, 1:3] = -1
        link_ids[same_leaf] = -1
        reached: BoolArray = np.ones(len(link_ids), dtype=np.bool_)
        if condition.left_fraction is not None:
            reached = np.all((link_ids < 0) | (condition.left_fraction[link_ids] > 0.0), axis=1)
        return RouteRows(link_ids=link_ids, weights=None, reached=reached)


def single_switch(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a fabric of one switch."""
    return _tree(fabric, below, nodes_per_unit=below.n_places)


def leaf_spine(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a fabric with one leaf for all adapters of ``nodes_per_leaf`` nodes."""
    return _tree(fabric, below, nodes_per_unit=fabric.nodes_per_leaf, leaves_per_pod=fabric.leaves_per_pod)


def rail_optimized(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a fabric in which a unit of ``nodes_per_leaf`` nodes has a leaf for each rail.

    Adapter j of every node is on rail j, so that all nodes have the same number of them. Traffic from rail to rail goes over the
    spines; to move it over NVLink to an accelerator of the right rail first is the choice of a collective, not of a route.
    """
    return _tree(
        fabric,
        below,
        nodes_per_unit=fabric.nodes_per_leaf,
        leaves_per_unit=below.n_adapters,
        leaves_per_pod=fabric.leaves_per_pod,
    )


def fat_tree(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a leaf-spine fabric with a core tier above pods of ``leaves_per_pod`` leaves.

    Raises
    ------
    DomainError
        The fabric does not say how many leaves a pod has.
    """
    if fabric.leaves_per_pod < 1:
        raise DomainError(
            "a fat tree has three tiers, so its leaves stand in pods",
            path=("fabric", "leaves_per_pod"),
            hint="give the number of leaves below one group of spines, or use leaf_spine",
        )
    return leaf_spine(fabric, below)


def _tree(fabric: Fabric, below: Below, *, nodes_per_unit: int, leaves_per_unit: int = 1, leaves_per_pod: int = 0) -> ScaleOut:
    n_leaves = -(-below.n_places // nodes_per_unit) * leaves_per_unit
    per_pod = leaves_per_pod or n_leaves
    leaves = Leaves(
        n_leaves=n_leaves,
        n_pods=-(-n_leaves // per_pod),
        nodes_per_unit=nodes_per_unit,
        leaves_per_unit=leaves_per_unit,
        leaves_per_pod=per_pod,
        n_adapters=below.n_adapters,
    )
    one_by_one = below.one_by_one or fabric.routing == "ecmp"
    bandwidths_bytes_per_s = leaves.adapter_bandwidth_bytes_per_s(below)
    if one_by_one:
        return spine_tree(leaves, fabric, bandwidths_bytes_per_s)
    return BundledTree(**uplinks_of(leaves, fabric, bandwidths_bytes_per_s))
