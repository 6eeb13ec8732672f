"""Protocols and limits of the communication library: what of the wire carries data, and what a channel moves.

Constants of NCCL, restated; libraries of other vendors are its forks and share them.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc``: protocol bandwidths, bandwidth of a channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.hardware.communication import CollectiveOp, Family, Protocol

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


TREE_CHANNEL_BYTES_PER_S: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "volta": (26.5e9, 18.5e9, 10.0e9),
        "ampere": (24.0e9, 23.6e9, 17.8e9),
        "hopper": (38.7e9, 41.4e9, 36.0e9),
        "blackwell": (70.0e9, 42.8e9, 24.0e9),
    }
)
"""Most that one channel of a tree moves, in and out together, in a group of 1, 2 or more nodes, by generation [1]_."""

NVLS_TREE_CHANNEL_BYTES_PER_S: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {"hopper": (0.0, 57.7e9, 45.5e9), "blackwell": (0.0, 96.0e9, 80.0e9)}
)
"""The same where the switches of the domains add [1]_."""

LL_BYTES_PER_S: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {
        "volta": (39.0e9, 39.0e9, 20.4e9),
        "ampere": (87.7e9, 22.5e9, 19.0e9),
        "hopper": (141.0e9, 22.5e9, 19.0e9),
        "blackwell": (282.0e9, 22.5e9, 19.0e9),
    }
)
"""Most bus bandwidth that the library expects of LL. Beyond one node its row goes by processor; the row of AMD's stands here [1]_."""

NVLS_SHARE: Final[Mapping[str, float]] = MappingProxyType({"hopper": 0.85, "blackwell": 0.74})
"""What the library expects a switch that adds to reach [1]_; used to choose, not to predict."""

FEWEST_NVLS_RANKS: Final[Mapping[str, int]] = MappingProxyType({"hopper": 5, "blackwell": 6})
"""Ranks from which NVLS was seen to be chosen: S. Bekman, *Machine Learning Engineering*, network benchmarks on H200 and B200."""

GENERATION: Final = "ampere"
"""Whose limits serve where a generation has none of its own."""

LEAST_CHANNELS: Final = 4
"""Channels of a group across nodes with fewer adapters than that. Assumed: the library doubles what it finds; four p4de adapters and their
measured tree agree with it."""


def of_generation(table: Mapping[str, tuple[float, float, float]], generation: str, n_domains: int) -> float:
    """Return the limit for a group of so many domains, in bytes per second."""
    row = table.get(generation, table[GENERATION] if GENERATION in table else next(iter(table.values())))
    return row[min(n_domains, 3) - 1]
