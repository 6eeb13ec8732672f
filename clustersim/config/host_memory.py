"""Memory of hosts that parameter servers and offloaded training state need, which stops no run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from clustersim.hardware.models import Node
from clustersim.notices import Flag
from clustersim.parallel.contributors import stage_holds, stage_peak
from clustersim.parallel.division import place
from clustersim.parallel.stage import Stage
from clustersim.program.holds import held_bytes
from clustersim.topology.cluster import Cluster, FloatArray
from clustersim.units.quantity import format_quantity

_GIGA: Final = 1e9


def server_flags(stage: Stage, node: Node) -> tuple[Flag, ...]:
    """Return the notices on the memory of parameter servers."""
    needed_bytes = held_bytes(stage_holds(stage, "server"))
    if needed_bytes <= node.host.memory_bytes:
        return ()
    message = f"a parameter server keeps {needed_bytes / _GIGA:.0f} GB, and its host has {node.host.memory_bytes / _GIGA:.0f} GB"
    return (Flag(code="server_memory", message=message),)


def host_flags(stages: Sequence[Stage], cluster: Cluster) -> tuple[Flag, ...]:
    """Return the notices on hosts with less memory than their offloaded state needs."""
    shortfall = host_shortfall(stages, cluster)
    return (Flag(code="host_memory", message=shortfall),) if shortfall else ()


def host_shortfall(stages: Sequence[Stage], cluster: Cluster) -> str:
    """Return the error of the first node whose host has less memory than its offloaded state needs; or nothing."""
    needed_bytes = host_bytes(stages, cluster)
    nodes = np.arange(len(needed_bytes), dtype=np.int64)
    memory_bytes = np.array([node.host.memory_bytes for node, _ in cluster.kinds], dtype=np.float64)[cluster.kind_of(nodes)]
    short = np.flatnonzero(needed_bytes > memory_bytes)
    if not len(short):
        return ""
    needed, memory = (format_quantity(float(values[short[0]]), "B") for values in (needed_bytes, memory_bytes))
    return f"what is offloaded to node {short[0]} takes {needed}, and its host has {memory} of memory"


def host_bytes(stages: Sequence[Stage], cluster: Cluster) -> FloatArray:
    """Return what each node must hold in its memory for all of its ranks."""
    needed, mesh = np.zeros(cluster.n_nodes), place(stages[0].strategy)
    for stage in stages:
        counts = np.bincount(cluster.node_of(mesh.stage_ranks(stage.number)), minlength=cluster.n_nodes)
        needed += counts * held_bytes(stage_peak(stage, place="host"))
    return needed
