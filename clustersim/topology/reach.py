"""Whether links that are down leave every rank a way to every other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from clustersim.errors import DomainError
from clustersim.topology.changes import LinkChange
from clustersim.topology.cluster import IntArray
from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.hashing import BoolArray
from clustersim.topology.routing import RoutingPolicy, between

_MOST_SHOWN = 3
_MOST_RUNS = 6


def check_reach(layout: ClusterLayout, policy: RoutingPolicy, works: BoolArray, changes: Sequence[LinkChange]) -> None:
    """Refuse links that are down and cut some ranks or dedicated servers off from others.

    Parameters
    ----------
    works
        Whether each link of the cluster is up.

    Raises
    ------
    DomainError
        Naming the ranks on both sides, and what is down.

    Notes
    -----
    Places that are broken alike and hang at leaves that reach the same others are alike. Of each class a few are tried, so
    that there are pairs at the same leaf and at different ones, in the same domain and in different ones.
    """
    samples = _samples(layout, works)
    endpoints, classes = _endpoints(layout, samples)
    n = len(endpoints)
    lost = np.zeros((n, n), dtype=np.bool_)
    for index, endpoint in enumerate(endpoints):
        lost[index] = ~between(layout, policy, np.full(n, endpoint, dtype=np.int64), endpoints).reached
    if not lost.any():
        return
    cut = np.zeros((int(classes.max()) + 1,) * 2, dtype=np.bool_)
    np.logical_or.at(cut, (classes[:, None], classes[None, :]), lost | lost.T)
    raise _error(layout, policy, cut, samples, changes)


def _samples(layout: ClusterLayout, works: BoolArray) -> list[tuple[IntArray, IntArray]]:
    """Return for each class of places all its members, and those that are tried."""
    places = np.arange(layout.n_hosts, dtype=np.int64)
    domains = layout.numbering.domain_of
    leaves = _leaves(layout, places)
    columns = [layout.kind_of_place, _domain_classes(layout, domains)]
    if layout.scale_out is not None:
        leaf_classes = layout.scale_out.leaf_classes(works[layout.first_fabric_link : layout.first_memory_link])
        columns.extend(leaf_classes[leaves].T)
    inverse = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
    found: list[tuple[IntArray, IntArray]] = []
    for number in range(int(inverse.max()) + 1):
        members = np.flatnonzero(inverse == number).astype(np.int64)
        first, others = members[0], members[1:]
        same_leaves = np.all(leaves[others] == leaves[first], axis=1)
        same_domain = domains[others] == domains[first]
        tried = [first]
        for alike in (same_leaves, ~same_leaves, same_domain, ~same_domain):
            tried.extend(others[alike][:1])
        found.append((members, np.unique(np.array(tried, dtype=np.int64))))
    return found


def _leaves(layout: ClusterLayout, places: IntArray) -> IntArray:
    """Return the leaves of each place, as of a node; no columns without a fabric."""
    if layout.scale_out is None:
        return np.zeros((len(places), 0), dtype=np.int64)
    rails = np.arange(layout.n_rails, dtype=np.int64)
    return layout.scale_out.leaf_of(places[:, None], rails[None, :]) + np.zeros((len(places), len(rails)), dtype=np.int64)


def _domain_classes(layout: ClusterLayout, domains: IntArray) -> IntArray:
    """Return a number for each place; domains in which the same places are broken alike have the same."""
    places = np.arange(layout.n_hosts, dtype=np.int64)
    _, first_of_domain = np.unique(domains, return_index=True)
    # How full a domain is makes no difference: what it lacks is taken to be as built.
    as_built = layout.numbering.group_of[first_of_domain]
    kinds = np.repeat(as_built[:, None], max(group.places_per_domain for group in layout.groups), axis=1)
    kinds[domains, places - first_of_domain[domains]] = layout.kind_of_place
    return np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)[domains]


def _endpoints(layout: ClusterLayout, samples: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Return the endpoints that are tried, and a number for each class of them: its class of places, and its number there."""
    n, numbering = layout.host_number, layout.numbering
    endpoints: list[int] = []
    classes: list[int] = []
    for number, (_, tried) in enumerate(samples):
        for place in tried:
            is_node = bool(place < layout.n_nodes)
            ranks = range(int(numbering.first_rank[place]), int(numbering.first_rank[place + 1]))
            ids = ranks if is_node else (layout.n_ranks + int(place),)
            endpoints.extend(ids)
            classes.extend(number * n + index for index in range(len(ids)))
    return np.array(endpoints, dtype=np.int64), np.array(classes, dtype=np.int64)


def _error(
    layout: ClusterLayout,
    policy: RoutingPolicy,
    cut: BoolArray,
    samples: Sequence[tuple[IntArray, IntArray]],
    changes: Sequence[LinkChange],
) -> DomainError:
    n = layout.host_number
    sizes = np.array([len(samples[number // n][0]) if number < len(samples) * n else 0 for number in range(len(cut))])
    loneliest = int(np.lexsort((np.arange(len(cut)), cut @ sizes))[-1])
    alike = np.flatnonzero(np.all(cut == cut[loneliest], axis=1))
    subject = _members(layout, samples, alike)
    others = np.setdiff1d(_members(layout, samples, np.flatnonzero(cut[loneliest])), subject)
    if not len(others):
        # Everybody is in the same case: name those that the last one can still reach, and who is left.
        last = np.full(len(subject), subject[-1], dtype=np.int64)
        reached = between(layout, policy, last, subject).reached & between(layout, policy, subject, last).reached
        subject, others = subject[reached], subject[~reached]
    down = [(index, change) for index, change in enumerate(changes) if change.down]
    names = [f"{change.between[0]} and {change.between[1]}" for _, change in down]
    shown = "; ".join(names[:_MOST_SHOWN]) + (f"; and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")
    return DomainError(
        f"{_named(layout, subject)} cannot reach {_named(layout, others)}: no way is left with the links down between {shown}",
        path=("changes", down[-1][0]),
        hint="leave one of them up",
    )


def _members(layout: ClusterLayout, samples: Sequence[tuple[IntArray, IntArray]], classes: IntArray) -> IntArray:
    n = layout.host_number
    found: list[IntArray] = []
    for number in classes:
        places = samples[int(number) // n][0]
        ranks = layout.numbering.first_rank[places] + number % n
        found.append(np.where(places < layout.n_nodes, ranks, layout.n_ranks + places))
    return np.unique(np.concatenate(found))


def _named(layout: ClusterLayout, endpoints: IntArray) -> str:
    ranks = [int(endpoint) for endpoint in endpoints if endpoint < layout.n_ranks]
    servers = [int(endpoint) - layout.n_ranks - layout.n_nodes for endpoint in endpoints if endpoint >= layout.n_ranks]
    parts = [f"{word}{'s' if len(ids) > 1 else ''} {_ranges(ids)}" for word, ids in (("rank", ranks), ("server", servers)) if ids]
    return " and ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short: ``0-7, 9``."""
    runs: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(runs[:_MOST_RUNS]) + (", ..." if len(runs) > _MOST_RUNS else "")
