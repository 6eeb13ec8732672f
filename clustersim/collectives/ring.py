"""Ring all-reduce, all-gather and reduce-scatter: bytes on every edge, and the latency on the way."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from types import MappingProxyType
from typing import Final, Literal

from clustersim.collectives.rings import Pairs, Rings
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.topology.load import Demand

RingOp = Literal["all_reduce", "all_gather", "reduce_scatter"]

ROUNDS: Final[Mapping[RingOp, int]] = MappingProxyType({"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1})
"""How often a tensor travels around the ring."""


def ring_flow_bytes(op: RingOp, *, size_bytes: float, n_ranks: int, n_rings: int) -> float:
    """Return what one edge of one ring carries, in bytes: ``rounds (n - 1) / n * S / n_rings``.

    References
    ----------
    .. [1] P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

    Examples
    --------
    >>> ring_flow_bytes("all_reduce", size_bytes=8e9, n_ranks=8, n_rings=1)
    14000000000.0
    """
    return ROUNDS[op] * (n_ranks - 1) / n_ranks * size_bytes / n_rings


def ring_latency_s(op: RingOp, rings: Rings, calibration: NetworkCalibration) -> float:
    """Return start-up and hops of one ring collective, in seconds.

    ``base + (steps - inter) * intra_hop + inter * inter_hop`` with ``steps = rounds (n - 1)`` and, over N domains,
    ``inter = rounds (N - 1)``; a hop is what the library adds, as calibrated, and the way along the wires.

    References
    ----------
    .. [1] NVIDIA NCCL 2.30, ``src/graph/tuning.cc``: the latency of the ring algorithm.
    """
    steps = ROUNDS[op] * (rings.group_size - 1)
    inter = ROUNDS[op] * (rings.n_domains - 1)
    intra_hop_s = calibration.intra_hop_s + rings.intra_latency_s
    inter_hop_s = calibration.inter_hop_s + rings.inter_latency_s
    return calibration.base_s + (steps - inter) * intra_hop_s + inter * inter_hop_s


def ramp_s(calibration: NetworkCalibration, *, size_bytes: float, n_domains: int) -> float:
    """Return the time lost while the pipeline of chunks fills, in seconds: a constant times the root of the size."""
    per_root = calibration.intra_ramp_s_per_sqrt_byte if n_domains == 1 else calibration.inter_ramp_s_per_sqrt_byte
    return per_root * sqrt(size_bytes)


def ring_demand(op: RingOp, rings: Rings, calibration: NetworkCalibration, *, size_bytes: float, pieces: int = 1) -> Demand:
    """Return what a ring collective of every group of an orbit puts on the rings.

    Parameters
    ----------
    size_bytes
        The tensor in full, over all pieces.
    pieces
        Calls that the tensor is spread over; each pays latency and ramp-up.
    """
    if rings.group_size == 1:
        return Demand(bytes_per_flow=0.0, latency_s=0.0)
    latency_s = ring_latency_s(op, rings, calibration)
    ramp_up_s = ramp_s(calibration, size_bytes=size_bytes / pieces, n_domains=rings.n_domains)
    return Demand(
        bytes_per_flow=ring_flow_bytes(op, size_bytes=size_bytes, n_ranks=rings.group_size, n_rings=rings.n_rings),
        latency_s=pieces * (latency_s + ramp_up_s),
    )


def transfer_demand(pairs: Pairs, calibration: NetworkCalibration, *, size_bytes: float) -> Demand:
    """Return what sends of ``size_bytes`` over each pair put on their links: they start like a collective and take one hop."""
    hop_s = calibration.intra_hop_s if pairs.inside else calibration.inter_hop_s
    # What stays on its rank crosses no link.
    moved_bytes = size_bytes if len(pairs.footprint.link_ids) else 0.0
    return Demand(bytes_per_flow=moved_bytes, latency_s=calibration.base_s + hop_s + pairs.latency_s)
