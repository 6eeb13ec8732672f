"""A cluster with a tenth more of one of its resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from clustersim.hardware.models import Node
from clustersim.scenario.build import Built
from clustersim.scenario.machine import link_changes
from clustersim.topology.lately import cluster_of

MORE: Final = 1.1


def _products(node: Node) -> Node:
    peaks = {precision: MORE * rate for precision, rate in node.accelerator.peak_flops_per_s.items()}
    return replace(node, accelerator=replace(node.accelerator, peak_flops_per_s=MappingProxyType(peaks)))


def _memory(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, memory_bandwidth_bytes_per_s=MORE * card.memory_bandwidth_bytes_per_s))


def _scale_up(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, scale_up_bandwidth_bytes_per_s=MORE * card.scale_up_bandwidth_bytes_per_s))


def _network(node: Node) -> Node:
    return replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=MORE * node.nic.bandwidth_bytes_per_s))


RESOURCES: Final[Mapping[str, Callable[[Node], Node]]] = MappingProxyType(
    {"rate of matrix products": _products, "memory bandwidth": _memory, "scale-up bandwidth": _scale_up, "network bandwidth": _network}
)
"""What is made a tenth larger, by what people call it; the switches grow with the adapters."""
UPLINKS: Final = "uplinks of leaf switches"
"""These too, where they are fewer than what hangs below them."""


def with_more(built: Built, resource: str) -> Built:
    """Return a scenario on a cluster with a tenth more of a resource of ``RESOURCES``, or ``UPLINKS``."""
    kinds, fabric = built.cluster.kinds, built.cluster.fabric
    if resource == UPLINKS:
        fabric = replace(fabric, oversubscription=max(1.0, fabric.oversubscription / MORE))
    else:
        kinds = tuple((RESOURCES[resource](node), count) for node, count in kinds)
    return replace(built, cluster=cluster_of(kinds, fabric, changes=link_changes(built.scenario.spec.cluster)))


def resources(built: Built) -> tuple[str, ...]:
    """Return the resources that a cluster has, and of which more may make a step shorter."""
    several = built.cluster.n_nodes > 1
    found = [name for name, change in RESOURCES.items() if several or change is not _network]
    return (*found, *((UPLINKS,) if several and built.cluster.fabric.oversubscription > 1.0 else ()))
