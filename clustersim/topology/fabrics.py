"""Fabrics that are trees: adapters below leaves, leaves below the spines of a pod, pods below a core."""

from __future__ import annotations

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.bundles import bundled_tree
from clustersim.topology.leaves import Leaves
from clustersim.topology.scale_out import Below, ScaleOut
from clustersim.topology.spines import spine_tree


def single_switch(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a fabric in which all adapters hang at one switch."""
    return _tree(fabric, below, nodes_per_unit=below.n_places)


def leaf_spine(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a fabric in which all adapters of ``nodes_per_leaf`` nodes hang at one leaf."""
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
    return (spine_tree if one_by_one else bundled_tree)(leaves, fabric, leaves.adapter_bandwidth_bytes_per_s(below))
