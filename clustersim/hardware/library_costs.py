"""Latencies of a communication library itself: starts and hops, by family of algorithms, protocol and medium.

Constants of NCCL, restated; libraries of other vendors are its forks and share them.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc``: base and hop latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Protocol = Literal["ll", "ll128", "simple"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("ll", "ll128", "simple")
"""A flag per store (LL), lines of 128 bytes with one flag (LL128), or chunks and a fence (Simple)."""

Medium = Literal["nvlink", "pcie", "net"]
Place = Literal["accelerator", "host", "nvme"]
"""Place of a part of the training state: the accelerator's memory, that of its node, or the drives of its node."""
Family = Literal["ring", "tree", "nvls", "exchange"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmLatencies:
    """Start and hops of one family of algorithms, in seconds."""

    base_s: Mapping[Protocol, float]
    hop_s: Mapping[Medium, Mapping[Protocol, float]]


def _us(low_latency: float, lines: float, simple: float) -> Mapping[Protocol, float]:
    return MappingProxyType({"ll": low_latency * 1e-6, "ll128": lines * 1e-6, "simple": simple * 1e-6})


_RING: Final = AlgorithmLatencies(
    base_s=_us(6.6, 14.0, 8.4),
    hop_s=MappingProxyType({"nvlink": _us(0.6, 1.9, 3.4), "pcie": _us(1.0, 2.5, 5.7), "net": _us(2.7, 4.0, 14.0)}),
)
_TREE: Final = AlgorithmLatencies(
    base_s=_us(6.8, 14.0, 8.4),
    hop_s=MappingProxyType({"nvlink": _us(0.6, 1.25, 4.0), "pcie": _us(1.0, 1.9, 4.0), "net": _us(5.0, 8.5, 14.0)}),
)
_NVLS: Final = AlgorithmLatencies(
    base_s=_us(0.0, 0.0, 0.0),
    hop_s=MappingProxyType({"nvlink": _us(12.5, 12.5, 12.5), "pcie": _us(12.5, 12.5, 12.5), "net": _us(18.0, 18.0, 18.0)}),
)
"""NCCL counts 25 us for an all-reduce inside a domain: reading the sum and writing it to all, two steps here."""

_EXCHANGE: Final = AlgorithmLatencies(
    base_s=_us(6.6, 6.6, 6.6),
    hop_s=MappingProxyType({"nvlink": _us(0.6, 0.6, 0.6), "pcie": _us(1.0, 1.0, 1.0), "net": _us(10.0, 10.0, 10.0)}),
)
"""NCCL has no estimate for sends. Measured on H100 (Vidur, send_recv.csv): 7 us inside a node and 19 us between two, at any size."""

LATENCIES: Final[Mapping[Family, AlgorithmLatencies]] = MappingProxyType(
    {"ring": _RING, "tree": _TREE, "nvls": _NVLS, "exchange": _EXCHANGE}
)
"""By family."""

CollectiveOp = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "push",
    "pull",
    "update",
]
"""Operations of a group of ranks; the last three with parameter servers: gradients go up, parameters come down, and servers read
and write what they keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Parameter servers: hosts of the cluster, each with an equal part of a tensor."""

    hosts: tuple[int, ...]
    """The nodes' own hosts come first, then dedicated ones."""
    per_node: bool = False
    """True where the accelerators of a scale-up domain add up their gradients first, and each sends its part of the sum."""
    adds: bool = False
    """True where gradients of several groups are summed; otherwise the group decides whether there is a sum."""

    @property
    def share(self) -> float:
        """Share of a tensor that each server holds."""
        return 1.0 / len(self.hosts)
