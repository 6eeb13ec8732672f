"""A node as a scenario describes it: a shipped one with changes, or one from nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final, TypeVar

from clustersim.documents.check import validate_part, value_at
from clustersim.documents.text import Data, Document
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import FABRIC_KEYS, SCALE_UP_KEYS, load_node, updated
from clustersim.hardware.models import Accelerator, Fabric, FabricTopology, Nic, Node, ScaleUp
from clustersim.hardware.own_parts import ACCELERATOR, HOST, NIC, SWITCH, part_of
from clustersim.hardware.profile_schema import FabricChange, NicsChange, NodeChange, ScaleUpChange
from clustersim.hardware.provenance import SCENARIO
from clustersim.hardware.source import Source

T = TypeVar("T")
Path = tuple[str | int, ...]

INLINE_NAME: Final = "inline"
NODE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "accelerator": "accelerator.name",
        "accelerators_per_node": "n_accelerators",
        "nics.model": "nic.name",
        "nics.count": "n_nics",
        **{f"nics.{key}": f"nic.{attribute}" for key, attribute in NIC.keys.items() if key != "name"},
        "scale_up.kind": "scale_up.kind",
        "scale_up.nodes_per_domain": "scale_up.nodes_per_domain",
        "scale_up.bandwidth": "accelerator.scale_up_bandwidth_bytes_per_s",
        "scale_up.latency": "scale_up.latency_s",
        "scale_up.in_network_reduction": "scale_up.in_network_reduction",
        "host": "host.name",
        "accelerators_per_pcie_switch": "accelerators_per_pcie_switch",
        "power": "power_w",
        **{f"fabric.{key}": f"fabric.{attribute}" for key, attribute in FABRIC_KEYS.items()},
    }
)
"""Attribute of a node that each key of a scenario sets."""
_NEEDED: Final = ("accelerator", "accelerators_per_node", "host", "nics", "scale_up", "fabric")


def node_from_mapping(base: str | None, overrides: Mapping[str, object], document: Document, at: Sequence[str | int]) -> Node:
    """Return a shipped node with some of its fields replaced, or a node from the given fields alone.

    Parameters
    ----------
    base
        Name of a shipped node, or None for a node from nothing.
    overrides
        Any of ``accelerator``, ``accelerators_per_node``, ``nics`` (``model``, ``count``, ``bandwidth``, ``latency``), ``scale_up``
        (``kind``, ``nodes_per_domain``, ``bandwidth``, ``latency``, ``in_network_reduction``), ``host``,
        ``accelerators_per_pcie_switch``, ``power`` and ``fabric`` (see :func:`fabric_from_mapping`).
    document, at
        Where the mapping stands, for messages.
    """
    path = tuple(at)
    change = validate_part(NodeChange, dict(overrides), document, path)
    if base is None:
        return _from_nothing(change, document, path)
    return _changed(load_node(base), change, document, path)


def changed_node(node: Node, overrides: Mapping[str, object], document: Document, at: Sequence[str | int]) -> Node:
    """Return a node with some of its fields replaced, as :func:`node_from_mapping` does for a shipped one."""
    path = tuple(at)
    return _changed(node, validate_part(NodeChange, dict(overrides), document, path), document, path)


def changes_at(document: Document, at: Sequence[str | int]) -> dict[str, Data]:
    """Return the keys of a mapping that belong to a node."""
    given = value_at(document.data, at)
    return {key: given[key] for key in NodeChange.model_fields if key in given} if isinstance(given, dict) else {}


def fabric_from_mapping(base: Fabric, overrides: Mapping[str, object], document: Document, at: Sequence[str | int]) -> Fabric:
    """Return a network with some of its proportions replaced.

    Parameters
    ----------
    base
        The network to start from.
    overrides
        Any of ``topology``, ``leaf``, ``spine``, ``nodes_per_leaf``, ``leaves_per_pod``, ``oversubscription``,
        ``core_oversubscription``, ``routing``, ``seed``, ``cable_latency``, ``in_network_reduction``, ``dimensions``,
        ``leaves_per_group``, ``global_links``, ``link_bandwidth`` and ``graph``.
    document, at
        Where the mapping stands, for messages.
    """
    path = tuple(at)
    return _changed_fabric(base, validate_part(FabricChange, dict(overrides), document, path), document, path)


def _changed(node: Node, change: NodeChange, document: Document, path: Path) -> Node:
    accelerator = node.accelerator
    if change.accelerator is not None:
        accelerator = part_of(ACCELERATOR, change.accelerator, document, (*path, "accelerator"))
    if change.scale_up is not None:
        accelerator = _rewired(accelerator, change.scale_up)
    n_accelerators = change.accelerators_per_node or node.n_accelerators
    changed = replace(
        node,
        accelerator=accelerator,
        n_accelerators=n_accelerators,
        scale_up=node.scale_up if change.scale_up is None else updated(node.scale_up, change.scale_up, SCALE_UP_KEYS),
        host=node.host if change.host is None else part_of(HOST, change.host, document, (*path, "host")),
        nic=node.nic if change.nics is None else _changed_nic(node.nic, change.nics, document, (*path, "nics")),
        n_nics=node.n_nics if change.nics is None or change.nics.count is None else change.nics.count,
        accelerators_per_pcie_switch=min(change.accelerators_per_pcie_switch or node.accelerators_per_pcie_switch, n_accelerators),
        power_w=change.power or node.power_w,
        fabric=node.fabric if change.fabric is None else _changed_fabric(node.fabric, change.fabric, document, (*path, "fabric")),
    )
    return replace(changed, sources=(*node.sources, *_scenario_source(_changes(NODE_KEYS, node, changed))))


def changed_fields(before: Fabric, after: Fabric) -> tuple[str, ...]:
    """Return the keys of a fabric whose values differ."""
    return _changes(FABRIC_KEYS, before, after)


def _changes(keys: Mapping[str, str], before: object, after: object) -> tuple[str, ...]:
    """Return the keys whose values differ; a value that is as it was is still the profile's."""
    return tuple(key for key, attribute in keys.items() if attrgetter(attribute)(before) != attrgetter(attribute)(after))


def _from_nothing(change: NodeChange, document: Document, path: Path) -> Node:
    accelerator = _need(change.accelerator, "accelerator", document, path)
    n_accelerators = _need(change.accelerators_per_node, "accelerators_per_node", document, path)
    host = _need(change.host, "host", document, path)
    nics = _need(change.nics, "nics", document, path)
    scale_up = _need(change.scale_up, "scale_up", document, path)
    fabric = _need(change.fabric, "fabric", document, path)
    return Node(
        name=INLINE_NAME,
        accelerator=_rewired(part_of(ACCELERATOR, accelerator, document, (*path, "accelerator")), scale_up),
        n_accelerators=n_accelerators,
        scale_up=updated(ScaleUp(kind=_need(scale_up.kind, "kind", document, (*path, "scale_up"))), scale_up, SCALE_UP_KEYS),
        host=part_of(HOST, host, document, (*path, "host")),
        nic=_new_nic(nics, document, (*path, "nics")),
        n_nics=_need(nics.count, "count", document, (*path, "nics")),
        accelerators_per_pcie_switch=change.accelerators_per_pcie_switch or 1,
        power_w=change.power,
        fabric=_new_fabric(fabric, document, (*path, "fabric")),
        sources=_given(change),
    )


def _new_nic(change: NicsChange, document: Document, path: Path) -> Nic:
    if change.model is not None:
        return _changed_nic(part_of(NIC, change.model, document, (*path, "model")), change, document, path)
    bandwidth = _need(change.bandwidth, "bandwidth", document, path)
    latency = _need(change.latency, "latency", document, path)
    return Nic(name=INLINE_NAME, bandwidth_bytes_per_s=bandwidth, latency_s=latency, sources=())


def _changed_nic(nic: Nic, change: NicsChange, document: Document, path: Path) -> Nic:
    found = nic if change.model is None else part_of(NIC, change.model, document, (*path, "model"))
    changed = updated(found, change, NIC.keys)
    return replace(changed, sources=(*found.sources, *_scenario_source(_changes(NIC.keys, found, changed))))


def _rewired(accelerator: Accelerator, change: ScaleUpChange) -> Accelerator:
    if change.bandwidth in (None, accelerator.scale_up_bandwidth_bytes_per_s):
        return accelerator
    return replace(
        accelerator,
        scale_up_bandwidth_bytes_per_s=change.bandwidth,
        scale_up_links=max(accelerator.scale_up_links, 1),
        sources=(*accelerator.sources, *_scenario_source(["scale_up"])),
    )


def _new_fabric(change: FabricChange, document: Document, path: Path) -> Fabric:
    leaf = _need(change.leaf, "leaf", document, path)
    topology: FabricTopology = _need(change.topology, "topology", document, path)
    start = Fabric(
        topology=topology,
        leaf=part_of(SWITCH, leaf, document, (*path, "leaf")),
        spine=part_of(SWITCH, change.spine or leaf, document, (*path, "spine" if change.spine else "leaf")),
        nodes_per_leaf=1 if topology in ("torus", "graph") else _need(change.nodes_per_leaf, "nodes_per_leaf", document, path),
    )
    return _changed_fabric(start, change, document, path)


def _changed_fabric(fabric: Fabric, change: FabricChange, document: Document, path: Path) -> Fabric:
    return replace(
        updated(fabric, change, FABRIC_KEYS),
        leaf=fabric.leaf if change.leaf is None else part_of(SWITCH, change.leaf, document, (*path, "leaf")),
        spine=fabric.spine if change.spine is None else part_of(SWITCH, change.spine, document, (*path, "spine")),
        graph=fabric.graph if change.graph is None else change.graph,
    )


def _need(value: T | None, name: str, document: Document, path: Path) -> T:
    if value is None:
        field = ".".join(str(part) for part in (*path, name))
        hint = f"a node from nothing needs {', '.join(_NEEDED)}; or start from a shipped node"
        raise ScenarioError(f"'{name}' is missing", field=field, hint=hint, place=document.place(path))
    return value


def _given(change: NodeChange) -> tuple[Source, ...]:
    fields: list[str] = []
    for name in sorted(change.model_fields_set):
        value: object = getattr(change, name)
        if isinstance(value, NicsChange | ScaleUpChange | FabricChange):
            fields.extend(f"{name}.{inner}" for inner in sorted(value.model_fields_set))
        else:
            fields.append(name)
    return _scenario_source(fields)


def _scenario_source(fields: Sequence[str]) -> tuple[Source, ...]:
    if not fields:
        return ()
    return (Source(title="Given in the scenario", url=SCENARIO, accessed="", covers=tuple(fields)),)
