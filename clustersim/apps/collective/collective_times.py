"""The network model as nccl-tests would print it: one collective on an otherwise idle cluster, size by size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from clustersim.apps.run.simulation import algorithm_flags, calibration_flags
from clustersim.collectives import ALGORITHMS
from clustersim.collectives.library import CollectiveCall, Library
from clustersim.config.constraints import check_size
from clustersim.config.keys import placed, refusal
from clustersim.config.machine import hardware_of, link_changes, routing_flags
from clustersim.config.overriding import apply_overrides, blame, parse_override
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.documents.check import validate_document
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import plain_document
from clustersim.engine.alone import alone
from clustersim.engine.traffic import Traffic
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_of
from clustersim.hardware.catalog import profile_names
from clustersim.hardware.library_costs import CollectiveOp, Servers
from clustersim.hardware.models import ServerHosts
from clustersim.hardware.profile_schema import Checked
from clustersim.network.sharing import SharedNetwork
from clustersim.notices import Flag
from clustersim.topology.cluster_wiring import build_mixed_cluster
from clustersim.topology.wired import Cluster
from clustersim.units.quantity import parse_quantity

if TYPE_CHECKING:
    from clustersim.documents.text import Data

ELEMENT_BYTES: Final = 4
"""nccl-tests counts elements of type float."""

MOST_SIZES: Final = 1000

OPERATIONS: Final[tuple[CollectiveOp, ...]] = tuple(op for op, rows in ALGORITHMS.items() if rows)
"""Operations that can be measured."""

PLACEMENTS: Final = ("colocated", "dedicated")
"""Placements of parameter servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One size."""

    bytes: float
    time_s: float
    algbw_bytes_per_s: float
    """Size over time."""
    busbw_bytes_per_s: float
    """Rate of the busiest rank's links, in bytes per second, comparable with their bandwidth for any operation and number of ranks."""
    algorithm: str
    protocol: str


def bus_factor(op: CollectiveOp, n_ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests defines it.

    References
    ----------
    .. [1] NVIDIA, nccl-tests, ``doc/PERFORMANCE.md``.

    Examples
    --------
    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if op == "all_reduce":
        return 2 * (n_ranks - 1) / n_ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n_ranks - 1) / n_ranks
    return 1.0


def operation_named(name: str) -> CollectiveOp:
    """Return the operation of that name.

    Raises
    ------
    ScenarioError
        There is none.
    """
    known: dict[str, CollectiveOp] = {op: op for op in OPERATIONS}
    if name not in known:
        raise ScenarioError(f"unknown operation '{name}'", field="--op", hint=choices_hint(name, known))
    return known[name]


NCCL_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)", re.IGNORECASE | re.ASCII)
NCCL_FACTORS: Final[Mapping[str, int]] = MappingProxyType({"": 1, "K": 2**10, "M": 2**20, "G": 2**30})
"""Factors that nccl-tests multiplies sizes by (``parsesize`` in its common.cu)."""


def parse_sizes(text: str) -> tuple[float, ...]:
    """Return sizes in bytes: ``1KB:8GB`` doubles from the first to the last, ``1KB:8GB:4`` multiplies by 4, a list stands as it is.

    Sizes without a unit are those of nccl-tests: bytes, and ``K``, ``M`` and ``G`` for powers of 1024.

    Raises
    ------
    ScenarioError
        When a size is not a size, none is left, or there are too many.

    Examples
    --------
    >>> parse_sizes("1KB:8KB"), parse_sizes("1 MB, 64 MB")
    ((1000.0, 2000.0, 4000.0, 8000.0), (1000000.0, 64000000.0))
    >>> parse_sizes("512K:2M"), parse_sizes("8")
    ((524288.0, 1048576.0, 2097152.0), (8.0,))
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) == 1:
        return tuple(_size(part.strip(), text) for part in text.split(","))
    factor = _factor(parts[2], text) if len(parts) == 3 else 2
    first, last = _size(parts[0], text), _size(parts[1], text)
    if len(parts) > 3 or last < first:
        raise ScenarioError(f"'{text}' is not a range of sizes", field="--sizes", hint="write it such as 1KB:8GB, smaller size first")
    sizes = [first]
    while sizes[-1] * factor <= last and len(sizes) < MOST_SIZES:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def _size(text: str, whole: str) -> float:
    bare = NCCL_SIZE.fullmatch(text)
    try:
        size_bytes = float(bare[1]) * NCCL_FACTORS[bare[2].upper()] if bare else parse_quantity(text, "B")
    except ScenarioError as error:
        raise ScenarioError(error.message, field="--sizes", hint="write sizes such as 1KB:8GB or '1 MB,64 MB'") from error
    if size_bytes <= 0.0:
        raise ScenarioError(f"'{whole}' holds a size of zero", field="--sizes", hint="use sizes above zero")
    return size_bytes


def _factor(text: str, whole: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise ScenarioError(f"'{text}' in '{whole}' is not a factor", field="--sizes", hint="use a whole number from 2 up")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """Measured collective, its ranks and its servers."""

    op: CollectiveOp
    algorithm: str = "auto"
    sizes_bytes: tuple[float, ...]
    ranks_per_node: int | None = None
    """The first ranks of each node; all where None."""
    n_servers: int = 0
    """For ``parameter_server``."""
    dedicated: bool = False
    """Servers on dedicated hosts; otherwise on the first hosts of the nodes."""


def collective_rows(cluster: Cluster, request: CollectiveRequest) -> tuple[tuple[CollectiveRow, ...], tuple[Flag, ...]]:
    """Return time and bandwidth of one uncontended collective over the ranks of a cluster, for each size, and the assumptions.

    Raises
    ------
    ScenarioError
        The cluster cannot run the algorithm, or there is only one rank.
    """
    members = group_members(cluster, request.ranks_per_node)
    calibration = calibration_of([node for node, _ in cluster.kinds])
    library = Library(cluster=cluster, calibration=calibration.network)
    traffic = Traffic(library=library, network=SharedNetwork(library.bandwidth_bytes_per_s, labels=cluster.tier_index))
    servers = _servers(cluster, request)
    factor = bus_factor(request.op, len(members))
    rows: list[CollectiveRow] = []
    for size_bytes in request.sizes_bytes:
        call = CollectiveCall(op=request.op, group="all ranks", size_bytes=size_bytes, algorithm=request.algorithm, servers=servers)
        try:
            operation = library.operation(call, (members,))
        except DomainError as error:
            raise refusal(error, field="--algorithm") from error
        time_s = alone(traffic.phases_of(operation), traffic.network).duration_s
        rate = size_bytes / time_s
        rows.append(
            CollectiveRow(
                bytes=size_bytes,
                time_s=time_s,
                algbw_bytes_per_s=rate,
                busbw_bytes_per_s=rate * factor,
                algorithm=operation.algorithm,
                protocol=operation.protocol,
            )
        )
    return tuple(rows), (*routing_flags(cluster), *_network_flags(calibration), *algorithm_flags(row.algorithm for row in rows))


def _network_flags(calibration: Calibration) -> tuple[Flag, ...]:
    """Return the notices on the constants of the network alone."""
    covers = tuple(
        replace(source, covers=tuple(cover for cover in source.covers if cover.startswith("network"))) for source in calibration.sources
    )
    notes = tuple(note for note in calibration.notes if note[0] in ("related_calibration", "borrowed_calibration", "foreign_calibration"))
    return calibration_flags(replace(calibration, sources=covers, notes=notes))


def _servers(cluster: Cluster, request: CollectiveRequest) -> Servers | None:
    if not request.n_servers:
        return None
    if not request.dedicated and request.n_servers > cluster.n_nodes:
        raise ScenarioError(
            f"{request.n_servers} servers on {cluster.n_nodes} nodes", field="--servers", hint="use fewer, or --placement dedicated"
        )
    first = cluster.n_nodes if request.dedicated else 0
    return Servers(hosts=tuple(range(first, first + request.n_servers)))


def servers_on(algorithm: str, n_servers: int | None, placement: str) -> int:
    """Return how many parameter servers there are.

    Raises
    ------
    ScenarioError
        Servers for another algorithm, or a placement that is none.
    """
    if placement not in PLACEMENTS:
        raise ScenarioError(f"unknown placement '{placement}'", field="--placement", hint=f"use {' or '.join(PLACEMENTS)}")
    if algorithm != "parameter_server":
        if n_servers is not None:
            raise ScenarioError(f"{algorithm} has no servers", field="--servers", hint="leave it out, or use --algorithm parameter_server")
        return 0
    if n_servers is not None and n_servers < 1:
        raise ScenarioError(f"{n_servers} servers", field="--servers", hint="use 1 or more")
    return n_servers or 1


def group_members(cluster: Cluster, ranks_per_node: int | None) -> tuple[int, ...]:
    """Return the ranks that take part.

    Raises
    ------
    ScenarioError
        Fewer than two, or more in a node than it has.
    """
    in_node = cluster.node.n_accelerators
    taken = in_node if ranks_per_node is None else ranks_per_node
    if not 1 <= taken <= in_node:
        raise ScenarioError(f"{taken} ranks in a node of {in_node}", field="--ranks-per-node", hint=f"use 1 to {in_node}")
    members = tuple(rank for rank in range(cluster.n_ranks) if rank % in_node < taken)
    if len(members) < 2:
        raise ScenarioError("a collective needs two ranks or more", field="--nodes", hint="use more nodes or more ranks in each")
    return members


class _Setting(Checked):
    """Cluster that a collective is measured on: the ``cluster`` part of a scenario."""

    cluster: ClusterSpec


def collective_cluster(name: str, nodes: int | None, overrides: Sequence[str], *, n_dedicated: int = 0) -> Cluster:
    """Return the cluster that the command line describes.

    Parameters
    ----------
    name
        A shipped node or cluster.
    nodes
        How many; None for 1, or for all that a shipped cluster has.
    overrides
        ``key=value`` texts below ``cluster.``.
    n_dedicated
        Parameter servers beside the nodes, each like a node without accelerators.

    Raises
    ------
    ScenarioError
        There is no such node or cluster, or it cannot be wired as described.
    """
    known = (*profile_names("nodes"), *profile_names("clusters"))
    if name not in known:
        hint = did_you_mean(name, known) or "see clustersim show nodes and clustersim show clusters"
        raise ScenarioError(f"there is no node and no cluster '{name}'", field="--cluster", hint=hint)
    described: dict[str, Data] = {"node": name, "nodes": 1} if name in profile_names("nodes") else {"name": name}
    if nodes is not None:
        described["nodes"] = nodes
    changes = tuple(parse_override(text) for text in overrides)
    document = apply_overrides(plain_document({"cluster": described}, "--cluster"), changes)
    try:
        spec = validate_document(_Setting, document).cluster
        hardware = hardware_of(spec, document)
        node = hardware.node
        check_size(hardware.n_nodes, node.n_accelerators)
        servers = ServerHosts(n_hosts=n_dedicated, host=node.host, nic=node.nic, n_nics=node.n_nics) if n_dedicated else None
        return build_mixed_cluster(hardware.kinds, hardware.fabric, changes=link_changes(spec), servers=servers)
    except DomainError as error:
        raise blame(placed(error, document), changes, document) from error
