"""Layout of a cluster: places, their wires, the fabric between them, and the numbering of links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from clustersim.hardware.models import Host, Node, ServerHosts
from clustersim.topology.cluster import IntArray
from clustersim.topology.node_wiring import NodeWiring, Tables
from clustersim.topology.scale_out import ScaleOut


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaceGroup:
    """Consecutive places of one undamaged kind."""

    node: Node | None
    """None for dedicated servers."""
    host: Host
    wiring: NodeWiring
    n_places: int

    @property
    def n_accelerators(self) -> int:
        """Accelerators of one place."""
        return self.node.n_accelerators if self.node else 0

    @property
    def places_per_domain(self) -> int:
        """Places that one scale-up domain spans."""
        return self.node.scale_up.nodes_per_domain if self.node else 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbering:
    """Starts of the counts of ranks, wires, adapters and domains at each place; one more entry ends them."""

    first_place: tuple[int, ...]
    """First place of each group."""
    group_of: IntArray
    """Group of each place."""
    first_rank: IntArray
    first_wire: IntArray
    first_adapter: IntArray
    n_accelerators: IntArray
    n_adapters: IntArray
    place_of_rank: IntArray
    domain_of: IntArray
    """Scale-up domain of each place. Groups share no domain, and each server has its own."""
    first_storage: IntArray
    """Links of drives before each place: two for each place with NVMe."""

    def all_have(self, n_adapters: int) -> bool:
        """Return whether each place has this number of adapters."""
        return len(self.first_place) == 2 and int(self.n_adapters[0]) == n_adapters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterLayout:
    """The shape of a cluster, without what its links can do.

    Places are the nodes, group by group, and then the dedicated servers. Link ids count the wires of place 0, of place 1 and so on;
    then the links of the fabric; then the memory of each host; then reads and writes of the drives of each host that has any. A link
    between nodes that no route could use is not laid.
    """

    groups: tuple[PlaceGroup, ...]
    """Groups of nodes of one kind each; the servers, where there are any, are the last."""
    numbering: Numbering
    n_rails: int
    """Adapters of the nodes that have most, as the fabric counts them; those of other places are spread over them."""
    servers: ServerHosts | None
    scale_out: ScaleOut | None
    """None where one scale-up domain holds everything, so that nothing needs the fabric."""
    tables: Tables
    kind_of_place: IntArray
    """Which kind of the tables describes the inside of each place."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.n_hosts - self.n_servers

    @property
    def n_ranks(self) -> int:
        """Number of accelerators."""
        return len(self.numbering.place_of_rank)

    @property
    def n_servers(self) -> int:
        """Number of dedicated hosts."""
        return self.servers.n_hosts if self.servers else 0

    @property
    def n_hosts(self) -> int:
        """Number of hosts, which is that of places."""
        return len(self.numbering.group_of)

    @property
    def node_groups(self) -> tuple[PlaceGroup, ...]:
        """The groups of nodes."""
        return self.groups[:-1] if self.servers else self.groups

    @property
    def n_domains(self) -> int:
        """Number of scale-up domains; the last of a group may hold fewer nodes than the others."""
        return int(self.numbering.domain_of[self.n_nodes - 1]) + 1

    @property
    def host_number(self) -> int:
        """Number of the host among the endpoints of any place: it comes after as many accelerators as any has."""
        return self.tables.n_endpoints - 1

    @property
    def first_fabric_link(self) -> int:
        """Id of the fabric's first link."""
        return int(self.numbering.first_wire[-1])

    @property
    def first_memory_link(self) -> int:
        """Id of the memory of host 0."""
        return self.first_fabric_link + (len(self.scale_out.tier_index) if self.scale_out else 0)

    @property
    def first_storage_link(self) -> int:
        """Id of the link over which the first host with NVMe reads from its drives; that over which it writes comes next."""
        return self.first_memory_link + self.n_hosts

    @property
    def n_links(self) -> int:
        """Number of links."""
        return self.first_storage_link + int(self.numbering.first_storage[-1])

    def group_at(self, place: int) -> PlaceGroup:
        """Return the group that a place belongs to."""
        return self.groups[int(self.numbering.group_of[place])]

    def place_name(self, place: int) -> str:
        """Return the name of a node or server."""
        return f"node{place}" if place < self.n_nodes else f"server{place - self.n_nodes}"

    def ends(self, link_id: int) -> tuple[str, str]:
        """Return the names of the two ends of a link."""
        if link_id >= self.first_storage_link:
            place, writes = self._drives(link_id)
            drives, memory = f"{self.place_name(place)}/nvme", f"{self.place_name(place)}/memory"
            return (memory, drives) if writes else (drives, memory)
        if link_id >= self.first_memory_link:
            name = f"{self.place_name(link_id - self.first_memory_link)}/memory"
            return name, name
        if link_id >= self.first_fabric_link:
            assert self.scale_out is not None  # only a fabric has links beyond the places
            return self.scale_out.ends(link_id - self.first_fabric_link)
        place, number, wiring = self._wire(link_id)
        wire = wiring.wires[number]
        domain = f"domain{self.numbering.domain_of[place]}"
        values = {"node": self.place_name(place), "domain": domain, "leaves": self._leaves_of(place)}
        return wire.tail.format(**values), wire.head.format(**values)

    def link_name(self, link_id: int) -> str:
        """Return a link's name, such as ``node3/gpu2/nvlink/up``, ``node3/nic5/tx``, ``leaf2/up`` or ``node0/memory``."""
        if link_id >= self.first_storage_link:
            place, writes = self._drives(link_id)
            return f"{self.place_name(place)}/nvme/{'write' if writes else 'read'}"
        if link_id >= self.first_memory_link:
            return f"{self.place_name(link_id - self.first_memory_link)}/memory"
        if link_id >= self.first_fabric_link:
            assert self.scale_out is not None  # only a fabric has links beyond the places
            return self.scale_out.link_name(link_id - self.first_fabric_link)
        place, number, wiring = self._wire(link_id)
        return f"{self.place_name(place)}/{wiring.wires[number].name}"

    def rails_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the rail of each adapter: those of a place with fewer, or more, than there are rails are spread evenly and in order."""
        if self.numbering.all_have(self.n_rails):
            return adapters
        n_adapters = self.numbering.n_adapters[places]
        return adapters * self.n_rails // np.maximum(n_adapters, 1)

    def adapters_on(self, places: IntArray, rails: IntArray, peers: IntArray) -> IntArray:
        """Return the adapter of each place on a rail; of several on one rail each peer takes another."""
        n_adapters = self.numbering.n_adapters[places]
        first = -(-rails * n_adapters // self.n_rails)
        count = -(-(rails + 1) * n_adapters // self.n_rails) - first
        return np.where(count > 0, first + peers % np.maximum(count, 1), rails * n_adapters // self.n_rails)

    def _drives(self, link_id: int) -> tuple[int, bool]:
        """Return the place of a link of drives, and whether it is the one that they are written over."""
        number = link_id - self.first_storage_link
        place = int(np.searchsorted(self.numbering.first_storage, number, side="right")) - 1
        return place, number != int(self.numbering.first_storage[place])

    def _wire(self, link_id: int) -> tuple[int, int, NodeWiring]:
        place = int(np.searchsorted(self.numbering.first_wire, link_id, side="right")) - 1
        return place, link_id - int(self.numbering.first_wire[place]), self.group_at(place).wiring

    def _leaves_of(self, place: int) -> list[str]:
        if self.scale_out is None:
            return []
        adapters = np.arange(self.group_at(place).wiring.n_adapters, dtype=np.int64)
        places = np.full_like(adapters, place)
        return [self.scale_out.leaf_name(int(leaf)) for leaf in self.scale_out.leaf_of(places, self.rails_of(places, adapters))]


def numbered(groups: Sequence[PlaceGroup]) -> Numbering:
    """Return the numbering of the places of some groups."""
    counts = [group.n_places for group in groups]

    def of_places(values: Sequence[int]) -> IntArray:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    def begins(values: IntArray) -> IntArray:
        return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))

    n_accelerators = of_places([group.n_accelerators for group in groups])
    n_adapters = of_places([group.wiring.n_adapters for group in groups])
    domains = [-(-group.n_places // group.places_per_domain) for group in groups]
    first_domain = [0, *accumulate(domains)]
    within = [np.arange(group.n_places, dtype=np.int64) // group.places_per_domain for group in groups]
    return Numbering(
        first_place=(0, *accumulate(counts)),
        group_of=of_places(range(len(groups))),
        first_rank=begins(n_accelerators),
        first_wire=begins(of_places([len(group.wiring.wires) for group in groups])),
        first_adapter=begins(n_adapters),
        n_accelerators=n_accelerators,
        n_adapters=n_adapters,
        place_of_rank=np.repeat(np.arange(len(n_accelerators), dtype=np.int64), n_accelerators),
        domain_of=np.concatenate([first + inside for first, inside in zip(first_domain, within, strict=False)]),
        first_storage=begins(of_places([2 if group.host.storage_bandwidth_bytes_per_s else 0 for group in groups])),
    )
