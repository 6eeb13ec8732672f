"""Lay the wires of a cluster as directed links, and give the route between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from clustersim.hardware.models import Fabric, FabricTopology, Node, ScaleUpKind
from clustersim.topology.dragonfly import dragonfly
from clustersim.topology.scale_out import Below, ScaleOut
from clustersim.topology.switch_graph import graph
from clustersim.topology.torus import torus
from clustersim.topology.trees import fat_tree, leaf_spine, rail_optimized, single_switch
from clustersim.topology.wires import ScaleUpWiring, bridge_pairs, cube_mesh, full_mesh, no_scale_up, nvswitch

SCALE_UP: Final[Mapping[ScaleUpKind, Callable[[Node], ScaleUpWiring]]] = MappingProxyType(
    {
        "nvswitch": nvswitch,
        "cube_mesh": cube_mesh,
        "full_mesh": full_mesh,
        "bridge_pairs": bridge_pairs,
        "pcie": no_scale_up,
    }
)
"""Wiring of the accelerators of one node, by kind."""

SYMMETRIC: Final = frozenset[ScaleUpKind]({"nvswitch", "full_mesh"})
"""Scale-up wirings in which all groups of one size have equal links."""

FABRICS: Final[Mapping[FabricTopology, Callable[[Fabric, Below], ScaleOut]]] = MappingProxyType(
    {
        "single_switch": single_switch,
        "leaf_spine": leaf_spine,
        "rail_optimized": rail_optimized,
        "fat_tree": fat_tree,
        "torus": torus,
        "dragonfly": dragonfly,
        "graph": graph,
    }
)
"""Scale-out fabrics, with their links, by kind."""
