"""The scale-out fabric as a tree: adapters below leaves, leaves below the spines of a pod, pods below a core."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, Switch
from clustersim.topology.cluster import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricTree:
    """Which leaf an adapter hangs at and which pod a leaf is in.

    Routing spreads every flow evenly over all equal paths, so the spines of a pod act as one switch, and so does the core.
    """

    n_leaves: int
    n_pods: int
    nodes_per_unit: int
    leaves_per_unit: int
    """One leaf for all adapters of a node, or one for each rail."""
    leaves_per_pod: int
    n_adapters: int
    """In one node."""

    def leaf_of(self, nodes: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its node and its place in it."""
        return nodes // self.nodes_per_unit * self.leaves_per_unit + adapters * self.leaves_per_unit // self.n_adapters

    def pod_of(self, leaves: IntArray) -> IntArray:
        """Return the pod of each leaf."""
        return leaves // self.leaves_per_pod


def single_switch(fabric: Fabric, n_nodes: int, n_adapters: int) -> FabricTree:  # noqa: ARG001  the signature of every row of FABRICS
    """Return a fabric in which all adapters hang at one switch."""
    return _tree(n_nodes, n_nodes, n_adapters=n_adapters)


def leaf_spine(fabric: Fabric, n_nodes: int, n_adapters: int) -> FabricTree:
    """Return a fabric in which all adapters of ``nodes_per_leaf`` nodes hang at one leaf."""
    return _tree(n_nodes, fabric.nodes_per_leaf, n_adapters=n_adapters, leaves_per_pod=fabric.leaves_per_pod)


def rail_optimized(fabric: Fabric, n_nodes: int, n_adapters: int) -> FabricTree:
    """Return a fabric in which a unit of ``nodes_per_leaf`` nodes has a leaf for each rail.

    Adapter j of every node is on rail j. Traffic from rail to rail goes over the spines; to move it over NVLink to an
    accelerator of the right rail first is the choice of a collective, not of a route.
    """
    return _tree(n_nodes, fabric.nodes_per_leaf, n_adapters=n_adapters, leaves_per_unit=n_adapters, leaves_per_pod=fabric.leaves_per_pod)


def fat_tree(fabric: Fabric, n_nodes: int, n_adapters: int) -> FabricTree:
    """Return a leaf-spine fabric with a core tier above pods of ``leaves_per_pod`` leaves.

    Raises
    ------
    ScenarioError
        The fabric does not say how many leaves a pod has.
    """
    if fabric.leaves_per_pod < 1:
        raise ScenarioError(
            "a fat tree has three tiers, so its leaves stand in pods",
            field="cluster.fabric.leaves_per_pod",
            hint="give the number of leaves below one group of spines, or use leaf_spine",
        )
    return leaf_spine(fabric, n_nodes, n_adapters)


def hop_latency_s(fabric: Fabric, below: Switch | None, above: Switch) -> float:
    """Return the latency that one cable carries: its own, and half of the switch at each of its ends.

    Half a switch on the way in and half on the way out add up to one traversal on any route that goes through it.
    """
    return (below.latency_s / 2 if below else 0.0) + fabric.cable_latency_s + above.latency_s / 2


def _tree(n_nodes: int, nodes_per_unit: int, *, n_adapters: int, leaves_per_unit: int = 1, leaves_per_pod: int = 0) -> FabricTree:
    n_leaves = -(-n_nodes // nodes_per_unit) * leaves_per_unit
    per_pod = leaves_per_pod or n_leaves
    return FabricTree(
        n_leaves=n_leaves,
        n_pods=-(-n_leaves // per_pod),
        nodes_per_unit=nodes_per_unit,
        leaves_per_unit=leaves_per_unit,
        leaves_per_pod=per_pod,
        n_adapters=n_adapters,
    )
