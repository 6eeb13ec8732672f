"""Collectives of groups over several kinds of nodes, and of groups on one kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.group_layout import cycle_arcs
from clustersim.collectives.library import CollectiveCall, Library, usable_shares
from clustersim.collectives.nvls import lay_nvls
from clustersim.collectives.pattern import grouping
from clustersim.collectives.ring import RINGS
from clustersim.collectives.sharp import lay_sharp
from clustersim.errors import DomainError
from clustersim.hardware.calibrations import calibration_of, calibration_of_generation, slowest
from clustersim.hardware.catalog import load_node
from clustersim.hardware.library_costs import Servers
from clustersim.hardware.models import Node
from clustersim.topology.cluster import IntArray, LinkFloats
from clustersim.topology.cluster_wiring import build_mixed_cluster
from clustersim.topology.wired import Cluster
from tests.unit.engine.factories import IDEAL_NETWORK, LATENT_NETWORK
from tests.unit.topology.factories import make_fabric, make_node, make_servers

SPINES = make_fabric("leaf_spine", nodes_per_leaf=2)
FAST, SLOW = replace(IDEAL_NETWORK, protocols=("simple",)), LATENT_NETWORK
ON_FIRST, ON_SECOND, ON_BOTH = [list(range(8))], [list(range(8, 16))], [list(range(16))]


def both(first: Node | None = None, second: Node | None = None) -> Cluster:
    return build_mixed_cluster(((first or make_node(), 1), (second or make_node("cube_mesh"), 1)), SPINES)


def library(cluster: Cluster) -> Library:
    return Library(cluster=cluster, calibration=replace(slowest([FAST, SLOW]), of_kinds=(FAST, SLOW)))


def named(cluster: Cluster, bandwidth_bytes_per_s: LinkFloats) -> dict[str, float]:
    return {cluster.link_name(link): float(width) for link, width in enumerate(np.asarray(bandwidth_bytes_per_s))}


def test_a_link_has_the_usable_share_of_its_own_kind_and_the_fabric_the_least() -> None:
    cluster = both()
    usable = named(cluster, usable_shares(cluster, library(cluster).calibration))

    assert (usable["node0/nic0/tx"], usable["node1/nic0/tx"]) == pytest.approx((1.0, SLOW.efficiency["nic"]), rel=1e-12)
    assert (usable["node0/memory"], usable["node1/memory"]) == pytest.approx((1.0, SLOW.efficiency["memory"]), rel=1e-12)


def test_the_fabric_between_kinds_has_the_least_share() -> None:
    cluster = build_mixed_cluster(((make_node(), 2), (make_node(), 2)), SPINES)
    usable = named(cluster, usable_shares(cluster, library(cluster).calibration))

    assert usable["leaf0/up"] == pytest.approx(SLOW.efficiency["leaf"], rel=1e-12)


@pytest.mark.parametrize(
    ("members", "start_s", "hop_s"),
    [(ON_FIRST, 0.0, 0.0), (ON_SECOND, 14e-6, 1.3e-6), (ON_BOTH, 11e-6, 0.0)],
    ids=["on the first kind", "on the second", "on both"],
)
def test_a_group_starts_by_the_constants_of_the_kinds_that_it_spans(members: list[list[int]], start_s: float, hop_s: float) -> None:
    """A group over both kinds takes the slower start, and what the library itself counts, which no kind changes, from the first."""
    machine = library(both())
    way = RINGS["all_gather"].lay(machine.cluster, grouping(machine.cluster, np.array(members))).phases[0][0]

    operation = machine.operation(CollectiveCall(op="all_gather", group="some", size_bytes=0.0, algorithm="ring"), members)

    wires_s = way.intra_steps * max(hop_s, way.intra_latency_s) + way.inter_steps * way.inter_latency_s
    assert operation.phases[0][0].latency_s == pytest.approx(start_s + wires_s, rel=1e-12)


def test_a_send_between_kinds_starts_by_the_slower() -> None:
    machine = library(both())
    latencies = {
        name: machine.transfer(name, pairs, size_bytes=0.0).phases[0][0].latency_s
        for name, pairs in (("first", ((0, 1),)), ("second", ((8, 9),)), ("over", ((0, 8),)))
    }

    assert latencies["first"] == pytest.approx(0.5e-6, rel=1e-9)
    assert latencies["second"] > 14e-6
    assert latencies["over"] > 11e-6


@pytest.mark.parametrize(
    ("members", "oldest"), [(ON_FIRST, "hopper"), (ON_SECOND, "ampere"), (ON_BOTH, "ampere")], ids=["hopper", "ampere", "both"]
)
def test_the_oldest_generation_of_a_group_decides(members: list[list[int]], oldest: str) -> None:
    kinds = load_node("dgx-h100"), load_node("dgx-a100-80g")
    machine = Library(cluster=build_mixed_cluster(tuple((node, 1) for node in kinds)), calibration=calibration_of(kinds).network)

    found = machine._facts_of(CollectiveCall(op="all_reduce", group="some", size_bytes=1.0), grouping(machine.cluster, np.array(members)))

    assert found.limits == calibration_of_generation(oldest).network.library


def test_switches_add_for_groups_that_stay_where_they_can() -> None:
    h100, a100 = load_node("dgx-h100"), load_node("dgx-a100-80g")
    cluster = build_mixed_cluster(((h100, 1), (a100, 1)))
    machine = Library(cluster=cluster, calibration=calibration_of([h100, a100]).network)

    chosen = [
        machine.operation(CollectiveCall(op="all_reduce", group=name, size_bytes=1e9), members).algorithm
        for name, members in (("first", ON_FIRST), ("second", ON_SECOND), ("both", ON_BOTH))
    ]

    assert chosen[0] == "nvls"
    assert not {"nvls", "nvls_tree"} & set(chosen[1:])
    with pytest.raises(DomainError, match="nvls needs a switch that adds: dgx-a100-80g has none"):
        lay_nvls("all_reduce", cluster, grouping(cluster, np.array(ON_SECOND)))


def test_what_only_the_first_group_can_run_is_not_chosen_for_all() -> None:
    adding, plain = make_node(), replace(make_node(), name="plain")
    adding = replace(adding, scale_up=replace(adding.scale_up, in_network_reduction=True))
    machine = Library(cluster=both(adding, plain), calibration=LATENT_NETWORK)

    alone, beside = (
        machine.operation(CollectiveCall(op="all_reduce", group=name, size_bytes=1e9), members).algorithm
        for name, members in (("alone", ON_FIRST), ("beside", [*ON_FIRST, *ON_SECOND]))
    )

    assert (alone, beside) == ("nvls", "ring")


def test_in_the_switches_of_the_fabric_kinds_without_one_that_adds_send_their_shares_round() -> None:
    adding = make_node()
    adding = replace(adding, scale_up=replace(adding.scale_up, in_network_reduction=True))
    fabric = replace(SPINES, in_network_reduction=True)

    def route_set(first: Node, second: Node) -> tuple[IntArray, int]:
        cluster = build_mixed_cluster(((first, 1), (second, 1)), fabric)
        flow_set = lay_sharp(cluster, grouping(cluster, np.array(ON_BOTH))).phases[0][0]
        return flow_set.route_set.link_ids, flow_set.intra_steps

    assert route_set(adding, adding)[1] == 2
    assert route_set(adding, make_node())[1] == 14


def test_in_a_mesh_rings_follow_its_links_and_behind_a_switch_the_order_of_the_ranks() -> None:
    cluster = both()

    arcs = cycle_arcs(cluster, np.arange(16, dtype=np.int64).reshape(2, 8))

    assert [each.rows.tolist() for each in arcs] == [[0], [1]]
    assert arcs[0].heads.tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    direct = {(int(a), int(b)) for a, b in zip(arcs[1].tails, arcs[1].heads, strict=True)}
    assert direct
    assert all(len(cluster.routes(np.array([8 + a]), np.array([8 + b])).link_ids) == 1 for a, b in direct)


def test_parameters_are_pulled_over_the_adapters_of_any_kind() -> None:
    cluster = build_mixed_cluster(((make_node(), 1), (make_node(n_accelerators=4, n_nics=2), 1)), SPINES, servers=make_servers(1))
    machine = Library(cluster=cluster, calibration=IDEAL_NETWORK)
    call = CollectiveCall(op="pull", group="all", size_bytes=1e9, servers=Servers(hosts=(0, 2)))
    operation = machine.operation(call, [list(range(12))])

    flow_sets = [leg for phase in operation.phases for leg in phase]
    crossed = {cluster.link_name(int(link)) for leg in flow_sets for link in leg.route_set.link_ids}
    assert {"node1/nic0/rx", "node1/nic1/rx", "server0/nic0/tx", "node0/nic0/tx"} <= crossed
