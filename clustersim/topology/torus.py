"""A torus: every node has a router, joined with the next and the last along each dimension."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric
from clustersim.topology.cluster import TIERS, FloatArray, IntArray
from clustersim.topology.direct_links import RouterFabric, RouterGraph, with_detours
from clustersim.topology.scale_out import Below, RouteRows, RoutingState, ScaleOut, hop_latency_s, left_fraction, narrowest, shares

_AXES: Final = "xyz"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Torus(RouterFabric):
    """Routers on a grid whose edges are joined; the first dimension counts fastest.

    Links count by router, by dimension of more than one router, and then forward before backward.
    """

    sizes: tuple[int, ...]
    """Sizes of the dimensions with more than one router."""
    strides: tuple[int, ...]
    """Step of a router's number along each of them."""
    axes: tuple[str, ...]

    def leaf_of(self, places: IntArray, adapters: IntArray) -> IntArray:
        """Return the router of each adapter: that of its node."""
        return places + 0 * adapters

    def leaf_name(self, leaf: int) -> str:
        """Return the name of a router."""
        return f"router{leaf}"

    def link_name(self, link: int) -> str:
        """Return the name of a link, such as ``router3/x+``."""
        router, way = divmod(link, 2 * len(self.sizes))
        return f"router{router}/{self.axes[way // 2]}{'-' if way % 2 else '+'}"

    def ways(self, sources: IntArray, destinations: IntArray, condition: RoutingState) -> RouteRows:
        """Return paths that go along one dimension after the other, each in the shorter direction.

        Where both directions are equally long, traffic is spread over both in proportion to what is left of them, or hashed to one.
        """
        left = left_fraction(condition, len(self.tier_index))
        n_pairs = len(sources)
        router = sources.copy()
        rows: list[IntArray] = []
        weights: list[FloatArray] = []
        reached = np.ones(n_pairs, dtype=np.bool_)
        for dimension, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            begin, end = sources // stride % size, destinations // stride % size
            paths, usable = self._both_directions(dimension, router, begin, end, left)
            share = shares(usable, condition.keys, dimension)
            reached &= (begin == end) | np.any(share > 0.0, axis=1)
            paths[share == 0.0] = -1
            rows.append(paths.reshape(n_pairs, -1))
            weights.append(np.repeat(share, size // 2, axis=1))
            router = router + (end - begin) * stride
        link_ids = np.concatenate([np.zeros((n_pairs, 0), dtype=np.int64), *rows], axis=1)
        ways = RouteRows(link_ids=link_ids, weights=np.concatenate([np.zeros((n_pairs, 0)), *weights], axis=1), reached=reached)
        return with_detours(ways, self.graph, sources, destinations, left > 0.0)

    def _both_directions(
        self, dimension: int, routers: IntArray, begin: IntArray, end: IntArray, left: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the links forward and backward along one dimension, and the remaining bandwidth of each direction that is shortest."""
        size, stride = self.sizes[dimension], self.strides[dimension]
        forward = (end - begin) % size
        steps = np.arange(size // 2, dtype=np.int64)
        paths = np.full((len(routers), 2, size // 2), -1, dtype=np.int64)
        for direction, distance, sign in ((0, forward, 1), (1, (size - forward) % size, -1)):
            at = (begin[:, None] + sign * steps) % size
            passed = routers[:, None] + (at - begin[:, None]) * stride
            links = (passed * len(self.sizes) + dimension) * 2 + direction
            shortest = (distance > 0) & (2 * distance <= size)
            paths[:, direction] = np.where(shortest[:, None] & (steps < distance[:, None]), links, -1)
        return paths, narrowest(paths, left)


def torus(fabric: Fabric, below: Below) -> ScaleOut:
    """Return a torus of one router for each node.

    Each router has one link each way along each dimension. Together they are as wide as the adapters of its node, unless the
    fabric says how wide one is; between nodes of two kinds a link is as wide as the narrower.

    Raises
    ------
    DomainError
        The dimensions are missing, or do not multiply to the places.
    """
    sizes = fabric.dimensions
    if not 1 <= len(sizes) <= len(_AXES) or min(sizes) < 1:
        raise DomainError(
            "a torus has one to three dimensions of one or more nodes each"
            if sizes
            else "a torus does not say how long its dimensions are",
            path=("fabric", "dimensions"),
            hint="such as [4, 4, 4] for 64 nodes",
        )
    if prod(sizes) != below.n_places:
        shape = " x ".join(str(size) for size in sizes)
        raise DomainError(
            f"{shape} = {prod(sizes)} places of a torus are not {below.n_places}, as many as there are nodes and servers",
            path=("fabric", "dimensions"),
            hint=f"choose dimensions that multiply to {below.n_places}",
        )
    kept = [index for index, size in enumerate(sizes) if size > 1]
    long, strides = tuple(sizes[index] for index in kept), tuple(prod(sizes[:index]) for index in kept)
    tails, heads = _wires(below.n_places, long, strides)
    shares_bytes_per_s = below.n_adapters * below.adapter_bandwidth_bytes_per_s / max(1, 2 * len(long))
    as_built_bytes_per_s = np.minimum(shares_bytes_per_s[tails], shares_bytes_per_s[heads])
    width_bytes_per_s = fabric.link_bandwidth_bytes_per_s
    return Torus(
        sizes=long,
        strides=strides,
        axes=tuple(_AXES[index] for index in kept),
        n_leaves=below.n_places,
        graph=RouterGraph(n_routers=below.n_places, tails=tails, heads=heads),
        bandwidth_bytes_per_s=as_built_bytes_per_s if width_bytes_per_s is None else np.full(len(tails), width_bytes_per_s),
        latency_s=np.full(len(tails), hop_latency_s(fabric.leaf, fabric.leaf, fabric.cable_latency_s)),
        tier_index=np.full(len(tails), TIERS.index("leaf"), dtype=np.int64),
    )


def _wires(n_routers: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Return the routers that each link leads from and to."""
    routers = np.arange(n_routers, dtype=np.int64)
    heads = np.zeros((n_routers, len(sizes), 2), dtype=np.int64)
    for dimension, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        at = routers // stride % size
        for direction, sign in ((0, 1), (1, -1)):
            heads[:, dimension, direction] = routers + ((at + sign) % size - at) * stride
    return np.repeat(routers, 2 * len(sizes)), heads.reshape(-1)
