"""Which algorithm and protocol a communication library takes: by its own estimate of the time, which is not ours.

The estimate chooses well and predicts badly, so that it serves for nothing else. A library finds out what is in its nodes, and knows
nothing of the fabric between them, nor that something is slower than it was built: groups that lie alike in their nodes choose alike.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, log2
from types import MappingProxyType
from typing import Final

from clustersim.collectives.timing import DATA_SHARE, AlgorithmCandidate, Way, family_of, own_hops_s
from clustersim.hardware.calibration import LibraryLimits
from clustersim.hardware.library_costs import LATENCIES, PROTOCOLS, CollectiveOp, Medium, Protocol

TREE_CORRECTION: Final = MappingProxyType(
    {
        "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
        "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
        "simple": (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    }
)
"""Share of a tree's bandwidth at 64 B, 128 B and so on to 512 MiB [1]_."""

PLATEAU: Final = 1.4
"""Longer latency of rings between nodes once every rank holds 64 bytes for each channel, Simple protocol [1]_."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Inputs of the estimate: facts about a group and its machine."""

    op: CollectiveOp
    n_ranks: int
    n_domains: int
    limits: LibraryLimits
    n_channels: int
    medium: Medium
    """Between neighbours inside a domain."""
    protocols: tuple[Protocol, ...] = PROTOCOLS
    """Those that the library may use."""
    relays: bool = False
    """Whether a switch inside the domain joins accelerators of all rails."""


def channel_ceiling_bytes_per_s(algorithm: str, facts: Facts) -> float:
    """Return the greatest rate of an algorithm by the library's channels, in bytes of the tensor per second; infinite where unknown."""
    if algorithm == "tree":
        return facts.n_channels * facts.limits.tree_channel_bytes_per_s.at(facts.n_domains) / 2
    nvls_tree = facts.limits.nvls_tree_channel_bytes_per_s
    if algorithm == "nvls_tree" and nvls_tree is not None:
        bus_bytes_per_s = facts.n_channels * nvls_tree.at(facts.n_domains)
        return bus_bytes_per_s * facts.n_ranks / (2 * max(1, facts.n_ranks - 1))
    return inf


def choose(candidates: Sequence[AlgorithmCandidate], facts: Facts, size_bytes: float) -> tuple[str, Protocol]:
    """Return algorithm and protocol with the least estimate; the first of equals.

    Parameters
    ----------
    candidates
        Algorithms that can run on the group.
    size_bytes
        The tensor in full, as nccl-tests counts it.
    """
    rates = {candidate.algorithm: candidate.known_rate_bytes_per_s for candidate in candidates}
    best: tuple[float, str, Protocol] | None = None
    for candidate in candidates:
        for protocol in _protocols(candidate.algorithm, facts):
            rate = _rate_bytes_per_s(candidate, protocol, facts, rates, size_bytes)
            latency_s = _latency_s(candidate, protocol, facts, size_bytes)
            estimate_s = latency_s + size_bytes / rate
            if best is None or estimate_s < best[0]:
                best = (estimate_s, candidate.algorithm, protocol)
    assert best is not None  # every operation has an algorithm that runs anywhere
    return best[1], best[2]


def enabled(algorithm: str, facts: Facts) -> bool:
    """Return whether the library considers an algorithm for a group."""
    match algorithm:
        case "hierarchical" | "direct":
            # Where rails are apart, the library moves data to the rail of its destination over NVLink first.
            return facts.op != "all_to_all" or (algorithm == "hierarchical") == (facts.relays and facts.n_domains > 1)
        case "nvls":
            return facts.op == "all_reduce" and facts.n_ranks >= facts.limits.fewest_nvls_ranks
        case "nvls_tree":
            return facts.n_ranks > facts.n_domains > 1 and facts.limits.nvls_tree_channel_bytes_per_s is not None
        case "pat":
            return facts.n_domains == facts.n_ranks
        case _:
            return True


def _protocols(algorithm: str, facts: Facts) -> tuple[Protocol, ...]:
    if algorithm in ("nvls", "nvls_tree", "sharp", "pat"):
        return ("simple",)
    lines = facts.medium == "nvlink" and algorithm in ("ring", "tree")
    return tuple(protocol for protocol in facts.protocols if protocol != "ll128" or lines)


def _rate_bytes_per_s(
    candidate: AlgorithmCandidate, protocol: Protocol, facts: Facts, rates: Mapping[str, float], size_bytes: float
) -> float:
    idle, ceiling = candidate.known_rate_bytes_per_s, channel_ceiling_bytes_per_s(candidate.algorithm, facts)
    bus_share = facts.n_ranks / ((2 if facts.op == "all_reduce" else 1) * max(1, facts.n_ranks - 1))
    low_latency = facts.limits.ll_bytes_per_s.at(facts.n_domains) * bus_share
    match candidate.algorithm:
        case "ring":
            return {"ll": min(0.5 * idle, low_latency), "ll128": 0.92 * idle, "simple": idle}[protocol]
        case "tree":
            if facts.n_domains == 1:
                # Inside a domain the library takes its trees to be as wide as its rings, both ways together.
                idle = min(idle, rates.get("ring", inf) * (facts.n_ranks - 1) / facts.n_ranks)
            lines = 7 / 9 if facts.n_domains == 1 else 120 / 128
            rate = {"ll": min(idle / 3.8, low_latency), "ll128": min(lines * idle, ceiling), "simple": min(0.92 * idle, ceiling)}[protocol]
            return rate * tree_correction(protocol, size_bytes)
        case "nvls":
            # A ring's way up and down is used twice as well, and one channel of sixteen waits.
            return 2 * 15 / 16 * facts.limits.nvls_share * rates.get("ring", idle)
        case "pat":
            return 0.75 * rates.get("ring", idle)
        case _:
            return min(DATA_SHARE[protocol] * idle, ceiling)


def tree_correction(protocol: Protocol, size_bytes: float) -> float:
    """Return the share of a tree's bandwidth that the library expects at a size; all of it from 512 MiB up."""
    place = max(0, int(log2(max(size_bytes, 64.0)) - 6))
    table = TREE_CORRECTION[protocol]
    return table[place] if place < len(table) else 1.0


def _latency_s(candidate: AlgorithmCandidate, protocol: Protocol, facts: Facts, size_bytes: float) -> float:
    family = family_of(facts.op, candidate.algorithm)
    way = Way(algorithm=candidate.algorithm, protocol=protocol, family=family, medium=facts.medium)
    latencies = LATENCIES[family]
    hops = fsum(max(own_hops_s(flow_set, way, latencies) for flow_set in phase) for phase in candidate.pattern.phases)
    latency_s = latencies.base_s[protocol] + hops
    long = size_bytes / (facts.n_channels * facts.n_ranks) >= 64
    if candidate.algorithm == "ring" and protocol == "simple" and facts.op == "all_reduce" and facts.n_domains > 1 and long:
        return PLATEAU * latency_s
    return latency_s
