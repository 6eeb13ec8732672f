from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.engine.traffic import Traffic, usable_bandwidth
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Task, Transfer
from clustersim.topology.build import build_cluster
from clustersim.topology.cluster import TIERS
from tests.unit.engine.factories import (
    IDEAL_NETWORK,
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    overlapped,
    program,
    task,
    transfer,
    work,
)
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_S, SCALE_UP_BYTES_PER_S, SCALE_UP_S, make_node

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")
PASS = compute(work(1.0), collective(TP, 1e9))
REDUCE = communicate(DP, 1e9)


def traffic_of(*tasks: Task, n_nodes: int = 1, n_classes: int = 1) -> tuple[Traffic, Program]:
    of = program(*tasks, n_classes=n_classes, n_ranks=8 * n_nodes)
    traffic = Traffic(cluster=build_cluster(make_node(), n_nodes), calibration=LATENT_NETWORK)
    traffic.register(of)
    return traffic, of


def contended(*tasks: Task, n_nodes: int = 1, n_classes: int = 1) -> frozenset[int]:
    traffic, of = traffic_of(*tasks, n_nodes=n_nodes, n_classes=n_classes)
    return traffic.contended(of, traffic.network())


def test_a_link_carries_the_calibrated_share_of_its_tier() -> None:
    cluster = build_cluster(make_node(), 2)

    usable = usable_bandwidth(cluster, LATENT_NETWORK)

    for link, (nominal, tier) in enumerate(zip(cluster.bandwidth_bytes_per_s, cluster.tier_index, strict=True)):
        assert usable[link] == LATENT_NETWORK.efficiency[TIERS[tier]] * nominal


def test_an_ideal_network_is_as_wide_as_the_data_sheet_says() -> None:
    cluster = build_cluster(make_node(), 2)

    assert usable_bandwidth(cluster, IDEAL_NETWORK).tolist() == cluster.bandwidth_bytes_per_s.tolist()


def test_kinds_are_numbered_as_the_program_names_them() -> None:
    send = transfer((0, 1), size_bytes=1.0)
    traffic, _ = traffic_of(task(REDUCE), task(PASS, 0), task(send, stream="send"))

    kinds: list[Collective | Transfer] = [REDUCE.collective, collective(TP, 5.0), send]
    assert [traffic.kind(each) for each in kinds] == [0, 1, 2]


def test_collectives_of_a_group_are_one_kind_whatever_they_do() -> None:
    traffic, _ = traffic_of(task(communicate(DP, 1.0)), task(communicate(DP, 2.0, "all_gather"), 0))

    assert traffic.kind(collective(DP, 1.0)) == traffic.kind(collective(DP, 2.0, "all_gather")) == 0
    assert traffic.network().cells.flows.shape[1] == 1


def test_a_collective_beside_work_is_registered_too() -> None:
    traffic, _ = traffic_of(task(compute(overlapped(collective(TP, 1.0), 1.0))))

    assert traffic.kind(collective(TP, 1.0)) == 0


def test_what_the_program_does_not_name_has_no_kind() -> None:
    traffic, _ = traffic_of(task(PASS))

    with pytest.raises(KeyError):
        traffic.kind(collective(DP, 1.0))


def test_a_collective_asks_for_its_ring() -> None:
    traffic, _ = traffic_of(task(PASS))

    demand = traffic.demand(collective(TP, 1e6, pieces=2))

    assert demand.bytes_per_flow == pytest.approx(2 * 3 / 4 * 1e6 / 4, rel=1e-12)
    latency_s = 11e-6 + 6 * (1.3e-6 + SCALE_UP_S) + 7e-9 * 5e5**0.5
    assert demand.latency_s == pytest.approx(2 * latency_s, rel=1e-12)


def test_a_transfer_inside_a_node_takes_one_hop() -> None:
    send = transfer((0, 1), (2, 3), size_bytes=5e6)
    traffic, _ = traffic_of(task(send))

    demand = traffic.demand(send)

    assert demand.bytes_per_flow == 5e6
    assert demand.latency_s == pytest.approx(11e-6 + 1.3e-6 + SCALE_UP_S, rel=1e-12)


def test_a_transfer_with_one_pair_between_nodes_waits_for_the_network() -> None:
    send = transfer((0, 1), (7, 15), size_bytes=5e6)
    traffic, _ = traffic_of(task(send), n_nodes=2)

    assert traffic.demand(send).latency_s == pytest.approx(11e-6 + 5e-6 + 2 * NIC_S + 2 * CABLE_S + LEAF_S, rel=1e-12)


def test_all_pairs_of_a_transfer_are_in_flight_at_once() -> None:
    send = transfer((0, 1), (0, 2), (3, 2), size_bytes=1.0)
    traffic, _ = traffic_of(task(send))

    assert traffic.network().rates((0,))[0] == pytest.approx(0.8 * SCALE_UP_BYTES_PER_S / 2, rel=1e-12)


def test_equal_links_of_two_tiers_are_reported_apart() -> None:
    node = replace(make_node(), nic=replace(make_node().nic, bandwidth_bytes_per_s=32e9))
    traffic = Traffic(cluster=build_cluster(instant(node), 2), calibration=IDEAL_NETWORK)
    traffic.register(program(task(transfer((0, 8), size_bytes=1.0)), n_ranks=16))

    cells = traffic.network().cells

    # Up, tx, rx and down, all of 32 GB/s: PCIe and adapters are two cells.
    assert sorted(cells.n_links.tolist()) == [2.0, 2.0]
    assert cells.capacity_bytes_per_s.tolist() == [32e9, 32e9]


def test_a_pass_alone_is_not_contended() -> None:
    assert contended(task(PASS), task(PASS, 0)) == frozenset()


def test_a_pass_meets_a_collective_on_its_links() -> None:
    assert contended(task(PASS), task(REDUCE)) == {0}


def test_a_pass_that_the_collective_waits_for_does_not_meet_it() -> None:
    assert contended(task(PASS), task(REDUCE, 0), task(PASS, 0)) == {2}


def test_a_pass_does_not_meet_traffic_on_other_links() -> None:
    # Between nodes data go over PCIe and adapters, inside over NVLink.
    rails = group_of(*((index, 8 + index) for index in range(8)), name="rails")

    assert contended(task(PASS), task(communicate(rails, 1e9)), n_nodes=2) == frozenset()


def test_a_pass_meets_a_transfer_inside_its_node() -> None:
    assert contended(task(PASS), task(transfer((0, 4), size_bytes=1.0), stream="send")) == {0}


def test_a_pass_without_collectives_meets_nothing() -> None:
    assert contended(task(compute(work(1.0))), task(REDUCE)) == frozenset()


def test_a_pass_meets_a_collective_of_its_own_group() -> None:
    assert contended(task(PASS), task(communicate(TP, 1e9), stream="tp")) == {0}


def test_passes_of_two_classes_meet_on_links_of_both() -> None:
    crossing = group_of((2, 3, 4), name="crossing", dimension="tp")
    one, other = task(PASS), task(compute(collective(crossing, 1e9)), rank_class=1)

    assert contended(one, other, n_classes=2) == {0, 1}


def test_passes_of_two_classes_on_links_of_their_own_do_not_meet() -> None:
    left, right = (group_of(members, name=str(members), dimension="tp") for members in ((0, 1, 2, 3), (4, 5, 6, 7)))
    one, other = task(compute(collective(left, 1e9))), task(compute(collective(right, 1e9)), rank_class=1)

    assert contended(one, other, n_classes=2) == frozenset()


def test_passes_of_two_classes_on_one_group_meet() -> None:
    assert contended(task(PASS), task(PASS, rank_class=1), n_classes=2) == {0, 1}


def test_a_pass_with_two_groups_on_one_link_does_not_meet_itself() -> None:
    crossing = group_of((2, 3, 4), name="crossing", dimension="tp")
    both = compute(collective(TP, 1e9), collective(crossing, 1e9))

    assert contended(task(both), task(both, 0, rank_class=1), n_classes=2) == frozenset()


def test_uneven_groups_and_transfers_are_named() -> None:
    uneven = group_of((0, 1, 2, 8), name="crooked")
    send = transfer((0, 1), (7, 15), size_bytes=1.0, name="F 0->1")
    traffic, _ = traffic_of(task(communicate(uneven, 1.0)), task(PASS), task(send, stream="send"), n_nodes=2)

    assert traffic.uneven() == ("crooked", "transfer F 0->1")


def test_an_even_program_names_none() -> None:
    traffic, _ = traffic_of(task(REDUCE), task(PASS))

    assert traffic.uneven() == ()
