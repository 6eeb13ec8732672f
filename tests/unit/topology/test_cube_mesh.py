from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

from clustersim.errors import DomainError
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wires import CUBE_MESH, cube_mesh
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, SCALE_UP_S, make_node, route

QUADS = (range(4), range(4, 8))


@pytest.mark.parametrize("n_links", [4, 6])
def test_the_table_is_symmetric_and_uses_every_link(n_links: int) -> None:
    counts = np.array(CUBE_MESH[n_links])

    np.testing.assert_array_equal(counts, counts.T)
    np.testing.assert_array_equal(counts.sum(axis=1), n_links)
    np.testing.assert_array_equal(np.diag(counts), 0)


@pytest.mark.parametrize("n_links", [4, 6])
def test_quads_are_fully_joined_and_twins_are_joined_across(n_links: int) -> None:
    counts = np.array(CUBE_MESH[n_links])

    for quad in QUADS:
        assert all(counts[a, b] for a, b in combinations(quad, 2))
    np.testing.assert_array_equal(counts[:4, 4:] > 0, np.eye(4, dtype=bool))


def test_both_machines_join_the_same_neighbours() -> None:
    np.testing.assert_array_equal(np.array(CUBE_MESH[4]) > 0, np.array(CUBE_MESH[6]) > 0)


def test_a_v100_doubles_two_of_its_four_neighbours() -> None:
    for row in CUBE_MESH[6]:
        assert sorted(count for count in row if count) == [1, 1, 2, 2]


def test_the_doubled_links_of_a_v100_form_one_ring_through_all_eight() -> None:
    graph = nx.Graph([(a, b) for a, row in enumerate(CUBE_MESH[6]) for b, count in enumerate(row) if count == 2])

    assert len(graph) == 8
    assert nx.is_connected(graph)
    assert {degree for _, degree in graph.degree} == {2}


def test_two_links_between_neighbours_act_as_one_of_twice_the_bandwidth() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 1)

    (single,), (double,) = route(cluster, 0, 1), route(cluster, 0, 3)

    assert single.bandwidth_bytes_per_s == SCALE_UP_BYTES_PER_S / 6
    assert double.bandwidth_bytes_per_s == SCALE_UP_BYTES_PER_S / 3


@pytest.mark.parametrize(
    ("source", "middle", "destination"),
    [
        (0, 1, 5),  # over 1 or 4, one link wide either way: the lowest wins
        (0, 2, 6),
        (0, 4, 7),  # two links wide over 4, one over 3
        (7, 4, 0),
        (1, 0, 4),
        (2, 1, 5),  # two links wide over 1, one over 6
    ],
)
def test_others_are_reached_over_the_widest_path_in_between(source: int, middle: int, destination: int) -> None:
    cluster = build_cluster(make_node("cube_mesh"), 1)

    names = [link.name for link in route(cluster, source, destination)]

    assert names == [f"node0/gpu{source}/nvlink/to{middle}", f"node0/gpu{middle}/nvlink/to{destination}"]


@pytest.mark.parametrize("n_links", [4, 6])
def test_no_path_of_equal_length_is_wider_than_the_route(n_links: int) -> None:
    counts = CUBE_MESH[n_links]
    graph = nx.Graph([(a, b) for a in range(8) for b in range(a) if counts[a][b]])
    cluster = build_cluster(make_node("cube_mesh", scale_up_links=n_links), 1)

    for a, b in combinations(range(8), 2):
        links = route(cluster, a, b)
        shortest = list(nx.all_shortest_paths(graph, a, b))
        widest = max(min(counts[x][y] for x, y in pairwise(path)) for path in shortest)
        assert len(links) == len(shortest[0]) - 1
        assert min(link.bandwidth_bytes_per_s for link in links) == widest * SCALE_UP_BYTES_PER_S / n_links


def test_a_relayed_route_takes_the_latency_twice() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 1)

    assert sum(link.latency_s for link in route(cluster, 0, 7)) == 2 * SCALE_UP_S


@pytest.mark.parametrize("n_accelerators", [1, 2, 3, 4, 5, 6, 7])
def test_a_smaller_node_is_the_first_part_of_the_mesh(n_accelerators: int) -> None:
    wiring = cube_mesh(make_node("cube_mesh", n_accelerators=n_accelerators))

    whole = {wire.name: wire for wire in cube_mesh(make_node("cube_mesh")).wires}
    assert all(whole[wire.name] == wire for wire in wiring.wires)
    assert len(wiring.paths) == n_accelerators * (n_accelerators - 1)


def test_an_accelerator_with_other_links_is_refused() -> None:
    with pytest.raises(DomainError, match="card with 12 links each is not known") as caught:
        cube_mesh(make_node("cube_mesh", scale_up_links=12))

    assert "4 links (P100) and with 6 links (V100)" in str(caught.value)


def test_more_than_eight_accelerators_are_refused() -> None:
    with pytest.raises(DomainError, match="8 corners, not 16; use 8 or fewer") as caught:
        cube_mesh(make_node("cube_mesh", n_accelerators=16))

    assert caught.value.path == ("n_accelerators",)
