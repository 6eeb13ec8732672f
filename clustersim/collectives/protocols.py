"""Protocols of the communication library, and the share of the wire that carries data.

Constants of NCCL, restated; libraries of other vendors are its forks and share them.

References
----------
.. [1] NVIDIA NCCL 2.30.7, ``src/graph/tuning.cc``: protocol bandwidths.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.hardware.library_costs import CollectiveOp, Family, Protocol

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
