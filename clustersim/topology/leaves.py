"""Where the leaves of a tree stand: which adapters hang at each, and which pod it is in."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Which leaf an adapter hangs at and which pod a leaf is in.

    A leaf has uplinks for its full complement of nodes, and a pod for its full complement of leaves, also where the
    cluster fills only some: the switches are bought for the full unit.
    """

    n_leaves: int
    n_pods: int
    nodes_per_unit: int
    leaves_per_unit: int
    """One leaf for all adapters of a node, or one for each rail."""
    leaves_per_pod: int
    n_adapters: int
    """In one node."""

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its place (node or server) and its number there."""
        return places // self.nodes_per_unit * self.leaves_per_unit + adapters * self.leaves_per_unit // self.n_adapters

    def pod_of(self, leaves: IntArray) -> IntArray:
        """Return the pod of each leaf."""
        return leaves // self.leaves_per_pod

    def leaf_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: float) -> float:
        """Return what one leaf can send up: what hangs below it, over its oversubscription."""
        below_bytes_per_s = self.nodes_per_unit * self.n_adapters / self.leaves_per_unit * adapter_bandwidth_bytes_per_s
        return below_bytes_per_s / fabric.oversubscription

    def pod_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: float) -> float:
        """Return what one pod can send up: the uplinks of its leaves, over the core oversubscription."""
        leaf_bytes_per_s = self.leaf_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s)
        return self.leaves_per_pod * leaf_bytes_per_s / fabric.core_oversubscription
