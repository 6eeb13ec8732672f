"""Traffic of collectives and transfers of a program, and passes that can meet other traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine.link_use import link_classes_of
from clustersim.engine.program_graph import Graph
from clustersim.engine.traffic import Traffic, label, moved_by
from clustersim.network.in_flight import TICK_S
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Task, Transfer
from clustersim.topology.link_demand import RouteSet
from clustersim.trace.timeline import CollectiveChoice
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    make_machine,
    overlapped,
    program,
    task,
    traffic_of,
    transfer,
    work,
)
from tests.unit.topology.factories import SCALE_UP_BYTES_PER_S, make_node

TP = group_of((0, 1, 2, 3), (4, 5, 6, 7), name="tp", dimension="tp")
DP = group_of((0, 4), (1, 5), (2, 6), (3, 7), name="dp")
PASS = compute(work(1.0), collective(TP, 1e9))
REDUCE = communicate(DP, 1e9)


def registered(*tasks: Task, n_nodes: int = 1, n_classes: int = 1) -> tuple[Traffic, Program]:
    of = program(*tasks, n_classes=n_classes, n_ranks=8 * n_nodes)
    traffic = traffic_of(make_machine(make_node(), n_nodes, network=LATENT_NETWORK))
    traffic.register(of)
    return traffic, of


def contended(*tasks: Task, n_nodes: int = 1, n_classes: int = 1) -> frozenset[int]:
    traffic, of = registered(*tasks, n_nodes=n_nodes, n_classes=n_classes)
    return traffic.contention(Graph(of), traffic.network.wiring.meets()).passes()


def test_flow_classes_are_numbered_as_the_program_names_them() -> None:
    send = transfer((0, 1), size_bytes=1.0)
    traffic, _ = registered(task(REDUCE), task(PASS, 0), task(send, stream="send"))

    flow_classes: list[Collective | Transfer] = [REDUCE.collective, collective(TP, 5.0), send]
    assert [traffic.flow_classes(each) for each in flow_classes] == [(0,), (1,), (2,)]
    assert traffic.all_classes() == (0, 1, 2)


def test_rings_of_a_group_are_one_flow_class_whatever_they_do() -> None:
    traffic, _ = registered(task(communicate(DP, 1.0)), task(communicate(DP, 2.0, "all_gather"), 0))

    assert traffic.flow_classes(collective(DP, 1.0)) == traffic.flow_classes(collective(DP, 2.0, "all_gather")) == (0,)
    assert len(traffic.network.flow_classes) == 1


def test_two_algorithms_of_a_group_are_two_flow_classes() -> None:
    tree = replace(collective(DP, 1.0), algorithm="tree")
    traffic, _ = registered(task(communicate(DP, 1.0)))

    assert traffic.flow_classes(tree) != traffic.flow_classes(collective(DP, 1.0))


def test_a_collective_beside_work_is_registered_too() -> None:
    traffic, _ = registered(task(compute(overlapped(collective(TP, 1.0), 1.0))))

    assert traffic.all_classes() == traffic.flow_classes(collective(TP, 1.0)) == (0,)


def test_a_collective_asks_for_its_ring() -> None:
    traffic, _ = registered(task(PASS))

    ((coupled_flow,),) = traffic.phases(collective(TP, 1e6, pieces=2))

    # Two calls of six hops each; of four rings in each group one edge crosses a link.
    assert coupled_flow.size_bytes == pytest.approx(2 * 3 / 4 * 1e6 / 4, rel=1e-12)
    assert coupled_flow.latency_s == pytest.approx(2 * (11e-6 + 3e-6 + 6 * 1.3e-6), abs=1 * TICK_S)


def test_an_operation_in_phases_flies_in_phases() -> None:
    everyone = group_of(tuple(range(16)), name="all")
    two_level = replace(collective(everyone, 1e6), algorithm="hierarchical")
    traffic, _ = registered(n_nodes=2)

    phases = traffic.phases(two_level)

    # What collects in the nodes and what hands out load the links alike.
    assert [[coupled_flow.flow_class for coupled_flow in phase] for phase in phases] == [[0], [1], [0]]
    assert traffic.flow_classes(two_level) == (0, 1)


def test_equal_collectives_fly_alike() -> None:
    traffic, _ = registered(task(PASS))

    assert traffic.phases(collective(TP, 1e9)) is traffic.phases(collective(TP, 1e9))


def test_a_group_of_one_puts_nothing_on_the_network() -> None:
    alone = group_of((0,), (1,), name="alone")
    traffic, _ = registered(task(communicate(alone, 1e9)))

    assert traffic.phases(collective(alone, 1e9)) == ()
    assert len(traffic.network.flow_classes) == 0


def test_all_pairs_of_a_transfer_are_in_flight_at_once() -> None:
    send = transfer((0, 1), (0, 2), (3, 2), size_bytes=1.0)
    traffic, _ = registered(task(send))

    assert traffic.network.idle_rate(0) == pytest.approx(0.8 * SCALE_UP_BYTES_PER_S / 2, rel=1e-12)


def test_equal_links_of_two_tiers_are_reported_apart() -> None:
    node = replace(make_node(), nic=replace(make_node().nic, bandwidth_bytes_per_s=32e9))
    traffic = traffic_of(make_machine(instant(node), 2))
    traffic.register(program(task(transfer((0, 8), size_bytes=1.0)), n_ranks=16))

    link_classes = link_classes_of(traffic.network)

    # Up, tx, rx and down, all of 32 GB/s: PCIe and adapters are two link classes.
    assert sorted(link_classes.n_links.tolist()) == [2, 2]


# Names


def test_what_moves_is_called_by_dimension_and_operation() -> None:
    assert label(collective(TP, 1.0, "reduce_scatter")) == "tp reduce-scatter"
    assert label(transfer((0, 1), size_bytes=1.0, name="F 0->1")) == "pp F 0->1"


def test_a_flow_class_bears_the_names_of_all_that_puts_it_on_the_links() -> None:
    send = transfer((0, 1), size_bytes=1.0)
    traffic, _ = registered(task(REDUCE), task(communicate(DP, 2.0, "all_gather"), 0), task(send, stream="send"))

    assert traffic.labels() == {0: ("dp all-reduce", "dp all-gather"), 1: ("pp send",)}


def test_what_moves_in_an_action_comes_in_order() -> None:
    first, second, third = collective(TP, 1.0), collective(DP, 2.0), collective(TP, 3.0)
    send = transfer((0, 1), size_bytes=1.0)

    assert moved_by(compute(first, work(1.0), overlapped(second, 1.0), third)) == (first, second, third)
    assert moved_by(REDUCE) == (REDUCE.collective,)
    assert moved_by(send) == (send,)


def test_a_choice_says_who_did_what_and_how() -> None:
    send = transfer((0, 1), size_bytes=5.0)
    traffic, _ = registered(task(compute(collective(TP, 1e9, "all_gather"))), task(communicate(DP, 2e9)), task(send, stream="send"))

    assert traffic.choices() == (
        CollectiveChoice(dimension="tp", op="all_gather", ranks=4, bytes=1e9, algorithm="ring", protocol="simple"),
        CollectiveChoice(dimension="dp", op="all_reduce", ranks=2, bytes=2e9, algorithm="ring", protocol="simple"),
        CollectiveChoice(dimension="pp", op="send", ranks=2, bytes=5.0, algorithm="direct", protocol="simple"),
    )


def test_a_choice_has_the_bytes_of_one_call() -> None:
    buckets = replace(REDUCE, collective=replace(REDUCE.collective, pieces=4))

    traffic, _ = registered(task(buckets))

    assert [choice.bytes for choice in traffic.choices()] == [2.5e8]


def test_each_way_of_doing_something_is_listed_once() -> None:
    traffic, _ = registered(task(communicate(DP, 2e9)), task(communicate(DP, 2e9), 0), task(communicate(DP, 1e9), 1))

    assert [choice.bytes for choice in traffic.choices()] == [2e9, 1e9]


def test_what_a_rank_does_alone_is_no_choice() -> None:
    traffic, _ = registered(task(communicate(group_of((0,), (1,), name="alone"), 1e9)))

    assert traffic.choices() == ()


# Who meets whom


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
    traffic, _ = registered(
        task(send, stream="send"), task(communicate(uneven, 1.0)), task(PASS), task(communicate(uneven, 2.0), 1), n_nodes=2
    )

    assert traffic.uneven() == ("crooked", "transfer F 0->1")


def test_an_even_program_names_none() -> None:
    traffic, _ = registered(task(REDUCE), task(PASS))

    assert traffic.uneven() == ()


def test_a_pass_meets_what_others_put_on_its_links_at_any_time() -> None:
    traffic, of = registered(task(PASS), task(compute(work(1.0)), 0), task(PASS, 1))
    nvlink, elsewhere = (traffic.network.add_class(RouteSet(link_ids=np.array([link]), flows=np.ones(1))) for link in (0, 30))
    common = traffic.network.wiring.meets()

    assert traffic.contention(Graph(of), common, [nvlink]).passes() == {0, 2}
    assert traffic.contention(Graph(of), common, [elsewhere]).passes() == frozenset()
