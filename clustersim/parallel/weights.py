"""Parameters on one rank, by the ranks that hold the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import Final

from clustersim.parallel.training_plan import Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters of one rank: those that all replicas share, and those of its experts, which fewer ranks share."""

    dense: float = 0.0
    expert: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.dense + self.expert

    def __add__(self, other: Weights) -> Weights:
        """Return both sums."""
        return Weights(dense=self.dense + other.dense, expert=self.expert + other.expert)

    def without(self, dense: float) -> Weights:
        """Return the rest without parameters that all replicas share."""
        return Weights(dense=self.dense - dense, expert=self.expert)

    def shard(self, sharding: Sharding) -> float:
        """Return the number of parameters that one rank stores where ZeRO shards them."""
        return self.dense / sharding.degree + self.expert / sharding.expert_degree


NOTHING: Final = Weights()
"""No parameters."""


def total_weights(parts: Iterable[tuple[Weights, int]]) -> Weights:
    """Return the sum of weights, each times a number."""
    counted = tuple(parts)
    return Weights(
        dense=fsum(count * weights.dense for weights, count in counted), expert=fsum(count * weights.expert for weights, count in counted)
    )
