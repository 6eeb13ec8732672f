"""Load of routed experts on the rank with the most work: rows of their products, and experts whose weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt
from typing import Final, NamedTuple

import numpy as np

from clustersim.workloads.inference import ExpertWork

POPULARITY_SHAPE: Final = 0.6
"""Shape of the distribution of expert popularity; 1 is exponential, and infinity is uniform.

Fitted (0.2 to 100) to 80 rows of InferenceX with mixtures: the median error of the time per token is 9.5 %, 12.7 % with experts alike."""
_DRAWS: Final = 32
"""The standard error of their mean is 0.3 % or less."""


class BusiestRank(NamedTuple):
    """Work of one layer on the rank with the most."""

    rows: float
    """Tokens, each as often as it chose an expert of this rank."""
    hit: float
    """Experts that some token chose."""


def busiest_rank(work: ExpertWork, tokens: int, copies: int, shape: float) -> BusiestRank:
    """Return the load of the busiest rank for tokens of all ranks.

    Popularity of experts follows a gamma distribution of shape a, so that T tokens that choose k of E hit a share
    ``1 - (1 + k T / (E a))^-a`` of them; a rank reads the weights of those of its own. Ranks of n experts differ in load by
    ``1 / sqrt(a n)``, and the busiest of p ranks has ``sqrt(2 ln p)`` of that more than the mean. With copies of popular experts it has
    what is left after they are placed.
    """
    choices = tokens * work.top_k / (work.n_experts + copies)
    ranks = (work.n_experts + copies) // work.n_local
    uneven = 1.0 + sqrt(2.0 * log(ranks) / (shape * work.n_local))
    busiest = busiest_with_copies(work.n_experts, ranks, copies, shape) if copies else uneven
    hit_fraction = 1.0 - (1.0 + choices / shape) ** -shape
    return BusiestRank(rows=choices * work.n_local * busiest, hit=max(1.0, work.n_local * hit_fraction))


@lru_cache
def busiest_with_copies(n_experts: int, n_ranks: int, n_copies: int, shape: float) -> float:
    """Return the load of the busiest rank over the mean one, where the most popular experts have copies.

    Popularity follows a gamma distribution of this shape. The expert with the highest load for each copy gets the next copy; copies are
    then placed, the heaviest first, on the least loaded rank with room (DeepSeek's EPLB). Mean over draws.
    """
    generator = np.random.default_rng(0)
    return float(np.mean([_busiest(generator.gamma(shape, size=n_experts).tolist(), n_ranks, n_copies) for _ in range(_DRAWS)]))


def _busiest(popularity: Sequence[float], n_ranks: int, n_copies: int) -> float:
    copies = [1] * len(popularity)
    for _ in range(n_copies):
        heaviest = max(range(len(popularity)), key=lambda each: popularity[each] / copies[each])
        copies[heaviest] += 1
    slots = sorted((load / count for load, count in zip(popularity, copies, strict=True) for _ in range(count)), reverse=True)
    room = len(slots) // n_ranks
    loads, taken = [0.0] * n_ranks, [0] * n_ranks
    for load in slots:
        rank = min((each for each in range(n_ranks) if taken[each] < room), key=lambda each: loads[each])
        loads[rank] += load
        taken[rank] += 1
    return max(loads) * n_ranks / sum(loads)
