"""Common parts of fabrics without spines: routers that are joined with each other directly."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from clustersim.topology.cluster import BoolArray, IntArray
from clustersim.topology.scale_out import RouteRows, ScaleOut


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouterGraph:
    """Directed links between routers, by their numbers."""

    n_routers: int
    tails: IntArray
    heads: IntArray

    def components(self, works: BoolArray) -> IntArray:
        """Return a number for each router; two have the same if links that work lead from each to the other."""
        labels = np.full(self.n_routers, -1, dtype=np.int64)
        forward, backward = _adjacent(self.tails, works, self.n_routers), _adjacent(self.heads, works, self.n_routers)
        for router in range(self.n_routers):
            if labels[router] < 0:
                reached = _searched(router, forward, self.heads) >= 0
                reaches = _searched(router, backward, self.tails) >= 0
                labels[reached & reaches] = router
        return labels

    def around(self, sources: IntArray, destinations: IntArray, works: BoolArray) -> tuple[IntArray, BoolArray]:
        """Return one shortest path of each pair over links that work, filled up with -1, and whether there is one.

        Of equally short ones it is the one that a search finds first that takes links in the order of their numbers.
        """
        forward = _adjacent(self.tails, works, self.n_routers)
        paths: list[list[int]] = [[] for _ in sources]
        reached = sources == destinations
        for source in np.unique(sources):
            came_by = _searched(int(source), forward, self.heads)
            for pair in np.flatnonzero(sources == source):
                router, path = int(destinations[pair]), paths[int(pair)]
                while router != source and came_by[router] >= 0:
                    path.append(int(came_by[router]))
                    router = int(self.tails[path[-1]])
                path.reverse()
                reached[pair] = router == source
        rows = np.full((len(paths), max((len(path) for path in paths), default=0)), -1, dtype=np.int64)
        for pair, path in enumerate(paths):
            if reached[pair]:
                rows[pair, : len(path)] = path
        return rows, reached


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouterFabric(ScaleOut):
    """Routers that are joined with each other directly; the first of them are the leaves."""

    graph: RouterGraph

    def leaf_classes(self, works: BoolArray) -> IntArray:
        """Return a number for each leaf; those with the same number reach each other and the same others."""
        return self.graph.components(works)[: self.n_leaves]

    def ends(self, link: int) -> tuple[str, str]:
        """Return the names of the routers that a link joins."""
        return self.leaf_name(int(self.graph.tails[link])), self.leaf_name(int(self.graph.heads[link]))


def with_detours(ways: RouteRows, graph: RouterGraph, sources: IntArray, destinations: IntArray, works: BoolArray) -> RouteRows:
    """Return routes with one shortest detour for each pair without its own paths."""
    lost = np.flatnonzero(~ways.reached)
    if not len(lost):
        return ways
    paths, found = graph.around(sources[lost], destinations[lost], works)
    width = max(ways.link_ids.shape[1], paths.shape[1])
    link_ids = np.full((len(sources), width), -1, dtype=np.int64)
    weights = np.ones((len(sources), width))
    link_ids[:, : ways.link_ids.shape[1]] = ways.link_ids
    if ways.weights is not None:
        weights[:, : ways.link_ids.shape[1]] = ways.weights
    link_ids[lost] = -1
    link_ids[lost, : paths.shape[1]] = paths
    weights[lost] = 1.0
    reached = ways.reached.copy()
    reached[lost] = found
    return RouteRows(link_ids=link_ids, weights=weights, reached=reached)


def _adjacent(ends: IntArray, works: BoolArray, n_routers: int) -> list[list[int]]:
    """Return the links at each router, of those that work, in order."""
    adjacent: list[list[int]] = [[] for _ in range(n_routers)]
    for link, end in enumerate(ends):
        if works[link]:
            adjacent[int(end)].append(link)
    return adjacent


def _searched(source: int, adjacent: list[list[int]], far_ends: IntArray) -> IntArray:
    """Return the link by which a breadth-first search first came to each router; the source came by any, -1 where it did not come."""
    came_by = np.full(len(adjacent), -1, dtype=np.int64)
    came_by[source] = 0
    queue = deque([source])
    while queue:
        for link in adjacent[queue.popleft()]:
            router = int(far_ends[link])
            if came_by[router] < 0:
                came_by[router] = link
                queue.append(router)
    return came_by
