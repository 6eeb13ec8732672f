"""The cluster of a scenario: node, fabric, number of nodes, and degraded links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from clustersim.config.node_groups import Hardware, NodeGroupSpec, check_alike, in_place, read_constants
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.documents.check import value_at
from clustersim.documents.text import Data, Document, merged
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import load_cluster, load_node, named
from clustersim.hardware.models import Node
from clustersim.hardware.overrides import changed_fields, changed_node, changes_at, fabric_from_mapping, node_from_mapping
from clustersim.hardware.own_parts import BASE, read_beside
from clustersim.hardware.profile_schema import NodeChange
from clustersim.hardware.provenance import remembered_fields
from clustersim.notices import Flag
from clustersim.parallel.contributors import stage_holds, stage_peak
from clustersim.parallel.division import place
from clustersim.parallel.stage import Stage
from clustersim.program.holds import held_bytes
from clustersim.topology.cluster import FloatArray
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from clustersim.units.quantity import format_quantity, line_rate


def hardware_of(spec: ClusterSpec, document: Document) -> Hardware:
    """Return the nodes with their overrides, the fabric, the number of nodes, and the figures without a source."""
    hardware = _described(spec, document)
    if spec.clock_spread is not None:
        hardware = replace(hardware, kinds=tuple((_spread(node, spec.clock_spread), count) for node, count in hardware.kinds))
    if spec.calibration is None:
        return hardware
    constants = read_constants(spec.calibration, document.name)
    return replace(hardware, kinds=in_place(constants.calibration, hardware.kinds), constants=constants)


def _spread(node: Node, clock_spread: float) -> Node:
    return replace(node, accelerator=replace(node.accelerator, clock_spread=clock_spread))


def _described(spec: ClusterSpec, document: Document) -> Hardware:
    changes = changes_at(document, ("cluster",))
    if isinstance(spec.nodes, list):
        return _mixed(spec, spec.nodes, changes, document)
    if spec.name is not None:
        if spec.node is not None:
            raise ScenarioError("a cluster has a name or a node, not both", field="cluster.node", hint="delete one of the two")
        profile = named(load_cluster, spec.name, document, ("cluster", "name"))
        fabric_change = changes.pop("fabric", None)
        node = node_from_mapping(profile.node.name, changes, document, ("cluster",))
        fabric = profile.fabric
        if isinstance(fabric_change, dict):
            fabric = fabric_from_mapping(fabric, fabric_change, document, ("cluster", "fabric"))
        others = [f"fabric.{key}" for key in changed_fields(profile.fabric, fabric)]
        others += [] if spec.nodes in (None, profile.n_nodes) else ["nodes"]
        given_keys = [f"{profile.name}.{key}" for key in others]
        unseen = tuple(name for name in remembered_fields(replace(profile, node=node)) if name not in given_keys)
        return Hardware(kinds=((node, spec.nodes or profile.n_nodes),), fabric=fabric, unseen=unseen)
    if spec.node is None:
        raise ScenarioError("'node' is missing", field="cluster.node", hint="name a shipped node or cluster; see clustersim show nodes")
    if spec.nodes is None:
        raise ScenarioError("'nodes' is missing", field="cluster.nodes", hint="write how many nodes there are, such as 'nodes: 1'")
    node = _node(spec.node, changes, document, ("cluster",))
    return Hardware(kinds=((node, spec.nodes),), fabric=node.fabric, unseen=remembered_fields(node))


def _mixed(spec: ClusterSpec, groups: list[NodeGroupSpec], changes: dict[str, Data], document: Document) -> Hardware:
    """Return the hardware of groups of nodes; the fabric starts from that of the first."""
    for key in ("name", "node"):
        if getattr(spec, key) is not None:
            hint = "delete it, or write a number of nodes"
            raise ScenarioError(f"{key} and groups of nodes both say what the cluster consists of", field=f"cluster.{key}", hint=hint)
    fabric_change = changes.pop("fabric", None)
    for key in changes:
        hint = "write it into the groups that it is for"
        raise ScenarioError(f"{key} stands beside groups of nodes", field=f"cluster.{key}", hint=hint)
    nodes = [_of_group(group, index, document) for index, group in enumerate(groups)]
    check_alike(nodes)
    fabric = nodes[0].fabric
    if isinstance(fabric_change, dict):
        fabric = fabric_from_mapping(fabric, fabric_change, document, ("cluster", "fabric"))
    unseen = dict.fromkeys(name for index, node in enumerate(nodes) for name in remembered_fields(node, fabric=index == 0))
    kinds = tuple((node, group.count) for node, group in zip(nodes, groups, strict=True))
    return Hardware(kinds=kinds, fabric=fabric, unseen=tuple(unseen))


def _of_group(group: NodeGroupSpec, index: int, document: Document) -> Node:
    path = ("cluster", "nodes", index)
    if group.fabric is not None:
        hint = "write it beside nodes, once for the whole cluster"
        raise ScenarioError("a group of nodes has no fabric of its own", field=f"cluster.nodes.{index}.fabric", hint=hint)
    return _node(group.node, changes_at(document, path), document, path)


def _node(asked: str | NodeChange, changes: dict[str, Data], document: Document, path: tuple[str | int, ...]) -> Node:
    if isinstance(asked, str) and asked.endswith(".yaml"):
        written = read_beside(asked, document, (*path, "node"))
        figures = {key: value for key, value in written.data.items() if key not in ("name", "title", "sources", BASE)}
        base = written.data.get(BASE)
        if isinstance(base, str):
            named(load_node, base, written, (BASE,))
        return changed_node(node_from_mapping(base if isinstance(base, str) else None, figures, written, ()), changes, document, path)
    if isinstance(asked, str):
        named(load_node, asked, document, (*path, "node"))
        return node_from_mapping(asked, changes, document, path)
    inline = value_at(document.data, (*path, "node"))
    return node_from_mapping(None, merged(inline if isinstance(inline, dict) else {}, changes), document, (*path, "node"))


def link_changes(spec: ClusterSpec) -> tuple[LinkChange, ...]:
    """Return the links that are not as built."""
    for index, link in enumerate(spec.links):
        _check_link(link, f"cluster.links.{index}")
    return tuple(spec.links)


def _check_link(link: LinkChange, field: str) -> None:
    down = link.state == "down"
    if link.between[0] == link.between[1]:
        message = f"'{link.between[0]}' stands at both ends"
        raise ScenarioError(message, field=f"{field}.between", hint="name the two things that the link joins")
    if link.bandwidth == 0.0:
        hint = "write state: down for a link that carries nothing"
        raise ScenarioError("a link cannot have 0 B/s", field=f"{field}.bandwidth", hint=hint)
    if link.fraction is not None and not 0 < link.fraction <= 1:
        hint = "write a share above 0 and at most 1, or state: down"
        raise ScenarioError(f"{link.fraction:g} is not a share of a bandwidth", field=f"{field}.fraction", hint=hint)
    if link.bandwidth is not None and link.fraction is not None:
        raise ScenarioError("bandwidth and fraction both say how fast the link is", field=f"{field}.fraction", hint="delete one of the two")
    if down and (link.half_duplex or any(value is not None for value in (link.bandwidth, link.fraction, link.latency))):
        hint = "delete state, or all but between and state"
        raise ScenarioError("a link that is down has no other properties", field=f"{field}.state", hint=hint)
    if link.half_duplex and link.direction == "forward":
        raise ScenarioError("half duplex is about both directions", field=f"{field}.direction", hint="delete direction")


def routing_flags(cluster: Cluster) -> tuple[Flag, ...]:
    """Return the notices on the routing of flows."""
    if cluster.fabric.routing != "ecmp" or cluster.n_leaves < 2:
        return ()
    message = "ecmp puts each pair of ranks on one path; a library that opens several connections for each pair meets milder collisions"
    return (Flag(code="one_path_per_pair", message=message),)


def adapter_flags(cluster: Cluster) -> tuple[Flag, ...]:
    """Return the notices on adapters that are far faster than the PCIe of the accelerators that share one."""
    flags: list[Flag] = []
    for node, _ in cluster.kinds:
        behind = node.accelerator.pcie_bandwidth_bytes_per_s * max(1.0, node.n_accelerators / node.n_nics) if node.n_nics else inf
        if node.nic.bandwidth_bytes_per_s > _FAR * behind:
            message = (
                f"adapters of {line_rate(node.nic.bandwidth_bytes_per_s)} stand behind PCIe of {line_rate(behind)} (B is bytes, bit bits)"
            )
            flags.append(Flag(code="adapter_above_pcie", message=message))
    return tuple(flags)


_FAR: Final = 2.0
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
    needed, strategy = np.zeros(cluster.n_nodes), stages[0].strategy
    if not strategy.offload.parts:
        return needed
    mesh = place(strategy)
    for stage in stages:
        counts = np.bincount(cluster.node_of(mesh.stage_ranks(stage.number)), minlength=cluster.n_nodes)
        needed += counts * held_bytes(stage_peak(stage, place="host"))
    return needed
