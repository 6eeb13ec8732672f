"""Routers: which replica a request goes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from itertools import cycle
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from clustersim.serving.sequence import Sequence

_CACHE_THRESHOLD: Final = 0.5
_BALANCE_REQUESTS: Final = 32
_BALANCE_RATIO: Final = 1.1
"""SGLang's cache-aware router: defaults of ``cache_threshold``, ``balance_abs_threshold`` and ``balance_rel_threshold`` in
``sgl-router/py_src/sglang_router/router.py`` of 2025; later releases have others."""


class RoutedReplica(Protocol):
    """A replica as a router sees it."""

    @property
    def n_requests(self) -> int:
        """Requests in its queue or batch."""
        ...

    def n_prefix_entries(self, sequence: Sequence) -> int:
        """Return how many entries of the prefix of a request its cache has."""
        ...


Router = Callable[[Sequence], int]
"""From a request to the number of a replica."""


def _round_robin(targets: Items[RoutedReplica], _: np.random.Generator) -> Router:
    following = cycle(range(len(targets)))
    return lambda _: next(following)


def _fewest(targets: Items[RoutedReplica], among: Items[int]) -> int:
    return min(among, key=lambda each: (targets[each].n_requests, each))


def _least_loaded(targets: Items[RoutedReplica], _: np.random.Generator) -> Router:
    everyone = range(len(targets))
    return lambda _: _fewest(targets, everyone)


def _power_of_two(targets: Items[RoutedReplica], generator: np.random.Generator) -> Router:
    if len(targets) == 1:
        return lambda _: 0

    def choose(_: Sequence) -> int:
        first = int(generator.integers(len(targets)))
        second = (first + 1 + int(generator.integers(len(targets) - 1))) % len(targets)
        return _fewest(targets, (first, second))

    return choose


def _prefix_aware(targets: Items[RoutedReplica], _: np.random.Generator) -> Router:
    everyone = range(len(targets))

    def choose(sequence: Sequence) -> int:
        loads = [target.n_requests for target in targets]
        uneven = max(loads) - min(loads) > _BALANCE_REQUESTS and max(loads) > _BALANCE_RATIO * min(loads)
        if sequence.prefix and not uneven:
            found = [target.n_prefix_entries(sequence) for target in targets]
            best = max(everyone, key=lambda each: (found[each], -loads[each], -each))
            if found[best] > _CACHE_THRESHOLD * len(sequence.prefix):
                return best
        return _fewest(targets, everyone)

    return choose


ROUTERS: Final[Mapping[str, Callable[[Items[RoutedReplica], np.random.Generator], Router]]] = MappingProxyType(
    {"round_robin": _round_robin, "least_loaded": _least_loaded, "power_of_two": _power_of_two, "prefix_aware": _prefix_aware}
)
"""Routers by name."""
