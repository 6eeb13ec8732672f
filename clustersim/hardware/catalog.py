"""Find shipped profiles by name, check them and put them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_names, data_path
from clustersim.documents.form import keys_of
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Accelerator, ClusterProfile, Fabric, Host, Nic, Node, ScaleUp, Switch
from clustersim.hardware.profile_schema import (
    AcceleratorFigures,
    AcceleratorSpec,
    Checked,
    ClusterProfileSpec,
    FabricSpec,
    HostSpec,
    NicSpec,
    NodeSpec,
    Spec,
    SwitchSpec,
)
from clustersim.hardware.provenance import check_sources
from clustersim.hardware.source import Source

S = TypeVar("S", bound=Spec)
P = TypeVar("P")
Q = TypeVar("Q", Host, Nic, Switch)
U = TypeVar("U", Fabric, ScaleUp, Nic)

SCALE_UP_KEYS: Final = keys_of(ScaleUp)
FABRIC_KEYS: Final = {**keys_of(Fabric), "leaf": "leaf.name", "spine": "spine.name"}
"""Attribute that each key of the wires of a node or of a fabric sets."""
PARTS_OF_FABRIC: Final = ("leaf", "spine", "graph")
"""Keys of a fabric that name switches, and hold no figure."""


def build_accelerator(spec: AcceleratorFigures, name: str, sources: tuple[Source, ...]) -> Accelerator:
    """Return an accelerator; its memory is that reported by the driver, where known."""
    figures = _given(spec, keys_of(Accelerator)) | dict[str, Any](
        name=name,
        sources=sources,
        peak_flops_per_s=MappingProxyType({str(precision): rate for precision, rate in spec.peak_flops.items()}),
        scale_up_bandwidth_bytes_per_s=0.0 if spec.scale_up is None else spec.scale_up.bandwidth,
        scale_up_links=0 if spec.scale_up is None else spec.scale_up.links,
        pcie_bandwidth_bytes_per_s=spec.pcie.bandwidth,
    )
    if spec.reported_memory is not None:
        figures["memory_bytes"] = spec.reported_memory
    return Accelerator(**figures)


def build_part(part: type[Q], spec: Checked, name: str, sources: tuple[Source, ...]) -> Q:
    """Return a host, an adapter or a switch."""
    return part(**{**_given(spec, keys_of(part)), **dict[str, Any](name=name, sources=sources)})


def updated(part: U, change: Checked, keys: Mapping[str, str]) -> U:
    """Return a part with the values that a change gives to the attributes of some keys."""
    given = {attribute: value for attribute, value in _given(change, keys).items() if value is not None}
    return replace(part, **{attribute: tuple(value) if attribute == "dimensions" else value for attribute, value in given.items()})


def _given(spec: Checked, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of some keys, by the attributes that they set; of those that the file may have."""
    return {attribute: getattr(spec, key) for key, attribute in keys.items() if key not in PARTS_OF_FABRIC and hasattr(spec, key)}


@lru_cache
def load_accelerator(name: str) -> Accelerator:
    """Return a shipped accelerator; raise ``ScenarioError`` for an unknown name."""
    spec, _ = read_spec(AcceleratorSpec, profile_path("accelerators", name))
    return build_accelerator(spec, spec.name, spec.sources)


def _load_part(part: type[Q], schema: type[Spec], folder: str, name: str) -> Q:
    """Return a shipped part; raise ``ScenarioError`` for an unknown name."""
    spec, _ = read_spec(schema, profile_path(folder, name))
    return build_part(part, spec, spec.name, spec.sources)


load_host = lru_cache(partial(_load_part, Host, HostSpec, "hosts"))
load_nic = lru_cache(partial(_load_part, Nic, NicSpec, "nics"))
load_switch = lru_cache(partial(_load_part, Switch, SwitchSpec, "switches"))


@lru_cache
def load_node(name: str) -> Node:
    """Return a shipped node with all that it is made of; raise ``ScenarioError`` for an unknown name."""
    return read_node(profile_path("nodes", name))


@lru_cache
def load_cluster(name: str) -> ClusterProfile:
    """Return a shipped reference cluster; raise ``ScenarioError`` for an unknown name."""
    return read_cluster(profile_path("clusters", name))


def read_spec(model: type[S], path: Path) -> tuple[S, Document]:
    """Return one profile, checked and with all its numbers under a source, and the document it came from.

    Raises
    ------
    ScenarioError
        When the file cannot be read, breaks the schema, or holds a number without a source.
    """
    document = read_document(path)
    spec = validate_document(model, document)
    if spec.name != path.stem:
        place = document.place(("name",))
        raise ScenarioError(f"'{spec.name}' is not the name of the file", field="name", hint=f"write '{path.stem}'", place=place)
    check_sources(spec, document)
    return spec, document


def read_node(path: Path) -> Node:
    """Return the node that a profile describes; the parts that it names must be shipped."""
    spec, document = read_spec(NodeSpec, path)
    return Node(
        name=spec.name,
        accelerator=named(load_accelerator, spec.accelerator, document, ("accelerator",)),
        n_accelerators=spec.accelerators_per_node,
        scale_up=spec.scale_up,
        host=named(load_host, spec.host, document, ("host",)),
        nic=named(load_nic, spec.nics.model, document, ("nics", "model")),
        n_nics=spec.nics.count,
        accelerators_per_pcie_switch=spec.accelerators_per_pcie_switch,
        power_w=spec.power,
        fabric=_fabric(spec.fabric, document),
        sources=spec.sources,
    )


def read_cluster(path: Path) -> ClusterProfile:
    """Return the cluster that a profile describes; the parts that it names must be shipped."""
    spec, document = read_spec(ClusterProfileSpec, path)
    return ClusterProfile(
        name=spec.name,
        title=spec.title,
        node=named(load_node, spec.node, document, ("node",)),
        n_nodes=spec.nodes,
        fabric=_fabric(spec.fabric, document),
        sources=spec.sources,
    )


def named(load: Callable[[str], P], name: str, document: Document, at: Sequence[str | int]) -> P:
    """Return the profile that a document names at some path; an unknown name is an error at that place."""
    try:
        return load(name)
    except ScenarioError as error:
        # An error with a place is in the profile itself, not in the name.
        if error.place is not None:
            raise
        field = ".".join(str(part) for part in at)
        raise ScenarioError(error.message, field=field, hint=error.hint, place=document.place(at)) from error


def _fabric(spec: FabricSpec, document: Document) -> Fabric:
    leaf = named(load_switch, spec.leaf, document, ("fabric", "leaf"))
    spine = named(load_switch, spec.spine, document, ("fabric", "spine"))
    fabric = Fabric(topology=spec.topology, leaf=leaf, spine=spine, nodes_per_leaf=spec.nodes_per_leaf)
    return updated(fabric, spec, FABRIC_KEYS)


@lru_cache
def profile_names(kind: str) -> tuple[str, ...]:
    """Return the names of the shipped profiles in a folder."""
    return data_names("hardware_profiles", kind)


def profile_path(kind: str, name: str) -> Path:
    """Return the file of a shipped profile; raise ``ScenarioError`` for an unknown name."""
    known = profile_names(kind)
    if name not in known:
        singular = "switch" if kind == "switches" else kind.removesuffix("s")
        raise ScenarioError(f"unknown {singular} '{name}'", hint=_other_kind(kind, name) or _name_hint(name, known))
    return data_path("hardware_profiles", kind, f"{name}.yaml")


def _other_kind(kind: str, name: str) -> str | None:
    """Return the correction of a node name given for a cluster, or of a cluster name given for a node."""
    if kind == "clusters" and name in profile_names("nodes"):
        return f"it is a node: write {{node: {name}, nodes: 2}}, with as many nodes as there are"
    if kind == "nodes" and name in profile_names("clusters"):
        return f"it is a cluster: write name: {name} in place of node"
    return None


def nodes_with(accelerator: str, known: Sequence[str]) -> str:
    """Return a hint at the nodes, of some, that have an accelerator in their names; empty where none has."""
    # The first word of an accelerator is that in the names of its nodes: dgx-b200 has b200-sxm.
    word = accelerator.lower().partition("-")[0] if accelerator in profile_names("accelerators") else accelerator.lower()
    having = [name for name in known if word and word in name.split("-")]
    return f"use {', '.join(having)}" if having else ""


def _name_hint(name: str, known: Sequence[str]) -> str:
    # A part of a name, such as "h100", is closer to what was meant than any letter-wise distance says.
    containing = [choice for choice in known if name and name.lower() in choice]
    if len(containing) > 1:
        return f"did you mean one of {', '.join(containing)}?"
    if containing:
        return f"did you mean '{containing[0]}'?"
    return did_you_mean(name, known) or f"use one of {', '.join(known)}"
