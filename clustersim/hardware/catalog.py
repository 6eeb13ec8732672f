"""Find shipped profiles by name, check them and put them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from clustersim.documents.check import did_you_mean, validate_document
from clustersim.documents.data import data_path
from clustersim.documents.text import Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.build import build_accelerator, build_fabric, build_host, build_nic, build_scale_up, build_switch
from clustersim.hardware.models import Accelerator, ClusterProfile, Fabric, Host, Nic, Node, Switch
from clustersim.hardware.provenance import built_sources, check_sources
from clustersim.hardware.schema import (
    AcceleratorSpec,
    ClusterSpec,
    FabricSpec,
    HostSpec,
    NicSpec,
    NodeSpec,
    Spec,
    SwitchSpec,
)

S = TypeVar("S", bound=Spec)
P = TypeVar("P")


def accelerator_names() -> tuple[str, ...]:
    """Return the names of the shipped accelerators."""
    return _names("accelerators")


def node_names() -> tuple[str, ...]:
    """Return the names of the shipped nodes."""
    return _names("nodes")


def cluster_names() -> tuple[str, ...]:
    """Return the names of the shipped reference clusters."""
    return _names("clusters")


@lru_cache
def load_accelerator(name: str) -> Accelerator:
    """Return a shipped accelerator; raise ``ScenarioError`` for an unknown name."""
    return build_accelerator(read_spec(AcceleratorSpec, _path("accelerators", name))[0])


@lru_cache
def load_host(name: str) -> Host:
    """Return a shipped host; raise ``ScenarioError`` for an unknown name."""
    return build_host(read_spec(HostSpec, _path("hosts", name))[0])


@lru_cache
def load_nic(name: str) -> Nic:
    """Return a shipped network adapter; raise ``ScenarioError`` for an unknown name."""
    return build_nic(read_spec(NicSpec, _path("nics", name))[0])


@lru_cache
def load_switch(name: str) -> Switch:
    """Return a shipped switch; raise ``ScenarioError`` for an unknown name."""
    return build_switch(read_spec(SwitchSpec, _path("switches", name))[0])


@lru_cache
def load_node(name: str) -> Node:
    """Return a shipped node with all that it is made of; raise ``ScenarioError`` for an unknown name."""
    return read_node(_path("nodes", name))


@lru_cache
def load_cluster(name: str) -> ClusterProfile:
    """Return a shipped reference cluster; raise ``ScenarioError`` for an unknown name."""
    return read_cluster(_path("clusters", name))


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
        scale_up=build_scale_up(spec.scale_up),
        host=named(load_host, spec.host, document, ("host",)),
        nic=named(load_nic, spec.nics.model, document, ("nics", "model")),
        n_nics=spec.nics.count,
        accelerators_per_pcie_switch=spec.accelerators_per_pcie_switch,
        power_w=spec.power,
        fabric=_fabric(spec.fabric, document),
        sources=built_sources(spec),
    )


def read_cluster(path: Path) -> ClusterProfile:
    """Return the cluster that a profile describes; the parts that it names must be shipped."""
    spec, document = read_spec(ClusterSpec, path)
    return ClusterProfile(
        name=spec.name,
        title=spec.title,
        node=named(load_node, spec.node, document, ("node",)),
        n_nodes=spec.nodes,
        fabric=_fabric(spec.fabric, document),
        sources=built_sources(spec),
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
    return build_fabric(spec, leaf, spine)


@lru_cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (data_path("hardware_profiles") / kind).glob("*.yaml")))


def _path(kind: str, name: str) -> Path:
    known = _names(kind)
    if name not in known:
        singular = "switch" if kind == "switches" else kind.removesuffix("s")
        raise ScenarioError(f"unknown {singular} '{name}'", hint=_other_kind(kind, name) or _name_hint(name, known))
    return data_path("hardware_profiles") / kind / f"{name}.yaml"


def _other_kind(kind: str, name: str) -> str | None:
    """Return what to write for the name of a node where a cluster is asked for, and the other way round."""
    if kind == "clusters" and name in _names("nodes"):
        return f"it is a node: write {{node: {name}, nodes: 2}}, with as many nodes as there are"
    if kind == "nodes" and name in _names("clusters"):
        return f"it is a cluster: write name: {name} in place of node"
    return None


def _name_hint(name: str, known: Sequence[str]) -> str:
    # A part of a name, such as "h100", is closer to what was meant than any letter-wise distance says.
    containing = [choice for choice in known if name and name.lower() in choice]
    if len(containing) > 1:
        return f"did you mean one of {', '.join(containing)}?"
    if containing:
        return f"did you mean '{containing[0]}'?"
    return did_you_mean(name, known) or f"use one of {', '.join(known)}"
