"""Traffic of a call of the library, and its refusals."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.library import OFFERED, SERVED, CollectiveCall, Library, usable_shares
from clustersim.collectives.timing import Operation
from clustersim.errors import DomainError
from clustersim.hardware.library_costs import PROTOCOLS, CollectiveOp, Servers
from clustersim.hardware.models import Node
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from tests.unit.engine.factories import LATENT_NETWORK, families
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_BYTES_PER_S, NIC_S, SCALE_UP_S, make_node, make_servers

ROUND_OFF = 1e-12
EIGHT = (tuple(range(8)),)
SIZE = 1e9


def adding(node: Node) -> Node:
    """Return the same node with a switch that adds, of a generation that the library lets it add on."""
    accelerator = replace(node.accelerator, generation="hopper")
    return replace(node, accelerator=accelerator, scale_up=replace(node.scale_up, in_network_reduction=True))


def library(node: Node | None = None, n_nodes: int = 1, *, n_servers: int = 0) -> Library:
    servers = make_servers(n_servers) if n_servers else None
    return Library(cluster=build_cluster(node or make_node(), n_nodes, servers=servers), calibration=LATENT_NETWORK)


def call(op: CollectiveOp = "all_reduce", algorithm: str = "auto", *, size_bytes: float = SIZE, group: str = "all") -> CollectiveCall:
    return CollectiveCall(op=op, group=group, size_bytes=size_bytes, algorithm=algorithm)


def link_names(of: Library, operation: Operation) -> set[str]:
    found = {int(link) for phase in operation.phases for leg in phase for link in leg.route_set.link_ids}
    return {of.cluster.links[link].name for link in found}


def test_a_link_carries_the_calibrated_share_of_its_tier() -> None:
    cluster = build_cluster(make_node(), 2)

    usable = np.asarray(usable_shares(cluster, LATENT_NETWORK))

    shares = [LATENT_NETWORK.efficiency[TIERS[tier]] for tier in cluster.tier_index]
    assert usable.tolist() == shares
    found = np.asarray(library(n_nodes=2).bandwidth_bytes_per_s)
    assert found.tolist() == (np.asarray(cluster.bandwidth_bytes_per_s) * usable).tolist()


# Which algorithm


@pytest.mark.parametrize(("size_bytes", "way"), [(1e3, ("ring", "ll")), (1e9, ("nvls", "simple"))])
def test_auto_says_what_it_has_chosen(size_bytes: float, way: tuple[str, str]) -> None:
    every = replace(LATENT_NETWORK, protocols=PROTOCOLS)
    machine = Library(cluster=build_cluster(adding(make_node()), 1), calibration=every)

    done = machine.operation(call(size_bytes=size_bytes), EIGHT)

    assert (done.algorithm, done.protocol) == way


def test_groups_beside_it_change_neither_what_a_group_chooses_nor_how_it_starts() -> None:
    every = replace(LATENT_NETWORK, protocols=PROTOCOLS, families=families(11e-6, 7e-9))
    machine = Library(cluster=build_cluster(make_node(n_nics=2), 2), calibration=every)
    rails = tuple((rank, 8 + rank) for rank in range(8))

    for size_bytes in (1e3, 1e6, 1e9):
        alone, beside = (machine.operation(call(size_bytes=size_bytes, group=str(len(members))), members) for members in (rails[:1], rails))
        assert (alone.algorithm, alone.protocol) == (beside.algorithm, beside.protocol)
        ((one,),), ((all_of_them,),) = alone.phases, beside.phases
        assert (one.latency_s, one.bytes_per_flow) == (all_of_them.latency_s, all_of_them.bytes_per_flow)
        # Four of them share each adapter.
        assert all_of_them.route_set.flows.max() == 4 * one.route_set.flows.max()


@pytest.mark.parametrize("slow", [("node0/nic0", "*"), ("node2/nic1", "*"), ("leaf0", "*")])
def test_what_is_slower_than_it_was_built_changes_nothing_about_the_choice(slow: tuple[str, str]) -> None:
    every = replace(LATENT_NETWORK, protocols=PROTOCOLS)
    as_built, worn = (
        build_cluster(make_node(n_nics=2), 4, changes=changes) for changes in ((), (LinkChange(between=slow, fraction=0.01),))
    )
    rails = tuple(tuple(8 * node + rank for node in range(4)) for rank in range(8))

    for size_bytes in (1e4, 1e6, 1e8):
        for group in rails:
            asked = call(size_bytes=size_bytes, group=str(group))
            new, old = (Library(cluster=cluster, calibration=every).operation(asked, (group,)) for cluster in (as_built, worn))
            assert (new.algorithm, new.protocol) == (old.algorithm, old.protocol)


@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op, rows in ALGORITHMS.items() for name in rows if name not in ("sharp", "nvls_tree")]
)
def test_an_algorithm_that_is_asked_for_is_taken(op: CollectiveOp, name: str) -> None:
    members = ((0, 5),) if op == "send_recv" else EIGHT

    done = library(adding(make_node())).operation(call(op, name), members)

    assert done.algorithm == name
    assert done.phases


def test_what_auto_chooses_takes_what_the_same_algorithm_takes_when_asked_for() -> None:
    chosen = library(n_nodes=2)
    auto = chosen.operation(call(), (tuple(range(16)),))

    asked = chosen.operation(call(algorithm=auto.algorithm), (tuple(range(16)),))

    assert auto.algorithm != "none"
    for phase, same in zip(auto.phases, asked.phases, strict=True):
        for leg, other in zip(phase, same, strict=True):
            assert (leg.bytes_per_flow, leg.latency_s, leg.cap_bytes_per_s) == (
                other.bytes_per_flow,
                other.latency_s,
                other.cap_bytes_per_s,
            )
            assert leg.route_set.flows.tolist() == other.route_set.flows.tolist()


def test_auto_offers_only_what_there_is() -> None:
    assert set(OFFERED) == set(ALGORITHMS)
    for op, names in OFFERED.items():
        assert set(names) <= set(ALGORITHMS[op])


@pytest.mark.parametrize("op", list(ALGORITHMS))
def test_auto_finds_a_way_for_groups_of_any_shape(op: CollectiveOp) -> None:
    machine = library(adding(make_node()), 3)
    shapes = [(0, 1), (0, 8), (0, 1, 8), (0, 9, 18), (0, 1, 2, 8, 9, 16), tuple(range(24))]

    for members in shapes[: 2 if op == "send_recv" else None]:
        for size_bytes in (1.0, 1e9):
            assert machine.operation(call(op, size_bytes=size_bytes, group=str(members)), (members,)).phases


@pytest.mark.parametrize("op", list(ALGORITHMS))
def test_an_unknown_algorithm_is_refused_with_those_there_are(op: CollectiveOp) -> None:
    with pytest.raises(DomainError) as caught:
        library().operation(call(op, "carrier_pigeon"), EIGHT)

    assert caught.value.message == f"'carrier_pigeon' is not an algorithm of {op}"
    assert caught.value.hint == f"use auto, {', '.join(ALGORITHMS[op])}"


@pytest.mark.parametrize(
    ("algorithm", "n_nodes", "message"),
    [
        ("nvls", 1, "nvls needs a switch that adds"),
        ("nvls_tree", 2, "needs a switch that adds"),
        ("sharp", 2, "sharp needs switches that add"),
    ],
)
def test_what_the_switches_cannot_do_is_refused_when_asked_for_and_passed_over_otherwise(
    algorithm: str, n_nodes: int, message: str
) -> None:
    machine, members = library(n_nodes=n_nodes), (tuple(range(8 * n_nodes)),)

    with pytest.raises(DomainError, match=message):
        machine.operation(call(algorithm=algorithm), members)

    assert machine.operation(call(), members).algorithm in ("ring", "tree")


# What it takes


@pytest.mark.parametrize("op", list(ALGORITHMS))
def test_a_rank_alone_has_nothing_to_do(op: CollectiveOp) -> None:
    done = library().operation(call(op), ((3,), (4,)))

    assert (done.algorithm, done.protocol, done.phases) == ("none", "none", ())


@pytest.mark.parametrize("changed", [call(size_bytes=2e9), call("all_gather"), call(algorithm="tree"), replace(call(), pieces=2)])
def test_another_size_operation_algorithm_or_number_of_pieces_is_another(changed: CollectiveCall) -> None:
    machine = library()

    assert machine.operation(call(), EIGHT) is not machine.operation(changed, EIGHT)


def test_a_pattern_is_laid_once_for_all_sizes() -> None:
    machine = library()

    (((small,),), ((large,),)) = (machine.operation(call(size_bytes=size), EIGHT).phases for size in (1.0, 1e9))

    assert small.route_set is large.route_set
    assert large.bytes_per_flow == pytest.approx(1e9 * small.bytes_per_flow, rel=ROUND_OFF)


def test_members_may_come_in_any_order() -> None:
    there, back = (library().operation(call(), (members,)) for members in ((0, 1, 2, 3), (3, 1, 0, 2)))

    assert [leg.route_set.link_ids.tolist() for (leg,) in there.phases] == [leg.route_set.link_ids.tolist() for (leg,) in back.phases]


def test_neighbours_over_pcie_make_a_ring_of_pcie() -> None:
    slow = replace(LATENT_NETWORK, ceilings=replace(LATENT_NETWORK.ceilings, peer=0.01))
    capped = [
        Library(cluster=build_cluster(make_node(kind), 1), calibration=slow)
        .operation(call(algorithm="ring"), EIGHT)
        .phases[0][0]
        .cap_bytes_per_s
        for kind in ("nvswitch", "pcie")
    ]

    assert capped[0] == float("inf")
    assert capped[1] < 1e9


@pytest.mark.parametrize(("n_ranks", "held"), [(2, True), (3, False)])
def test_only_two_ranks_alone_are_held_to_the_ceiling_of_a_pair(n_ranks: int, held: bool) -> None:
    slow = replace(LATENT_NETWORK, ceilings=replace(LATENT_NETWORK.ceilings, pair=0.01))
    machine = Library(cluster=build_cluster(make_node(), 1), calibration=slow)

    ((leg,),) = machine.operation(call(algorithm="ring"), (tuple(range(n_ranks)),)).phases

    assert (leg.cap_bytes_per_s < float("inf")) is held


@pytest.mark.parametrize(
    ("op", "n_ranks", "held"), [("all_to_all", 8, True), ("gather", 8, True), ("all_to_all", 2, False), ("broadcast", 8, False)]
)
def test_only_who_sends_to_many_is_held_to_the_ceiling_of_an_exchange(op: CollectiveOp, n_ranks: int, held: bool) -> None:
    slow = replace(LATENT_NETWORK, ceilings=replace(LATENT_NETWORK.ceilings, exchange=0.01))
    machine = Library(cluster=build_cluster(make_node(), 1), calibration=slow)

    phases = machine.operation(call(op), (tuple(range(n_ranks)),)).phases

    assert [leg.cap_bytes_per_s < float("inf") for phase in phases for leg in phase] == [held] * sum(map(len, phases))


# Sends


def test_sends_inside_a_node_take_one_hop() -> None:
    done = library().transfer("inside", ((0, 1), (2, 3)), size_bytes=5e6)

    ((leg,),) = done.phases
    assert (done.algorithm, done.protocol, leg.bytes_per_flow) == ("direct", "simple", 5e6)
    assert leg.latency_s == pytest.approx(14e-6 + max(1.3e-6, SCALE_UP_S), rel=ROUND_OFF)


def test_sends_with_one_pair_between_nodes_wait_for_the_network() -> None:
    machine = library(n_nodes=2)

    ((leg,),) = machine.transfer("across", ((7, 15), (0, 1)), size_bytes=1e6).phases

    wire_s = 2 * NIC_S + 2 * CABLE_S + LEAF_S
    # Chunks wait for one credit each, along the wires.
    ramp_s = 2 * sqrt(1e6 / (0.9 * NIC_BYTES_PER_S) * wire_s)
    assert leg.latency_s == pytest.approx(14e-6 + 5e-6 + wire_s + ramp_s, rel=ROUND_OFF)


def test_sends_of_one_name_are_laid_once() -> None:
    machine = library()

    first, again = (machine.transfer("twice", ((0, 1),), size_bytes=size) for size in (1.0, 2.0))

    assert first.phases[0][0].route_set is again.phases[0][0].route_set


def test_a_send_that_hosts_wait_for_takes_their_time_longer() -> None:
    machine = replace(library(), waited_send_s=3e-4)

    alone, waited = (machine.transfer("waited", ((0, 1),), size_bytes=1e6, waits_per_transfer=waits).phases[0][0] for waits in (0.0, 0.5))

    assert waited.latency_s == pytest.approx(alone.latency_s + 1.5e-4)
    assert waited.bytes_per_flow == alone.bytes_per_flow


# Parameter servers


@pytest.mark.parametrize("op", [op for op in SERVED if op != "update"])
def test_workers_push_to_servers_and_pull_from_them(op: CollectiveOp) -> None:
    machine = library(n_nodes=2, n_servers=2)
    servers = Servers(hosts=(2, 3))

    done = machine.operation(replace(call(op), servers=servers), (tuple(range(16)),))

    names = link_names(machine, done)
    assert (done.algorithm, done.protocol) == ("parameter_server", "simple")
    assert len(done.phases) == (2 if op == "all_reduce" else 1)
    assert {"server0/nic0/rx" in names, "server1/nic0/rx" in names} == {op != "pull"}
    assert ("server0/nic0/tx" in names) is (op != "push")
    assert {"server0/memory", "server1/memory"} <= names


def test_every_server_gets_the_bytes_of_its_share() -> None:
    machine = library(n_nodes=2, n_servers=2)
    servers = Servers(hosts=(2, 3))

    (phase,) = machine.operation(replace(call("push"), servers=servers), (tuple(range(16)),)).phases

    arrived = np.zeros(len(machine.bandwidth_bytes_per_s))
    for leg in phase:
        arrived[leg.route_set.link_ids] += leg.route_set.flows * leg.bytes_per_flow
    by_name = {machine.cluster.links[link].name: arrived[link] for link in np.flatnonzero(arrived).tolist()}
    assert by_name["server0/nic0/rx"] == pytest.approx(16 * 0.5 * SIZE, rel=ROUND_OFF)
    assert by_name["server1/nic0/rx"] == pytest.approx(16 * 0.5 * SIZE, rel=ROUND_OFF)


def test_a_worker_alone_has_servers_to_talk_to() -> None:
    machine = library(n_nodes=1, n_servers=1)

    assert machine.operation(replace(call("push"), servers=Servers(hosts=(1,))), ((0,),)).phases


def test_servers_do_not_gather() -> None:
    machine = library(n_nodes=1, n_servers=1)

    with pytest.raises(DomainError) as caught:
        machine.operation(replace(call("all_gather"), servers=Servers(hosts=(1,))), EIGHT)

    assert caught.value.message == "parameter servers do not serve all_gather"
    assert caught.value.hint == "they serve push, pull, update, all_reduce"


@pytest.mark.parametrize("op", ["push", "pull"])
def test_without_servers_there_is_nobody_to_push_to_or_pull_from(op: CollectiveOp) -> None:
    with pytest.raises(DomainError) as caught:
        library().operation(call(op), EIGHT)

    assert caught.value.hint == "name servers"
