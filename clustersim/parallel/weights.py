"""Parameters on one rank, by the ranks that hold the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from math import fsum
from operator import attrgetter
from typing import Final

from clustersim.parallel.training_plan import Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters of one rank: those that all replicas share, and those of its experts, which fewer ranks share."""

    dense: float = 0.0
    expert: float = 0.0
    frozen: float = 0.0
    """Parameters that all replicas share and that are not trained, counted by their bytes."""
    frozen_expert: float = 0.0

    @property
    def total(self) -> float:
        """All that are trained."""
        return self.dense + self.expert

    @property
    def held(self) -> Weights:
        """All that take part in passes, frozen or not."""
        return Weights(dense=self.dense + self.frozen, expert=self.expert + self.frozen_expert)

    def __add__(self, other: Weights) -> Weights:
        """Return both sums."""
        return total_weights(((self, 1), (other, 1)))

    def without(self, dense: float) -> Weights:
        """Return the rest without parameters that all replicas share, which are trained or not."""
        return replace(self, frozen=self.frozen - dense) if self.frozen else replace(self, dense=self.dense - dense)

    def shard(self, sharding: Sharding) -> float:
        """Return the number of parameters that one rank stores where ZeRO shards them."""
        return self.dense / sharding.degree + self.expert / sharding.expert_degree


_NAMES: Final = tuple(part.name for part in fields(Weights))
_FIGURES: Final[Callable[[Weights], tuple[float, ...]]] = attrgetter(*_NAMES)

NOTHING: Final = Weights()
"""No parameters."""


def total_weights(parts: Iterable[tuple[Weights, int]]) -> Weights:
    """Return the sum of weights, each times a number."""
    columns = zip(*[[count * figure for figure in _FIGURES(weights)] for weights, count in parts], strict=True)
    return Weights(**dict(zip(_NAMES, map(fsum, columns), strict=False)))
