"""The hardware of a cluster as a scenario would describe it, with nothing left to defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from clustersim.documents.spots import Data
from clustersim.hardware.models import Fabric, Node
from clustersim.hardware.overrides import FABRIC_KEYS, INLINE_NAME, NODE_KEYS
from clustersim.units.quantity import exact_quantity

_UNITS: Final = (("_bytes_per_s", "B/s"), ("_s", "s"), ("_w", "W"))
"""Unit of an attribute by the end of its name."""
_OF_TOPOLOGY: Final = {"dimensions": "torus", "leaves_per_group": "dragonfly", "global_links": "dragonfly"}
"""Keys that one topology alone reads."""


def resolved_hardware(kinds: Sequence[tuple[Node, int]], fabric: Fabric, profile: str | None = None) -> dict[str, Data]:
    """Return nodes and fabric as keys of ``cluster``; shipped parts stay named, and their figures are written out.

    Parameters
    ----------
    kinds
        Each kind of node and how many there are; several are written as groups.
    profile
        The shipped cluster that they are from; None where there is none.
    """
    wires = _fabric(fabric)
    if len(kinds) > 1:
        return {"nodes": [_group(node, count) for node, count in kinds], "fabric": wires}
    node, n_nodes = kinds[0]
    if node.name == INLINE_NAME:
        return {"node": {**_node(node), "fabric": wires}, "nodes": n_nodes}
    base: dict[str, Data] = {"node": node.name} if profile is None else {"name": profile}
    return {**base, "nodes": n_nodes, **_node(node), "fabric": wires}


def _group(node: Node, count: int) -> dict[str, Data]:
    if node.name == INLINE_NAME:
        # A node from nothing must name a fabric, also where that of the cluster takes its place.
        return {"node": {**_node(node), "fabric": _fabric(node.fabric)}, "count": count}
    return {"node": node.name, "count": count, **_node(node)}


def _node(node: Node) -> dict[str, Data]:
    # A part from nothing has no name, and an accelerator without links of its own no bandwidth to state.
    unused = {"nics.model"} if node.nic.name == INLINE_NAME else set[str]()
    unused |= set() if node.accelerator.scale_up_bandwidth_bytes_per_s > 0 else {"scale_up.bandwidth"}
    return _written(node, {key: each for key, each in NODE_KEYS.items() if not (key in unused or key.startswith("fabric."))})


def _fabric(fabric: Fabric) -> dict[str, Data]:
    unused = {key for key, topology in _OF_TOPOLOGY.items() if fabric.topology != topology}
    unused |= set() if fabric.routing == "ecmp" else {"seed"}
    return _written(fabric, {key: each for key, each in FABRIC_KEYS.items() if key not in unused})


def _written(part: Node | Fabric, keys: Mapping[str, str]) -> dict[str, Data]:
    """Return the values of some attributes as a scenario writes them under their keys; those that are None are left out."""
    written: dict[str, Data] = {}
    for key, attribute in keys.items():
        value: Data | tuple[int, ...] = attrgetter(attribute)(part)
        if value is None:
            continue
        *above, name = key.split(".")
        inner = written
        for section in above:
            inner = inner.setdefault(section, {})
            assert isinstance(inner, dict)
        unit = next((unit for suffix, unit in _UNITS if attribute.endswith(suffix)), None)
        if unit is not None and isinstance(value, float):
            inner[name] = exact_quantity(value, unit)
        else:
            inner[name] = list[Data](value) if isinstance(value, tuple) else value
    return written
