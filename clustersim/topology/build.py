"""Lay the wires of a whole cluster."""

from __future__ import annotations

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Fabric, Node
from clustersim.topology import FABRICS
from clustersim.topology.cluster import TIERS, FloatArray, IntArray
from clustersim.topology.fabrics import FabricTree, hop_latency_s
from clustersim.topology.node_wiring import adapter_bandwidth_bytes_per_s, n_adapters, wire_node
from clustersim.topology.wired import WiredCluster


def build_cluster(node: Node, n_nodes: int, fabric: Fabric | None = None) -> WiredCluster:
    """Return so many nodes of one kind, wired and ready to be asked for routes.

    Parameters
    ----------
    fabric
        The network between the nodes; the node's reference fabric when left out.

    Raises
    ------
    ScenarioError
        The node or the fabric cannot be wired as described.
    """
    fabric = node.fabric if fabric is None else fabric
    _check(node, n_nodes, fabric)
    tree: FabricTree | None = None
    if n_nodes > node.scale_up.nodes_per_domain:
        tree = FABRICS[fabric.topology](fabric, n_nodes, n_adapters(node))
    wiring = wire_node(node, fabric if tree else None)
    bandwidth_bytes_per_s, latency_s, tier_index = (
        np.tile(np.array([wire.bandwidth_bytes_per_s for wire in wiring.wires], dtype=np.float64), n_nodes),
        np.tile(np.array([wire.latency_s for wire in wiring.wires], dtype=np.float64), n_nodes),
        np.tile(np.array([TIERS.index(wire.tier) for wire in wiring.wires], dtype=np.int64), n_nodes),
    )
    if tree is not None:
        above = _uplinks(node, fabric, tree)
        bandwidth_bytes_per_s = np.concatenate((bandwidth_bytes_per_s, above[0]))
        latency_s = np.concatenate((latency_s, above[1]))
        tier_index = np.concatenate((tier_index, above[2]))
    for array in (bandwidth_bytes_per_s, latency_s, tier_index):
        array.flags.writeable = False
    cluster = WiredCluster(
        node=node,
        fabric=fabric,
        n_nodes=n_nodes,
        wiring=wiring,
        tree=tree,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_s,
        tier_index=tier_index,
    )
    dead = np.flatnonzero(~(bandwidth_bytes_per_s > 0))
    if len(dead):
        raise ScenarioError(f"link {cluster.link_name(int(dead[0]))} has no bandwidth", field="cluster", hint="give it one above zero")
    return cluster


def _check(node: Node, n_nodes: int, fabric: Fabric) -> None:
    counts = {
        "cluster.nodes": n_nodes,
        "cluster.accelerators_per_node": node.n_accelerators,
        "cluster.node.accelerators_per_pcie_switch": node.accelerators_per_pcie_switch,
        "cluster.node.host.n_sockets": node.host.n_sockets,
        "cluster.node.scale_up.nodes_per_domain": node.scale_up.nodes_per_domain,
        "cluster.fabric.nodes_per_leaf": fabric.nodes_per_leaf,
    }
    for field, count in counts.items():
        if count < 1:
            raise ScenarioError(f"{count} is too few", field=field, hint="use 1 or more")
    if fabric.leaves_per_pod < 0:
        raise ScenarioError(f"{fabric.leaves_per_pod} leaves in a pod", field="cluster.fabric.leaves_per_pod", hint="use 0 for two tiers")
    for field, ratio in (("oversubscription", fabric.oversubscription), ("core_oversubscription", fabric.core_oversubscription)):
        if not 0 < ratio < float("inf"):
            raise ScenarioError(f"{ratio} is not a ratio of bandwidths", field=f"cluster.fabric.{field}", hint="use a number above zero")
    if fabric.routing != "adaptive":
        raise ScenarioError(f"routing {fabric.routing!r} is not simulated yet", field="cluster.fabric.routing", hint="use adaptive")
    if node.scale_up.nodes_per_domain > 1 and node.scale_up.kind != "nvswitch":
        raise ScenarioError(
            f"a domain of kind {node.scale_up.kind} cannot span {node.scale_up.nodes_per_domain} nodes",
            field="cluster.node.scale_up.nodes_per_domain",
            hint="use 1, or kind nvswitch",
        )
    if n_nodes > node.scale_up.nodes_per_domain and node.n_nics < 1:
        raise ScenarioError(
            f"{n_nodes} nodes have no network adapters between them",
            field="cluster.nics",
            hint=f"give each one or more, or use {node.scale_up.nodes_per_domain} node(s)",
        )


def _uplinks(node: Node, fabric: Fabric, tree: FabricTree) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return bandwidth, latency and tier of what lies above the leaves: leaf up, leaf down, ..., pod up, pod down, ...

    A leaf has uplinks for its full complement of nodes, and a pod for its full complement of leaves, also where the
    cluster fills only some: the switches are bought for the full unit. The core is made of the same switches as the spines.
    """
    n_leaf_links = 2 * tree.n_leaves if tree.n_leaves > 1 else 0
    n_pod_links = 2 * tree.n_pods if tree.n_pods > 1 else 0
    below_leaf_bytes_per_s = tree.nodes_per_unit * tree.n_adapters / tree.leaves_per_unit * adapter_bandwidth_bytes_per_s(node)
    leaf_bytes_per_s = below_leaf_bytes_per_s / fabric.oversubscription
    pod_bytes_per_s = tree.leaves_per_pod * leaf_bytes_per_s / fabric.core_oversubscription
    counts = [n_leaf_links, n_pod_links]
    latencies_s = [hop_latency_s(fabric, fabric.leaf, fabric.spine), hop_latency_s(fabric, fabric.spine, fabric.spine)]
    return (
        np.repeat([leaf_bytes_per_s, pod_bytes_per_s], counts),
        np.repeat(latencies_s, counts),
        np.repeat(np.array([TIERS.index("leaf"), TIERS.index("spine")], dtype=np.int64), counts),
    )
