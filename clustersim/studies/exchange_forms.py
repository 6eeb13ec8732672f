"""Times of parameter servers and rings on an idle leaf-spine, from bytes and bandwidths alone: `docs/theory/parameter-server.md`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustersim.collectives.parameter_server import ADDED_MEMORY_BYTES, SENT_MEMORY_BYTES
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.hardware.models import Fabric, Node
from clustersim.topology.cluster import FloatArray

Placement = Literal["dedicated", "colocated"]
PLACEMENTS: tuple[Placement, ...] = ("dedicated", "colocated")
"""Servers on hosts of their own, or on the first of the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidths:
    """What the links of one worker, one server and one leaf carry, in one direction."""

    adapter_bytes_per_s: float
    pcie_bytes_per_s: float
    memory_bytes_per_s: float
    """Of a server, reads and writes together."""
    uplink_bytes_per_s: float
    """Of a whole leaf."""
    nodes_per_leaf: int

    @classmethod
    def of(cls, node: Node, fabric: Fabric, calibration: NetworkCalibration) -> Bandwidths:
        """Return what can be used of data-sheet bandwidths, for nodes with one accelerator and one adapter."""
        usable = calibration.efficiency
        return cls(
            adapter_bytes_per_s=usable["nic"] * node.nic.bandwidth_bytes_per_s,
            pcie_bytes_per_s=usable["pcie"] * node.accelerator.pcie_bandwidth_bytes_per_s,
            memory_bytes_per_s=usable["memory"] * node.host.memory_bandwidth_bytes_per_s,
            uplink_bytes_per_s=usable["leaf"] * fabric.nodes_per_leaf * node.nic.bandwidth_bytes_per_s / fabric.oversubscription,
            nodes_per_leaf=fabric.nodes_per_leaf,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """Who exchanges gradients: the first so many nodes, and parameter servers that hold even shares."""

    workers: int
    servers: int
    placement: Placement
    first_host: int
    """Place of the first host that is no worker's; dedicated servers stand there and after it."""

    @property
    def hosts(self) -> range:
        """Places of the servers."""
        first = self.first_host if self.placement == "dedicated" else 0
        return range(first, first + self.servers)


def ring_s(links: Bandwidths, workers: int, size_bytes: float) -> float:
    """Return the time of an all-reduce, ``2 (N - 1) / N * S / B`` with the slowest of the links that a ring crosses for B."""
    slowest = min(links.adapter_bytes_per_s, links.pcie_bytes_per_s)
    if workers > links.nodes_per_leaf:
        # One hop of the ring leaves each leaf.
        slowest = min(slowest, links.uplink_bytes_per_s)
    return 2.0 * (workers - 1) / workers * size_bytes / slowest


def push_s(links: Bandwidths, parties: Parties, size_bytes: float) -> float:
    """Return the time in which every worker has sent all of its gradients, and the servers have added them up."""
    return size_bytes * max(_wire_s_per_byte(links, parties), _memory_s_per_byte(links, parties, ADDED_MEMORY_BYTES))


def pull_s(links: Bandwidths, parties: Parties, size_bytes: float) -> float:
    """Return the time in which every worker has got all parameters: every flow of a push goes back."""
    return size_bytes * max(_wire_s_per_byte(links, parties), _memory_s_per_byte(links, parties, SENT_MEMORY_BYTES))


def _memory_s_per_byte(links: Bandwidths, parties: Parties, memory_bytes: float) -> float:
    return memory_bytes * parties.workers / parties.servers / links.memory_bytes_per_s


def _wire_s_per_byte(links: Bandwidths, parties: Parties) -> float:
    n, k = parties.workers, parties.servers
    if parties.placement == "dedicated":
        adapter = max(1.0, n / k)
    else:
        # A worker that is a server keeps a part; a server gets nothing from itself over the network.
        adapter = (n - 1) / k
        adapter = max(adapter, 1.0) if k < n else adapter
    return max(
        adapter / links.adapter_bytes_per_s,
        1.0 / links.pcie_bytes_per_s,
        _leaf_bytes(links, parties) / links.uplink_bytes_per_s,
    )


def _leaf_bytes(links: Bandwidths, parties: Parties) -> float:
    """Return what crosses the top of the busiest leaf, one way, for each byte of gradients."""
    last = max(parties.workers, parties.hosts.stop) - 1
    n_leaves = 1 + last // links.nodes_per_leaf
    workers = _below(links, range(parties.workers), n_leaves)
    servers = _below(links, parties.hosts, n_leaves)
    sent = workers * (1.0 - servers / parties.servers)
    received = (parties.workers - workers) * servers / parties.servers
    return float(np.maximum(sent, received).max())


def _below(links: Bandwidths, places: range, n_leaves: int) -> FloatArray:
    leaves = np.array(places, dtype=np.int64) // links.nodes_per_leaf
    return np.bincount(leaves, minlength=n_leaves).astype(np.float64)
