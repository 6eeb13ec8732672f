"""Leaves of a tree: the adapters that hang at each, and the pod it is in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.scale_out import Below


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
    """In one node; of several kinds, in those that have most."""

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the leaf of each adapter, given its place (node or server) and its number there."""
        return places // self.nodes_per_unit * self.leaves_per_unit + adapters * self.leaves_per_unit // self.n_adapters

    def pod_of(self, leaves: IntArray) -> IntArray:
        """Return the pod of each leaf."""
        return leaves // self.leaves_per_pod

    def adapter_bandwidth_bytes_per_s(self, below: Below) -> FloatArray:
        """Return the mean over the adapters that hang at each leaf; nodes that a unit lacks are taken to be like its last."""
        units = _filled(below.adapter_bandwidth_bytes_per_s, self.nodes_per_unit)
        return np.repeat(units[:, 0] + (units - units[:, :1]).mean(axis=1), self.leaves_per_unit)

    def leaf_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> FloatArray:
        """Return what each leaf can send up: what hangs below it, over its oversubscription.

        Parameters
        ----------
        adapter_bandwidth_bytes_per_s
            Of the adapters at each leaf, in the mean.
        """
        below_bytes_per_s = self.nodes_per_unit * self.n_adapters / self.leaves_per_unit * adapter_bandwidth_bytes_per_s
        return below_bytes_per_s / fabric.oversubscription

    def pod_bandwidth_bytes_per_s(self, fabric: Fabric, adapter_bandwidth_bytes_per_s: FloatArray) -> FloatArray:
        """Return what each pod can send up: the uplinks of its leaves, over the core oversubscription.

        Leaves that a pod lacks are taken to be like its last.
        """
        pods = _filled(self.leaf_bandwidth_bytes_per_s(fabric, adapter_bandwidth_bytes_per_s), self.leaves_per_pod)
        return (self.leaves_per_pod * pods[:, 0] + (pods - pods[:, :1]).sum(axis=1)) / fabric.core_oversubscription


def _filled(values: FloatArray, size: int) -> FloatArray:
    """Return values in rows of a size; what the last row lacks is like the last value."""
    return np.pad(values, (0, -len(values) % size), mode="edge").reshape(-1, size)
