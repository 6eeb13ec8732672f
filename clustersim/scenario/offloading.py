"""Read what a scenario says about offloading, and refuse what cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_node, node_names
from clustersim.hardware.communication import Place
from clustersim.hardware.models import Node
from clustersim.strategy.mesh import place
from clustersim.strategy.offload_memory import node_host_bytes
from clustersim.strategy.plan import SHARDS_GRADIENTS, SHARDS_PARAMETERS, Offload, Plan
from clustersim.topology.cluster import Cluster
from clustersim.units.quantity import format_quantity

Part = Literal["optimizer", "gradients", "parameters", "activations"]
Asked = Part | Mapping[Literal["to"], Literal["host", "nvme"]]

FIELD: Final = "strategy.offload"


def offload_of(asked: Sequence[Asked], nodes: Sequence[Node], *, zero_stage: int) -> Offload:
    """Return where each part of the training state, and activations, live.

    Parameters
    ----------
    asked
        Names of parts, and once ``{to: host}`` or ``{to: nvme}``, in any order; host memory where nothing says so.
    nodes
        Each kind of node of the cluster.

    Raises
    ------
    ScenarioError
        Something stands twice, a part cannot go without another or with this ``zero_stage``, or a node has no NVMe.
    """
    parts = [each for each in asked if isinstance(each, str)]
    targets = [each["to"] for each in asked if not isinstance(each, str)]
    twice = next((part for number, part in enumerate(parts) if part in parts[:number]), None)
    if twice is not None:
        raise ScenarioError(f"'{twice}' stands twice", field=FIELD, hint="name each part once")
    if len(targets) > 1:
        raise ScenarioError(f"{len(targets)} places to offload to", field=FIELD, hint="write {to: host} or {to: nvme} once")
    if targets and not parts:
        raise ScenarioError(
            f"nothing is offloaded to {targets[0]}", field=FIELD, hint="name optimizer, gradients, parameters or activations beside it"
        )
    _check_parts(parts, zero_stage)
    there: Place = "nvme" if "nvme" in targets else "host"
    if there == "nvme":
        _check_drives(nodes)
        if "activations" in parts:
            hint = "use {to: host}, or leave activations out"
            raise ScenarioError("activations go to the memory of the host, not to its drives", field=FIELD, hint=hint)
    return Offload(
        optimizer=there if "optimizer" in parts else "accelerator",
        gradients=there if "gradients" in parts else "accelerator",
        parameters=there if "parameters" in parts else "accelerator",
        activations="host" if "activations" in parts else "accelerator",
    )


def _check_parts(parts: Sequence[str], zero_stage: int) -> None:
    for part in parts:
        if part not in ("optimizer", "activations") and "optimizer" not in parts:
            hint = f"write [optimizer, {part}]: the processors that hold the optimizer update what is there"
            raise ScenarioError(f"{part} cannot be offloaded without the optimizer", field=FIELD, hint=hint)
    if "gradients" in parts and zero_stage < SHARDS_GRADIENTS:
        raise ScenarioError(
            f"with zero_stage {zero_stage} gradients stay on the accelerator until the last micro-batch",
            field=FIELD,
            hint="use zero_stage: 2, or offload the optimizer alone, to which they are then copied",
        )
    if "parameters" in parts and zero_stage < SHARDS_PARAMETERS:
        hint = "use zero_stage: 3, or leave parameters out"
        raise ScenarioError(f"with zero_stage {zero_stage} every rank needs all parameters at any time", field=FIELD, hint=hint)


def _check_drives(nodes: Sequence[Node]) -> None:
    for node in nodes:
        if node.host.storage_bandwidth_bytes_per_s is None:
            known = [name for name in node_names() if load_node(name).host.storage_bandwidth_bytes_per_s is not None]
            hint = f"use {{to: host}}, or a node with NVMe: {', '.join(known)}"
            raise ScenarioError(f"{node.name} has no NVMe", field=FIELD, hint=hint)


def host_shortfall(plan: Plan, cluster: Cluster) -> str:
    """Return what is wrong where a host has less memory than what is offloaded to it takes, for the first such node; or nothing."""
    needed_bytes = node_host_bytes(plan, place(plan.strategy), cluster)
    nodes = np.arange(len(needed_bytes), dtype=np.int64)
    memory_bytes = np.array([node.host.memory_bytes for node, _ in cluster.kinds], dtype=np.float64)[cluster.kind_of(nodes)]
    short = np.flatnonzero(needed_bytes > memory_bytes)
    if not len(short):
        return ""
    needed, memory = (format_quantity(float(values[short[0]]), "B") for values in (needed_bytes, memory_bytes))
    return f"what is offloaded to node {short[0]} takes {needed}, and its host has {memory} of memory"
