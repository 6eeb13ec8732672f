from __future__ import annotations

import numpy as np
import pytest

from clustersim.topology.cluster_layout import ClusterLayout
from clustersim.topology.cluster_wiring import build_mixed_cluster
from clustersim.topology.node_wiring import NO_WAY
from tests.unit.topology.factories import make_fabric, make_node, make_servers, ranks

SPINES = make_fabric("leaf_spine", nodes_per_leaf=2)


@pytest.fixture(scope="module")
def layout() -> ClusterLayout:
    """Two racks of a domain each, a third that is half full, two small nodes and a server."""
    racks, small = make_node(n_accelerators=4, n_nics=4, nodes_per_domain=2), make_node("pcie", n_accelerators=2, n_nics=1)
    return build_mixed_cluster(((racks, 5), (small, 2)), SPINES, servers=make_servers(1, n_nics=2))


def test_ranks_and_adapters_are_counted_through_group_by_group(layout: ClusterLayout) -> None:
    assert layout.numbering.first_rank.tolist() == [0, 4, 8, 12, 16, 20, 22, 24, 24]
    assert layout.numbering.first_adapter.tolist() == [0, 4, 8, 12, 16, 20, 21, 22, 24]
    assert layout.numbering.place_of_rank.tolist() == [place for place in range(5) for _ in range(4)] + [5, 5, 6, 6]
    assert (layout.n_nodes, layout.n_servers, layout.n_hosts, layout.n_ranks) == (7, 1, 8, 24)


def test_no_domain_spans_two_groups_and_a_server_is_one_of_its_own(layout: ClusterLayout) -> None:
    assert layout.numbering.domain_of.tolist() == [0, 0, 1, 1, 2, 3, 4, 5]
    assert layout.n_domains == 5


def test_wires_are_those_of_each_group(layout: ClusterLayout) -> None:
    counts = np.diff(layout.numbering.first_wire)

    assert counts.tolist() == [len(layout.group_at(place).wiring.wires) for place in range(8)]
    assert len(set(counts.tolist())) == 3


def test_every_link_has_a_name_of_its_own(layout: ClusterLayout) -> None:
    names = [layout.link_name(link) for link in range(layout.n_links)]

    assert len(set(names)) == layout.n_links
    assert names[int(layout.numbering.first_wire[5]) - 1].startswith("node4/")
    assert names[int(layout.numbering.first_wire[5])] == "node5/gpu0/pcie/up"


def test_adapters_are_spread_over_the_rails_and_found_on_them(layout: ClusterLayout) -> None:
    places, adapters = ranks(0, 0, 5, 7, 7), ranks(0, 3, 0, 0, 1)

    assert layout.n_rails == 4
    assert layout.rails_of(places, adapters).tolist() == [0, 3, 0, 0, 2]
    assert layout.adapters_on(ranks(0, 5, 5, 7, 7), ranks(3, 0, 3, 1, 3), ranks(1, 1, 1, 1, 1)).tolist() == [3, 0, 0, 0, 1]


def test_the_host_of_each_place_is_the_last_endpoint_of_the_tables(layout: ClusterLayout) -> None:
    host = layout.host_number

    assert host == 4
    assert (layout.tables.inside.lengths[:, host, host] == 0).all()
    assert (layout.tables.inside.lengths[1, 2:4] == NO_WAY).all()
