"""Bytes and users of links, and users that met there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.engine.alone import Carried
from clustersim.engine.link_use import link_classes_of, link_use
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.hardware.models import Node
from clustersim.network.rates import State
from clustersim.network.sharing import SharedNetwork
from clustersim.program.tasks import Communicate
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import RouteSet
from clustersim.trace.timeline import LinkUse, Meeting
from tests.unit.engine.factories import (
    LATENT_NETWORK,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    make_machine,
    overlapped,
    task,
    timeline_of,
    traffic_of,
    transfer,
    work,
)
from tests.unit.topology.factories import NIC_BYTES_PER_S, PCIE_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_node

ROUND_OFF = 1e-12
CLUSTER = build_cluster(make_node(), 2)
B = SCALE_UP_BYTES_PER_S
LINKS = {link.name: number for number, link in enumerate(CLUSTER.links)}
UP = [LINKS[f"node0/gpu{rank}/nvlink/up"] for rank in range(4)]
ALL_NAMES = {0: ("a",), 1: ("b",), 2: ("c",)}


def network(*route_sets: dict[int, float], usable: float = 1.0) -> SharedNetwork:
    """Return flow classes on links of the cluster, given the flows on each link."""
    found = SharedNetwork(usable * np.asarray(CLUSTER.bandwidth_bytes_per_s), labels=CLUSTER.tier_index)
    for flows in route_sets:
        links = sorted(flows)
        found.add_class(RouteSet(link_ids=np.array(links), flows=np.array([flows[link] for link in links])))
    return found


def used(of: SharedNetwork, states: dict[State, float], names: dict[int, tuple[str, ...]] | None = None) -> dict[str, LinkUse]:
    carried = Carried(states)
    for state, seconds in states.items():
        carried.add(Carried(bytes={flow_class: count * of.rates(state)[flow_class] * seconds for flow_class, count in state}))
    uses = link_use(CLUSTER, link_classes_of(of), of, carried, ALL_NAMES if names is None else names)
    return {use.name: use for use in uses}


# Link classes


def test_links_that_nothing_tells_apart_are_one_link_class() -> None:
    link_classes = link_classes_of(network({UP[0]: 1.0, UP[1]: 1.0, UP[2]: 2.0}, {UP[2]: 1.0, UP[3]: 1.0}))

    assert link_classes.first_link.tolist() == [UP[0], UP[2], UP[3]]
    assert link_classes.n_links.tolist() == [2, 1, 1]
    assert link_classes.flows.tolist() == [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]]


def test_a_link_that_stands_for_others_counts_as_many() -> None:
    cluster = build_cluster(make_node(), 2)
    rotation = cluster.rotation(2)
    assert rotation is not None
    link_classes = link_classes_of(network({UP[0]: 1.0, UP[1]: 1.0}, {UP[1]: 2.0, LINKS["node0/gpu0/nvlink/down"]: 2.0}), rotation)

    assert rotation.n_rotations == 4
    assert link_classes.first_link.tolist() == sorted([UP[0], UP[1], LINKS["node0/gpu0/nvlink/down"]])
    assert link_classes.n_links.tolist() == [4, 4, 4]


def test_links_of_different_tiers_are_never_one_link_class() -> None:
    nic, pcie = LINKS["node0/nic0/tx"], LINKS["node0/gpu0/pcie/up"]
    found = SharedNetwork(np.full(len(CLUSTER.links), 1.0), labels=CLUSTER.tier_index)
    found.add_class(RouteSet(link_ids=np.array(sorted([nic, pcie])), flows=np.ones(2)))

    assert link_classes_of(found).n_links.tolist() == [1, 1]


def test_link_classes_count_flows_and_not_their_weight() -> None:
    found = network()
    found.add_class(RouteSet(link_ids=np.array([UP[0]]), flows=np.array([3.0])), weight=4.0)

    assert link_classes_of(found).flows.tolist() == [[3.0]]


def test_flow_classes_meet_where_they_share_a_link() -> None:
    found = network({UP[0]: 1.0}, {UP[0]: 2.0, UP[1]: 1.0}, {UP[1]: 1.0}, {UP[3]: 1.0})

    assert found.wiring.meets().astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


def test_without_traffic_there_is_nothing_to_tell() -> None:
    assert used(network(), {}) == {}


# Use


def test_a_link_carries_its_flows_at_their_rate() -> None:
    # One flow on the first link, three on the second, which sets the rate.
    uses = used(network({UP[0]: 1.0, UP[1]: 3.0}), {((0, 1),): 2.0})

    first, second = uses["node0/gpu0/nvlink/up"], uses["node0/gpu1/nvlink/up"]
    assert (first.bytes, second.bytes) == (pytest.approx(2.0 * B / 3, rel=ROUND_OFF), pytest.approx(2.0 * B, rel=ROUND_OFF))
    assert (first.busy_s, second.busy_s) == (2.0, 2.0)
    assert (first.peak_utilisation, second.peak_utilisation) == (pytest.approx(1 / 3, rel=ROUND_OFF), pytest.approx(1.0, rel=ROUND_OFF))
    assert (first.tier, first.n_links, first.bandwidth_bytes_per_s) == ("nvlink", 1, B)


def test_states_add_up_and_the_fullest_is_the_peak() -> None:
    # Alone, the second flow class is held to a third by another link; beside the first the link is full.
    found = network({UP[0]: 1.0}, {UP[0]: 1.0, UP[1]: 3.0})

    use = used(found, {((1, 1),): 3.0, ((0, 1), (1, 1)): 1.0})["node0/gpu0/nvlink/up"]

    assert use.bytes == pytest.approx(3.0 * B / 3 + 1.0 * B, rel=ROUND_OFF)
    assert use.busy_s == pytest.approx(4.0, rel=ROUND_OFF)
    assert use.peak_utilisation == pytest.approx(1.0, rel=ROUND_OFF)


def test_utilisation_is_measured_against_the_data_sheet() -> None:
    use = used(network({UP[0]: 1.0}, usable=0.8), {((0, 1),): 1.0})["node0/gpu0/nvlink/up"]

    assert use.peak_utilisation == pytest.approx(0.8, rel=ROUND_OFF)
    assert use.bandwidth_bytes_per_s == B


def test_a_link_that_nothing_crossed_in_the_end_carried_nothing() -> None:
    use = used(network({UP[0]: 1.0}, {UP[1]: 1.0}), {((0, 1),): 1.0})["node0/gpu1/nvlink/up"]

    assert (use.bytes, use.busy_s, use.peak_utilisation, use.users, use.meetings) == (0.0, 0.0, 0.0, (), ())


# Who


def test_users_stand_in_the_order_in_which_the_program_names_them() -> None:
    found = network({UP[0]: 1.0}, {UP[0]: 2.0}, {UP[1]: 1.0})

    use = used(found, {((1, 1), (2, 1)): 1.0, ((0, 1),): 1.0})["node0/gpu0/nvlink/up"]

    assert use.users == ("a", "b")


def test_one_flow_alone_meets_nobody() -> None:
    assert used(network({UP[0]: 1.0}), {((0, 1),): 5.0})["node0/gpu0/nvlink/up"].meetings == ()


def test_flows_meet_for_as_long_as_both_are_on_the_link() -> None:
    found = network({UP[0]: 1.0, UP[1]: 1.0}, {UP[0]: 2.0}, {UP[1]: 1.0})

    uses = used(found, {((0, 1),): 1.0, ((0, 1), (1, 1)): 2.0, ((0, 1), (1, 1), (2, 1)): 4.0})

    # The third is on the other link.
    assert uses["node0/gpu0/nvlink/up"].meetings == (Meeting(names=("a", "b"), seconds=6.0),)
    assert uses["node0/gpu1/nvlink/up"].meetings == (Meeting(names=("a", "c"), seconds=4.0),)


def test_two_flows_of_one_flow_class_meet_as_well() -> None:
    use = used(network({UP[0]: 1.0}), {((0, 2),): 3.0})["node0/gpu0/nvlink/up"]

    assert use.meetings == (Meeting(names=("a",), seconds=3.0),)


def test_the_longest_meeting_comes_first_and_its_names_in_order() -> None:
    found = network({UP[0]: 1.0}, {UP[0]: 2.0}, {UP[0]: 3.0})
    names = {0: ("z",), 1: ("y",), 2: ("x",)}

    use = used(found, {((0, 1), (1, 1)): 1.0, ((1, 1), (2, 1)): 5.0, ((0, 1), (1, 1), (2, 1)): 2.0}, names)["node0/gpu0/nvlink/up"]

    assert [(meeting.names, meeting.seconds) for meeting in use.meetings] == [(("x", "y"), 5.0), (("x", "y", "z"), 2.0), (("y", "z"), 1.0)]


def test_one_flow_class_is_one_party_however_many_operations_put_it_there() -> None:
    found = network({UP[0]: 1.0}, {UP[0]: 2.0})
    names = {0: ("dp all-gather", "dp reduce-scatter"), 1: ("pp send",)}

    use = used(found, {((0, 1), (1, 1)): 1.0, ((0, 2),): 2.0}, names)["node0/gpu0/nvlink/up"]

    assert use.users == ("dp all-gather", "dp reduce-scatter", "pp send")
    assert use.meetings == (
        Meeting(names=("dp all-gather or dp reduce-scatter",), seconds=2.0),
        Meeting(names=("dp all-gather or dp reduce-scatter", "pp send"), seconds=1.0),
    )


# A whole replay


def adding(node: Node) -> Node:
    node = replace(node, scale_up=replace(node.scale_up, in_network_reduction=True))
    return replace(node, fabric=replace(node.fabric, in_network_reduction=True))


EVERY = [(op, name) for op, rows in ALGORITHMS.items() for name in rows]


@pytest.mark.parametrize(("op", "name", "inside"), [*((*each, False) for each in EVERY), ("all_reduce", "tree", True)])
def test_links_carry_the_bytes_of_every_flow_and_no_more(op: CollectiveOp, name: str, inside: bool) -> None:
    members = (0, 1) if op == "send_recv" else (0, 1, 2, 3) if name == "nvls" else (0, 1, 2, 3, 8, 9, 10, 11)
    moved = replace(collective(group_of(members, name="x", dimension="tp"), 1e9, op), algorithm=name)
    machine = make_machine(adding(make_node()), 2, network=LATENT_NETWORK)

    timeline = timeline_of(machine, task(compute(moved, repeat=3) if inside else Communicate(name="x", collective=moved)))

    traffic = traffic_of(machine)
    expected = np.zeros(len(machine.cluster.links))
    for phases in traffic.phases(moved):
        for coupled_flow in phases:
            route_set = traffic.network.flow_classes[coupled_flow.flow_class].route_set
            expected[route_set.link_ids] += coupled_flow.size_bytes * route_set.flows * (3 if inside else 1)
    numbers = {link.name: number for number, link in enumerate(machine.cluster.links)}
    assert sum(link.n_links for link in timeline.links) == np.count_nonzero(expected)
    for link in timeline.links:
        assert link.bytes == pytest.approx(expected[numbers[link.name]], rel=ROUND_OFF)
    assert sum(link.n_links * link.bytes for link in timeline.links) == pytest.approx(expected.sum(), rel=ROUND_OFF)


def test_bytes_are_the_same_whether_traffic_meets_or_not() -> None:
    machine = make_machine(n_nodes=2, network=LATENT_NETWORK)
    everyone = group_of(tuple(range(16)), name="all")
    tasks = [task(communicate(everyone, 1e9)), task(transfer((0, 8), (1, 9), size_bytes=5e8), stream="send")]

    apart = [timeline_of(machine, each) for each in tasks]
    beside = timeline_of(machine, *tasks)

    totals = [sum(link.n_links * link.bytes for link in timeline.links) for timeline in (*apart, beside)]
    assert totals[2] == pytest.approx(totals[0] + totals[1], rel=ROUND_OFF)
    assert any(link.meetings for link in beside.links)


def test_links_say_who_met_on_them_and_for_how_long() -> None:
    machine = make_machine(instant(make_node()), 2)
    rails = group_of(*((rank, 8 + rank) for rank in range(8)), name="rails")
    reduce, send = communicate(rails, NIC_BYTES_PER_S), transfer((0, 8), size_bytes=NIC_BYTES_PER_S / 4)

    timeline = timeline_of(machine, task(reduce), task(send, stream="send"))

    adapters = {link.name: link for link in timeline.links if link.tier == "nic"}
    shared, free = adapters["node0/nic0/tx"], [link for name, link in adapters.items() if name != "node0/nic0/tx"]
    # Half of the adapter each, until the quarter of a second that the send needs has become half of one.
    assert shared.users == ("dp all-reduce", "pp send")
    (meeting,) = shared.meetings
    assert (meeting.names, meeting.seconds) == (("dp all-reduce", "pp send"), pytest.approx(0.5, rel=ROUND_OFF))
    assert all(link.meetings == () and link.users == ("dp all-reduce",) for link in free)
    assert timeline.step_time_s == pytest.approx(1.25, rel=ROUND_OFF)


def test_two_calls_on_one_group_at_once_meet_under_one_name() -> None:
    reduce = communicate(group_of((0, 1)), B)

    (link,) = timeline_of(make_machine(), task(reduce, stream="one"), task(reduce, stream="other")).links

    (meeting,) = link.meetings
    assert (meeting.names, meeting.seconds) == (("dp all-reduce",), pytest.approx(2.0, rel=ROUND_OFF))


def test_a_pass_that_meets_a_send_says_so_on_the_link() -> None:
    tp = group_of((0, 1), name="tp", dimension="tp")
    action = compute(work(0.5), overlapped(collective(tp, B), 0.1))

    timeline = timeline_of(make_machine(), task(action), task(transfer((0, 1), size_bytes=B / 2), stream="send"))

    (link,) = [link for link in timeline.links if link.name == "node0/gpu0/nvlink/up"]
    # The send has the link to itself for the half second that it takes: no meeting; then the pass begins its collective.
    assert (link.users, link.meetings) == (("tp all-reduce", "pp send"), ())
    assert timeline.step_time_s == pytest.approx(1.5, rel=ROUND_OFF)


def test_links_of_a_tier_keep_their_bandwidth() -> None:
    timeline = timeline_of(make_machine(n_nodes=2), task(transfer((0, 8), size_bytes=1e9)))

    assert {link.tier: link.bandwidth_bytes_per_s for link in timeline.links} == {"pcie": PCIE_BYTES_PER_S, "nic": NIC_BYTES_PER_S}
