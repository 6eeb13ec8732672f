"""A ring over nodes of two kinds goes at the pace of the narrowest link on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.library import Library
from clustersim.collectives.pattern import grouping
from clustersim.collectives.ring import RINGS
from clustersim.collectives.timing import idle_rate_bytes_per_s
from clustersim.hardware.models import Node
from clustersim.topology.cluster_wiring import build_mixed_cluster
from tests.unit.engine.factories import IDEAL_NETWORK
from tests.unit.topology.factories import NIC_BYTES_PER_S, make_fabric, make_node

SPINES = make_fabric("leaf_spine", nodes_per_leaf=64)


def with_adapters(share: float, n_nics: int = 8) -> Node:
    node = make_node(n_nics=n_nics)
    return replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=share * NIC_BYTES_PER_S))


def all_reduce_s(kinds: tuple[tuple[Node, int], ...], size_bytes: float) -> float:
    cluster = build_mixed_cluster(kinds, SPINES)
    library = Library(cluster=cluster, calibration=IDEAL_NETWORK)
    group = grouping(cluster, np.arange(cluster.n_ranks, dtype=np.int64)[None])
    return size_bytes / idle_rate_bytes_per_s(RINGS["all_reduce"].lay(cluster, group), library.bandwidth_bytes_per_s)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
@pytest.mark.parametrize(("n_fast", "n_slow"), [(1, 1), (3, 1), (2, 6)])
def test_over_nodes_the_slow_adapters_set_the_time(share: float, n_fast: int, n_slow: int) -> None:
    ranks = 8 * (n_fast + n_slow)

    taken_s = all_reduce_s(((with_adapters(1.0), n_fast), (with_adapters(share), n_slow)), 1e9)

    assert taken_s == pytest.approx(2 * (ranks - 1) / ranks * 1e9 / (8 * share * NIC_BYTES_PER_S), rel=1e-12)


def test_a_node_with_fewer_adapters_passes_as_many_rings_over_each() -> None:
    taken_s = all_reduce_s(((with_adapters(1.0), 1), (with_adapters(1.0, n_nics=2), 1)), 1e9)

    assert taken_s == pytest.approx(2 * 15 / 16 * 1e9 / (2 * NIC_BYTES_PER_S), rel=1e-12)


def test_a_small_node_leaves_fewer_rings() -> None:
    """With four accelerators in one node there are four rings, whose members in the other take four of its eight adapters."""
    small = replace(make_node(n_accelerators=4, n_nics=4), name="small")

    taken_s = all_reduce_s(((with_adapters(1.0), 1), (small, 1)), 1e9)

    assert taken_s == pytest.approx(2 * 11 / 12 * 1e9 / (4 * NIC_BYTES_PER_S), rel=1e-12)
