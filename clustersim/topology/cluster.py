"""A cluster as arrays of directed links and the routes between ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersim.hardware.models import Fabric, Node

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class LinkValues(Generic[Value]):
    """A property of every link, stored once for each kind of link, since a large cluster has millions of links of a few kinds.

    Links index it as they index an array, and ``np.asarray`` gives an array of all of them.
    """

    kinds: NDArray[np.int32]
    """Kind of each link, by id."""
    values: NDArray[Value]
    """Value of each kind."""

    def __getitem__(self, link_ids: IntArray | NDArray[np.bool_] | int) -> NDArray[Value]:
        return self.values[self.kinds[link_ids]]

    def __len__(self) -> int:
        return len(self.kinds)

    def __array__(self, dtype: np.dtype[Any] | None = None, *, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values[self.kinds], dtype=dtype)


@dataclass(frozen=True, slots=True, eq=False)
class RankTable:
    """A number for each of some ranks, in a table from the lowest of their nodes to the highest; -1 for ranks without one."""

    first: int
    numbers: IntArray

    @classmethod
    def among(cls, ranks: IntArray, per_node: int = 1) -> RankTable:
        """Return a table without numbers for ranks of the nodes of some ranks, and of those between them."""
        first = int(ranks.min(initial=0 if not ranks.size else int(ranks.flat[0]))) // per_node * per_node
        end = (int(ranks.max(initial=first)) // per_node + 1) * per_node
        return cls(first, np.full(end - first, -1, dtype=np.int64))

    @classmethod
    def of(cls, ranks: IntArray, numbers: IntArray) -> RankTable:
        """Return a table of the number of each rank."""
        table = cls.among(ranks)
        table[ranks] = numbers
        return table

    def __getitem__(self, ranks: IntArray | int) -> IntArray:
        return self.numbers[ranks - self.first]

    def __setitem__(self, ranks: IntArray, numbers: IntArray) -> None:
        self.numbers[ranks - self.first] = numbers


def ascending(ranks: IntArray) -> IntArray:
    """Return each row in ascending order: the same array where it is in that order already, which takes a fifth of the time of sorting."""
    return ranks if bool((ranks[..., 1:] > ranks[..., :-1]).all()) else np.sort(ranks, axis=-1)


LinkFloats = LinkValues[np.float64]
LinkInts = LinkValues[np.int64]


def link_values(values: NDArray[Value]) -> LinkValues[Value]:
    """Return a property that is given for each link."""
    _, firsts, kinds = np.unique(values, return_index=True, return_inverse=True)
    return LinkValues(kinds.astype(np.int32), values[firsts])


def for_each_link(formula: Callable[..., NDArray[Value]], *values: LinkValues[Any]) -> LinkValues[Value]:
    """Return a formula of some properties of each link, evaluated once for each kind where they are stored by the same kinds."""
    kinds = values[0].kinds
    if all(each.kinds is kinds for each in values):
        return LinkValues(kinds, formula(*(each.values for each in values)))
    return link_values(formula(*map(np.asarray, values)))


TIERS: Final = ("nvlink", "pcie", "socket", "nic", "leaf", "spine", "memory", "storage")
"""Tiers of links: accelerator to accelerator; to the host; between sockets; adapter to leaf; leaf to spine; spine to core; host memory;
drives of a host."""

FABRIC: Final = tuple(TIERS.index(tier) for tier in ("leaf", "spine"))
"""Places in ``TIERS`` of links between switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a cable, a bundle of cables, or an on-board connection."""

    name: str
    tier: str
    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Routes of many pairs in compressed rows: pair i uses ``link_ids[starts[i]:starts[i + 1]]``.

    ``weights`` is the share of the pair's bytes that each link carries: 1, or less where routing spreads a flow.
    """

    starts: IntArray
    link_ids: IntArray
    weights: FloatArray
    latency_s: FloatArray
    """Direction, for each pair."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotation:
    """A node symmetry: a rotation of the accelerators of all nodes that leaves routes between ranks and link properties unchanged.

    The route between two rotated ranks is the route between them, with each of its links rotated. Ranks come back to
    where they were after ``n_rotations`` rotations and not before; a link either does so too or stays where it is.
    """

    n_rotations: int
    per_node: int
    """Accelerators of a node."""
    rotated_rank: IntArray
    """Whose place each rank takes."""
    lowest_rank: IntArray
    """The lowest rank that each rank can be rotated to."""
    lowest_link: NDArray[np.int32]
    """The same of each link."""
    n_alike: NDArray[np.int8]
    """Number of links that take the place of each link: ``n_rotations``, or 1."""


class Cluster(Protocol):
    """Interface of a cluster to the packages above. A link's id is its place in ``links`` and in the link arrays.

    Routes run between endpoints: the ranks, and after them the memories of the hosts (see ``host_endpoint``).
    """

    @property
    def node(self) -> Node:
        """The node that the cluster is made of; of several kinds the first."""
        ...

    @property
    def kinds(self) -> tuple[tuple[Node, int], ...]:
        """Each kind of node and how many there are of it; nodes count in this order."""
        ...

    @property
    def fabric(self) -> Fabric:
        """The network between the nodes."""
        ...

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        ...

    @property
    def n_ranks(self) -> int:
        """Number of accelerators; ranks count them node by node."""
        ...

    @property
    def n_hosts(self) -> int:
        """Number of hosts: those of the nodes in order, then the dedicated servers."""
        ...

    @property
    def n_leaves(self) -> int:
        """Number of leaf switches; 0 without a fabric."""
        ...

    @property
    def links(self) -> Sequence[Link]:
        """All links, by id."""
        ...

    @property
    def bandwidth_bytes_per_s(self) -> LinkFloats:
        """Bandwidth of each link, by id."""
        ...

    @property
    def as_built_bytes_per_s(self) -> LinkFloats:
        """The same before anything was slowed down."""
        ...

    @property
    def latency_s(self) -> LinkFloats:
        """Latency of each link, by id."""
        ...

    @property
    def tier_index(self) -> LinkInts:
        """Place in ``TIERS`` of each link's tier, by id."""
        ...

    def node_of(self, ranks: IntArray) -> IntArray:
        """Return the node of each rank."""
        ...

    def kind_of(self, nodes: IntArray) -> IntArray:
        """Return the place in ``kinds`` of each node."""
        ...

    def node_at(self, place: int) -> Node:
        """Return what kind of node stands at a place."""
        ...

    def ranks_on(self, nodes: IntArray) -> IntArray:
        """Return the ranks of some nodes, node by node."""
        ...

    def kind_of_link(self) -> IntArray:
        """Return the kind of node that each link belongs to, adapters included; -1 for those of the fabric and of servers."""
        ...

    def domain_of(self, ranks: IntArray) -> IntArray:
        """Return the scale-up domain of each rank."""
        ...

    def domain_of_host(self, hosts: IntArray) -> IntArray:
        """Return the scale-up domain of each host; a dedicated server has its own domain."""
        ...

    def host_endpoint(self, hosts: IntArray) -> IntArray:
        """Return the endpoint of the memory of each host."""
        ...

    def memory_link(self, hosts: IntArray) -> IntArray:
        """Return the link whose capacity is the memory bandwidth of each host; no route contains it."""
        ...

    def storage_links(self, hosts: IntArray) -> IntArray:
        """Return the links over which each host reads from its NVMe and writes to it: shape (n, 2); no route contains them."""
        ...

    def switch_ports(self, ranks: IntArray) -> IntArray:
        """Return the links of each rank to and from the switch of its scale-up domain: shape (n, 2)."""
        ...

    def leaf_of(self, ranks: IntArray) -> IntArray:
        """Return the leaf of the adapter of each rank."""
        ...

    def to_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from each rank to its leaf."""
        ...

    def from_leaf(self, ranks: IntArray) -> Routes:
        """Return the route from its leaf to each rank."""
        ...

    def routes(self, sources: IntArray, destinations: IntArray) -> Routes:
        """Return the route from each source to the destination at the same place; both are endpoints: ranks or host memories."""
        ...

    def rotation(self, step: int) -> Rotation | None:
        """Return the rotation of all nodes by a number of accelerators; None where it is no symmetry of the cluster, or is switched off."""
        ...


def route(cluster: Cluster, source: int, destination: int) -> tuple[Link, ...]:
    """Return the links from one endpoint to another, in order, for people to read."""
    found = cluster.routes(np.array([source], dtype=np.int64), np.array([destination], dtype=np.int64))
    links = cluster.links
    return tuple(links[int(link_id)] for link_id in found.link_ids)
