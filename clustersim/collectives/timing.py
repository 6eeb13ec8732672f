"""Bytes, rates and latencies of a collective of known size: protocol, steps, ramp-up and ceilings.

Constants of protocols are those of NCCL; libraries of other vendors are its forks and share them.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc``: protocol bandwidths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf, sqrt
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.collectives.pattern import FlowSet, Pattern
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.hardware.library_costs import AlgorithmLatencies, CollectiveOp, Family, Medium, Protocol
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import Borrowed, CollectiveConstants, collective_constants
from clustersim.topology.cluster import TIERS, LinkFloats
from clustersim.topology.link_demand import Crossings, RouteSet, summed
from clustersim.topology.wired import Cluster

DATA_SHARE: Final[Mapping[Protocol, float]] = MappingProxyType({"ll": 0.5, "ll128": 0.9375, "simple": 1.0})
"""Share of the bytes on the wire that is data: 4 of 8, 120 of 128, all [1]_."""


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "tree": "tree",
        "nvls": "nvls",
        "nvls_tree": "nvls",
        "sharp": "nvls",
        "direct": "exchange",
        "pairwise": "exchange",
        "parameter_server": "exchange",
    }
)
"""Family of each algorithm that is not like a ring."""


MEASURED: Final = ("ring", "tree", "nvls", "nvls_tree", "direct", "none")
"""Algorithms that the calibrations were fitted to; others take the constants of their family."""


def family_of(op: CollectiveOp, algorithm: str) -> Family:
    """Return which constants an algorithm starts, hops and ramps up with."""
    return "exchange" if op == "all_to_all" else FAMILIES.get(algorithm, "ring")


LEAST_CHANNELS: Final = 4
"""Channels of a group across nodes with fewer adapters than that. Assumed: the library doubles what it finds; four p4de adapters and their
measured tree agree with it."""


STEP_BYTES: Final[Mapping[Protocol, float]] = MappingProxyType({"simple": 524_288.0, "ll128": 576_000.0, "ll": 0.0})
"""Bytes of a tensor that a channel sends at once in a chain: an eighth of its buffer, one ``BROADCAST_CHUNKSTEPS``, without flags [1]_.

References
----------
.. [1] NVIDIA, *NCCL*, ``src/include/collectives.h``, ``src/include/device.h`` and ``src/init.cc``.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizedFlow:
    """One coupled flow of an operation: bytes per member flow, latency, and cap of the rate."""

    route_set: RouteSet
    bytes_per_flow: float
    """On the wire, flags of the protocol included."""
    latency_s: float
    cap_bytes_per_s: float = inf
    crossings: tuple[Crossings, ...] = ()
    """The single flows of the route set, where they belong to several groups."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """A collective of known size: sequential phases of concurrent coupled flows."""

    algorithm: str
    protocol: str
    phases: tuple[tuple[SizedFlow, ...], ...]
    uniform: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmCandidate:
    """An algorithm that can run here."""

    algorithm: str
    pattern: Pattern
    """Pattern of all concurrent groups; of one group before the library has chosen."""
    lone: Pattern
    """Pattern of one group, which is all that the library sees."""
    idle_rate_bytes_per_s: float
    """Rate of one group alone on idle links, in bytes of the tensor per second."""
    known_rate_bytes_per_s: float
    """The same as the library estimates it for its choice: undamaged nodes only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Implementation of an operation by a library."""

    algorithm: str
    protocol: Protocol
    family: Family
    """Family of algorithms with the same constants of start, hop and ramp-up."""
    medium: Medium = "nvlink"
    """Between neighbours inside a domain."""
    ceiling_bytes_per_s: float = inf
    """Bytes of the tensor that the channels of the library move in a second at most."""

    spreads: bool = False
    """True where ranks send to, or receive from, many others concurrently."""
    pair: bool = False
    """True where two ranks form a ring."""


def timed(
    candidate: AlgorithmCandidate, way: Way, cluster: Cluster, calibration: NetworkCalibration, *, size_bytes: float, pieces: int = 1
) -> Operation:
    """Return the flows and latencies of an operation of a number of bytes.

    ``start + base(protocol) + steps * hop(protocol) + ramp-up`` is over before the last bytes count, and a flow with
    coefficient 1 moves ``share * S / data share`` bytes.

    Parameters
    ----------
    size_bytes
        The tensor in full, as nccl-tests counts it, over all pieces.
    pieces
        Calls that the tensor is spread over; each pays latency and ramp-up.
    """
    pattern = candidate.pattern
    phases: list[tuple[SizedFlow, ...]] = []
    overhead_s = call_overhead_s(candidate, way, calibration, size_bytes=size_bytes / pieces)
    # A group that is laid by itself has the same flow sets, unless the groups of the instance set lie differently.
    same = [len(phase) for phase in candidate.lone.phases] == [len(phase) for phase in pattern.phases]
    for phase, alone in zip(pattern.phases, candidate.lone.phases if same else pattern.phases, strict=True):
        flows = [
            SizedFlow(
                route_set=flow_set.route_set,
                bytes_per_flow=flow_set.share * size_bytes / DATA_SHARE[way.protocol],
                latency_s=pieces * (overhead_s + hops_s(flow_set, way, calibration.latencies[way.family])),
                cap_bytes_per_s=_cap(one, way, cluster, calibration),
                crossings=flow_set.crossings,
            )
            for flow_set, one in zip(phase, alone, strict=True)
        ]
        phases.append(tuple(flows))
        overhead_s = 0.0
    return Operation(algorithm=way.algorithm, protocol=way.protocol, phases=tuple(phases), uniform=pattern.uniform)


def hops_s(flow_set: FlowSet, way: Way, latencies: AlgorithmLatencies) -> float:
    """Return the latency of all steps of a coupled flow, in seconds.

    A hop inside a domain takes what the library counts for it, which includes the wire, or the wire alone where that is
    longer. Between domains the way along the wires is added: the library counts what it does at both ends only.
    """
    return own_hops_s(flow_set, way, latencies) + flow_set.inter_steps * flow_set.inter_latency_s


def own_hops_s(flow_set: FlowSet, way: Way, latencies: AlgorithmLatencies) -> float:
    """Return the part of ``hops_s`` that the library counts, in seconds: without the wires between domains."""
    hop_s = latencies.hop_s
    intra_s = max(hop_s[way.medium][way.protocol], flow_set.intra_latency_s)
    return flow_set.intra_steps * intra_s + flow_set.inter_steps * hop_s["net"][way.protocol]


def call_overhead_s(candidate: AlgorithmCandidate, way: Way, calibration: NetworkCalibration, *, size_bytes: float) -> float:
    """Return the size-independent cost of one call, in seconds: start, base of the protocol, and ramp-up.

    A tensor that moves in k chunks over a way of several steps takes ``S / B + (chunk overhead of all steps) * k + (time of one
    chunk on the way)``; the best k leaves ``2 sqrt(S / B * sum of overheads)`` above ``S / B``, up to the largest chunk. A chunk
    between domains waits for its credit, once along the wires. A chain has chunks of one size between domains, and each of its relays
    waits for a whole one.
    """
    constants = calibration.families[way.family]
    start_s = constants.start_s + calibration.latencies[way.family].base_s[way.protocol]
    rate = min(DATA_SHARE[way.protocol] * candidate.idle_rate_bytes_per_s, way.ceiling_bytes_per_s)
    if way.protocol == "ll" or rate == inf:
        # LL sends as it computes, so that there are no chunks to wait for.
        return start_s
    phases = candidate.pattern.phases
    overheads_s = fsum(max(_chunk_s(flow_set, constants.chunk_s) for flow_set in phase) for phase in phases)
    relayed_s = fsum(max(_relayed_bytes(flow_set, way, size_bytes=size_bytes) for flow_set in phase) for phase in phases) / rate
    return start_s + relayed_s + min(2.0 * sqrt(size_bytes / rate * overheads_s), 2.0 * calibration.library.in_flight_bytes / rate)


def _chunk_s(flow_set: FlowSet, intra_s: float) -> float:
    return flow_set.intra_steps * intra_s + (flow_set.inter_steps - flow_set.relays) * flow_set.inter_latency_s


def _relayed_bytes(flow_set: FlowSet, way: Way, *, size_bytes: float) -> float:
    """Return the bytes of the tensor that move while a chunk of one channel passes all relays: the wait of the last rank for its first."""
    return flow_set.relays * min(flow_set.channels * STEP_BYTES[way.protocol], size_bytes)


def idle_rate_bytes_per_s(pattern: Pattern, bandwidth_bytes_per_s: LinkFloats) -> float:
    """Return how many bytes of the tensor a pattern moves in a second on idle links; infinite where it crosses none.

    Flow sets beside each other are taken to fill the link that carries most of them.
    """
    time_s = 0.0
    for phase in pattern.phases:
        link_ids, loads = phase[0].route_set.link_ids, phase[0].share * phase[0].route_set.flows
        if len(phase) > 1:
            beside = summed(
                np.concatenate([flow_set.route_set.link_ids for flow_set in phase]),
                np.concatenate([flow_set.share * flow_set.route_set.flows for flow_set in phase]),
            )
            link_ids, loads = beside.link_ids, beside.flows
        time_s += float((loads / bandwidth_bytes_per_s[link_ids]).max(initial=0.0))
    return 1.0 / time_s if time_s > 0.0 else inf


def _cap(flow_set: FlowSet, way: Way, cluster: Cluster, calibration: NetworkCalibration) -> float:
    """Return the most that a flow with coefficient 1 moves in a second, whatever the links could carry."""
    links, flows = flow_set.route_set.link_ids, flow_set.route_set.flows
    cap = flow_set.share * way.ceiling_bytes_per_s / DATA_SHARE[way.protocol] if way.ceiling_bytes_per_s < inf else inf
    limits: list[tuple[str, float]] = []
    if way.spreads:
        limits.append(("nvlink", calibration.ceilings.exchange))
    if way.pair:
        limits.append(("nvlink", calibration.ceilings.pair))
    if way.algorithm in ("nvls", "sharp"):
        limits.append(("nvlink", calibration.ceilings.nvls))
    if way.medium == "pcie" and not flow_set.inter_steps:
        limits.append(("pcie", calibration.ceilings.peer))
    for tier, share in limits:
        on_tier = cluster.tier_index[links] == TIERS.index(tier)
        if on_tier.any():
            cap = min(cap, float((share * cluster.bandwidth_bytes_per_s[links[on_tier]] / flows[on_tier]).min()))
    return cap


@dataclass(slots=True)
class SmallCollectives:
    """Times of collectives among accelerators of one node, from constants fitted to measurements.

    Engines bring all-reduce kernels of their own for small messages and hand large ones to NCCL; the smaller time of both is taken. More
    ranks than a scale-up domain has are left to NCCL, on the links of the cluster.
    """

    accelerator: Accelerator
    framework: str
    n_domain: int = 0
    """Accelerators of a scale-up domain, where ``across_s`` is given."""
    across_s: Callable[[CollectiveOp, float, int], float] | None = None
    """Time of a collective of so many bytes and ranks beyond a domain; None where all ranks are taken to be in one."""
    borrowed: list[Borrowed] = field(default_factory=list[Borrowed])
    _constants: dict[tuple[str, str, int], CollectiveConstants] = field(default_factory=dict[tuple[str, str, int], CollectiveConstants])

    def all_reduce_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to sum a tensor of all ranks, in seconds; 0 for one rank."""
        if n_ranks == 1:
            return 0.0
        return min(self._time_s(library, "all_reduce", size_bytes, n_ranks) for library in (self.framework, "nccl"))

    def all_gather_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to gather a tensor of this size from its parts, in seconds."""
        return self._time_s("nccl", "all_gather", size_bytes, n_ranks) if n_ranks > 1 else 0.0

    def reduce_scatter_s(self, size_bytes: float, n_ranks: int) -> float:
        """Return the time to sum tensors of this size and leave each rank a part, in seconds."""
        return self._time_s("nccl", "reduce_scatter", size_bytes, n_ranks) if n_ranks > 1 else 0.0

    def send_s(self, size_bytes: float) -> float:
        """Return the time to send to the next stage of a pipeline, in seconds: as the exchange of two ranks."""
        return self._time_s("nccl", "all_to_all", size_bytes, 2)

    def _time_s(self, library: str, operation: CollectiveOp, size_bytes: float, n_ranks: int) -> float:
        if self.across_s is not None and n_ranks > self.n_domain:
            return self.across_s(operation, size_bytes, n_ranks)
        key = library, operation, n_ranks
        found = self._constants.get(key)
        if found is None:
            found, lent = collective_constants(self.accelerator, library, operation, n_ranks)
            self._constants[key] = found
            if lent is not None:
                self.borrowed.append(lent)
        two_shot_s = found.two_shot_s + found.two_shot_s_per_byte * size_bytes
        return found.floor_s + min(found.one_shot_s_per_byte * size_bytes, two_shot_s)
