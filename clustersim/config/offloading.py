"""Read what a scenario says about offloading, and refuse what cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node, node_names
from clustersim.hardware.models import Node
from clustersim.parallel.mesh import place
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stage_holds import stage_peak
from clustersim.parallel.training_plan import Plan, StrategySettings
from clustersim.program.holds import held_bytes
from clustersim.topology.cluster import Cluster, FloatArray
from clustersim.units.quantity import format_quantity


def check_drives(asked: StrategySettings, nodes: Sequence[Node]) -> None:
    """Refuse drives that a node lacks.

    Parameters
    ----------
    nodes
        Each kind of node of the cluster.

    Raises
    ------
    ScenarioError
        With the nodes that have some.
    """
    if not asked.offload.to_drives:
        return
    for node in nodes:
        if node.host.storage_bandwidth_bytes_per_s is None:
            known = [name for name in node_names() if load_node(name).host.storage_bandwidth_bytes_per_s is not None]
            hint = f"use {{to: host}}, or a node with NVMe: {', '.join(known)}"
            raise ScenarioError(f"{node.name} has no NVMe", field="strategy.offload", hint=hint)


def host_shortfall(plan: Plan, cluster: Cluster) -> str:
    """Return what is wrong where a host has less memory than what is offloaded to it takes, for the first such node; or nothing."""
    needed_bytes = host_bytes(plan, cluster)
    nodes = np.arange(len(needed_bytes), dtype=np.int64)
    memory_bytes = np.array([node.host.memory_bytes for node, _ in cluster.kinds], dtype=np.float64)[cluster.kind_of(nodes)]
    short = np.flatnonzero(needed_bytes > memory_bytes)
    if not len(short):
        return ""
    needed, memory = (format_quantity(float(values[short[0]]), "B") for values in (needed_bytes, memory_bytes))
    return f"what is offloaded to node {short[0]} takes {needed}, and its host has {memory} of memory"


def host_bytes(plan: Plan, cluster: Cluster) -> FloatArray:
    """Return what each node must hold in its memory for all of its ranks."""
    needed, mesh = np.zeros(cluster.n_nodes), place(plan.strategy)
    for stage in range(plan.strategy.pp):
        counts = np.bincount(cluster.node_of(mesh.stage_ranks(stage)), minlength=cluster.n_nodes)
        needed += counts * held_bytes(stage_peak(stage_of(plan, stage), place="host"))
    return needed
