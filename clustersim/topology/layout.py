"""What stands where in a cluster: places, their wires, the fabric between them, and how links are numbered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustersim.hardware.models import Node, ServerHosts
from clustersim.topology.cluster import IntArray
from clustersim.topology.node_wiring import NodeWiring, Tables
from clustersim.topology.scale_out import ScaleOut


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """The shape of a cluster, without what its links can do.

    Places are the nodes in order and then the dedicated servers. Link ids count the wires of place 0, of place 1 and so on;
    then the links of the fabric; then the memory of each host. A link between nodes that no route could use is not laid.
    """

    node: Node
    n_nodes: int
    servers: ServerHosts | None
    wiring: NodeWiring
    server_wiring: NodeWiring | None
    scale_out: ScaleOut | None
    """None where one scale-up domain holds everything, so that nothing needs the fabric."""
    tables: Tables
    kind_of_place: IntArray
    """Which kind of the tables describes the inside of each place."""

    @property
    def n_ranks(self) -> int:
        """Number of accelerators."""
        return self.n_nodes * self.node.n_accelerators

    @property
    def n_servers(self) -> int:
        """Number of dedicated hosts."""
        return self.servers.n_hosts if self.servers else 0

    @property
    def n_hosts(self) -> int:
        """Number of hosts, which is that of places."""
        return self.n_nodes + self.n_servers

    @property
    def first_fabric_link(self) -> int:
        """Id of the fabric's first link."""
        n_server_wires = len(self.server_wiring.wires) if self.server_wiring else 0
        return self.n_nodes * len(self.wiring.wires) + self.n_servers * n_server_wires

    @property
    def first_memory_link(self) -> int:
        """Id of the memory of host 0."""
        return self.first_fabric_link + (len(self.scale_out.tier_index) if self.scale_out else 0)

    @property
    def n_links(self) -> int:
        """Number of links."""
        return self.first_memory_link + self.n_hosts

    def first_wire(self, places: IntArray) -> IntArray:
        """Return the id of the first wire of each place."""
        n_server_wires = len(self.server_wiring.wires) if self.server_wiring else 0
        nodes = np.minimum(places, self.n_nodes)
        return nodes * len(self.wiring.wires) + (places - nodes) * n_server_wires

    def place_name(self, place: int) -> str:
        """Return the name of a node or server."""
        return f"node{place}" if place < self.n_nodes else f"server{place - self.n_nodes}"

    def ends(self, link_id: int) -> tuple[str, str]:
        """Return the names of what a link leads from and to."""
        if link_id >= self.first_memory_link:
            name = f"{self.place_name(link_id - self.first_memory_link)}/memory"
            return name, name
        if link_id >= self.first_fabric_link:
            assert self.scale_out is not None  # only a fabric has links beyond the places
            return self.scale_out.ends(link_id - self.first_fabric_link)
        place, number, wiring = self._wire(link_id)
        wire = wiring.wires[number]
        domain = f"domain{place // self.node.scale_up.nodes_per_domain}"
        values = {"node": self.place_name(place), "domain": domain, "leaves": self._leaves_of(place)}
        return wire.tail.format(**values), wire.head.format(**values)

    def link_name(self, link_id: int) -> str:
        """Return a link's name, such as ``node3/gpu2/nvlink/up``, ``node3/nic5/tx``, ``leaf2/up`` or ``node0/memory``."""
        if link_id >= self.first_memory_link:
            return f"{self.place_name(link_id - self.first_memory_link)}/memory"
        if link_id >= self.first_fabric_link:
            assert self.scale_out is not None  # only a fabric has links beyond the places
            return self.scale_out.link_name(link_id - self.first_fabric_link)
        place, number, wiring = self._wire(link_id)
        return f"{self.place_name(place)}/{wiring.wires[number].name}"

    def _wire(self, link_id: int) -> tuple[int, int, NodeWiring]:
        n_wires = len(self.wiring.wires)
        if link_id < self.n_nodes * n_wires:
            return (*divmod(link_id, n_wires), self.wiring)
        assert self.server_wiring is not None  # only servers have wires beyond those of the nodes
        server, number = divmod(link_id - self.n_nodes * n_wires, len(self.server_wiring.wires))
        return self.n_nodes + server, number, self.server_wiring

    def _leaves_of(self, place: int) -> list[str]:
        if self.scale_out is None:
            return []
        n_adapters = self.wiring.n_adapters
        if place < self.n_nodes:
            adapters = np.arange(n_adapters, dtype=np.int64)
        else:
            assert self.servers is not None  # places beyond the nodes are servers
            adapters = np.arange(self.servers.n_nics, dtype=np.int64) * n_adapters // self.servers.n_nics
        return [self.scale_out.leaf_name(int(leaf)) for leaf in self.scale_out.leaf_of(np.full_like(adapters, place), adapters)]
