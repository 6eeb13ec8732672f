from __future__ import annotations

import pytest

from clustersim.collectives.direct import DIRECT, lay_transfers
from clustersim.collectives.pattern import FlowSet
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import groups, laid, load_by_name, nodes_of
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_S, make_node, ranks


def test_every_pair_of_an_all_to_all_is_one_flow() -> None:
    cluster = nodes_of(2, 3)

    ((inside, between),) = laid(DIRECT["all_to_all"], cluster).phases

    # To one other inside, to four outside; 1 / 6 of what a rank sends goes to each.
    assert inside.share == between.share == 1 / 6
    assert set(inside.route_set.flows.tolist()) == {1.0}
    assert {
        cluster.links[int(link)].tier: flows for link, flows in zip(between.route_set.link_ids, between.route_set.flows, strict=True)
    } == {
        "pcie": 4.0,
        "nic": 4.0,
    }


def test_groups_of_an_orbit_share_their_adapters() -> None:
    cluster = build_cluster(make_node(n_nics=4), 2)

    pattern = DIRECT["all_to_all"].lay(cluster, groups(cluster, (0, 8), (1, 9)))

    # Accelerators 0 and 1 have one adapter between them, and each sends half of its data.
    assert load_by_name(cluster, pattern)["node0/nic0/tx"] == 1.0


def test_a_gather_ends_at_the_first_of_the_group() -> None:
    cluster = nodes_of(1, 4)

    load = load_by_name(cluster, DIRECT["gather"].lay(cluster, groups(cluster, (3, 1, 2))))

    assert {name: share for name, share in load.items() if "nic" in name} == {
        "node1/nic0/rx": pytest.approx(2 / 3),
        "node2/nic0/tx": pytest.approx(1 / 3),
        "node3/nic0/tx": pytest.approx(1 / 3),
    }


def test_a_scatter_is_a_gather_the_other_way() -> None:
    cluster = nodes_of(4, 2)

    gathered, scattered = (load_by_name(cluster, laid(DIRECT[op], cluster)) for op in ("gather", "scatter"))

    turned = {"up": "down", "down": "up", "tx": "rx", "rx": "tx"}
    assert scattered == {f"{name.rpartition('/')[0]}/{turned[name.rpartition('/')[2]]}": share for name, share in gathered.items()}


def test_two_ranks_send_to_each_other() -> None:
    cluster = nodes_of(1, 2)

    load = load_by_name(cluster, laid(DIRECT["send_recv"], cluster))

    assert {name: share for name, share in load.items() if "nic" in name} == dict.fromkeys(
        ["node0/nic0/tx", "node0/nic0/rx", "node1/nic0/tx", "node1/nic0/rx"], 1.0
    )


def test_groups_that_do_not_fill_their_domains_are_flagged() -> None:
    cluster = build_cluster(make_node(), 2)

    assert DIRECT["all_to_all"].lay(cluster, groups(cluster, (0, 1, 8, 9))).uniform
    assert not DIRECT["all_to_all"].lay(cluster, groups(cluster, (0, 1, 2, 8))).uniform


def test_uneven_groups_exchange_everything_all_the_same() -> None:
    cluster = build_cluster(make_node(), 2)

    load = load_by_name(cluster, DIRECT["all_to_all"].lay(cluster, groups(cluster, (0, 1, 2, 8))))

    assert load["node1/nic0/rx"] == load["node1/nic0/tx"] == 3 / 4
    assert load["node0/nic2/tx"] == 1 / 4


def lay_pairs(cluster: Cluster, sources: tuple[int, ...], destinations: tuple[int, ...]) -> FlowSet:
    (phase,) = lay_transfers(cluster, ranks(*sources), ranks(*destinations)).phases
    (flow_set,) = phase
    return flow_set


def test_transfers_cross_the_links_of_their_routes() -> None:
    cluster = build_cluster(make_node(), 2)

    flow_set = lay_pairs(cluster, (0, 0, 1), (1, 2, 2))

    used = dict(zip(flow_set.route_set.link_ids.tolist(), flow_set.route_set.flows.tolist(), strict=True))
    assert {cluster.links[link].name: flows for link, flows in used.items()} == {
        "node0/gpu0/nvlink/up": 2.0,
        "node0/gpu1/nvlink/up": 1.0,
        "node0/gpu1/nvlink/down": 1.0,
        "node0/gpu2/nvlink/down": 2.0,
    }


def test_a_step_is_inside_only_if_no_pair_leaves_its_domain() -> None:
    cluster = build_cluster(make_node(), 2)

    inside, across = lay_pairs(cluster, (0, 9), (1, 10)), lay_pairs(cluster, (0, 7), (1, 8))

    assert (inside.intra_steps, inside.inter_steps) == (1, 0)
    assert (across.intra_steps, across.inter_steps) == (0, 1)


def test_transfers_wait_for_the_longest_way() -> None:
    cluster = build_cluster(make_node(), 2)

    assert lay_pairs(cluster, (0, 9), (1, 10)).intra_latency_s == SCALE_UP_S
    assert lay_pairs(cluster, (0, 7), (1, 15)).inter_latency_s == pytest.approx(2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_transfers_of_different_length_are_uneven() -> None:
    cluster = build_cluster(make_node(), 2)

    assert lay_transfers(cluster, ranks(0, 1), ranks(8, 9)).uniform
    assert not lay_transfers(cluster, ranks(0, 7), ranks(1, 15)).uniform


def test_what_stays_on_its_rank_moves_nothing() -> None:
    flow_set = lay_pairs(build_cluster(make_node(), 1), (3,), (3,))

    assert flow_set.share == 0.0
    assert len(flow_set.route_set.link_ids) == 0
