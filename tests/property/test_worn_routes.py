"""Clusters with links that are down or slow, against a graph of what is left."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import networkx as nx
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from clustersim.errors import DomainError
from clustersim.hardware.models import Fabric, Node, ScaleUpKind
from clustersim.topology import FABRICS
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.names import LinkChange
from clustersim.topology.wired import Cluster
from tests.unit.topology.factories import accelerator_name, all_pairs, fitted, make_fabric, make_node


@dataclass(frozen=True, kw_only=True)
class Plan:
    node: Node
    n_nodes: int
    fabric: Fabric

    def built(self, *changes: LinkChange) -> Cluster:
        return build_cluster(self.node, self.n_nodes, self.fabric, changes=changes)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kind: ScaleUpKind = draw(st.sampled_from(["nvswitch", "cube_mesh", "bridge_pairs"]))
    node = make_node(
        kind,
        n_accelerators=draw(st.integers(1, 4)),
        n_nics=draw(st.integers(1, 3)),
        accelerators_per_pcie_switch=draw(st.integers(1, 2)),
        nodes_per_domain=draw(st.integers(1, 2)) if kind == "nvswitch" else 1,
        scale_up_links=6 if kind == "cube_mesh" else None,
    )
    n_nodes = draw(st.integers(1, 5))
    fabric = make_fabric(
        draw(st.sampled_from(list(FABRICS))),
        nodes_per_leaf=draw(st.integers(1, 2)),
        leaves_per_pod=draw(st.sampled_from([2, 8])),
        leaves_per_group=2,
        global_links=4,
        n_ports=draw(st.sampled_from([4, 16])),
        routing=draw(st.sampled_from(["adaptive", "ecmp"])),
    )
    return Plan(node=node, n_nodes=n_nodes, fabric=fitted(fabric, n_nodes))


def some_links(plan: Plan, numbers: list[int]) -> list[tuple[str, str]]:
    """Return the ends of some links; those of an adaptive tree are named by its first spine, so that they are laid one by one."""
    cluster = plan.built()
    n_links = int((np.asarray(cluster.tier_index) != TIERS.index("memory")).sum())
    chosen = dict.fromkeys(tuple(sorted(cluster.ends(number % n_links))) for number in numbers)
    return [(low, high.replace("/spines", "/spine0") if "leaf" in low else high) for low, high in chosen]


def one_pod(between: tuple[str, str], cluster: Cluster) -> tuple[str, str]:
    single = all(not cluster.ends(link)[1].startswith("pod1") for link in range(len(cluster.links)))
    return (between[0], between[1].replace("pod0/spine0", "spine0")) if single else between


def left_over(plan: Plan, down: list[LinkChange]) -> nx.DiGraph:
    """Return what the links that are up join, from their ends; everything is laid as with the changes, and nothing taken from routing."""
    intact = [change.model_copy(update={"state": "up", "fraction": 1.0}) for change in down]
    whole = plan.built(*intact)
    ends = [whole.ends(link) for link in range(len(whole.links))]
    if plan.n_nodes > 1 and whole.scale_out is None:
        # The fabric is a way around links of a domain that holds all nodes; it is the one that as many small domains have.
        apart = replace(plan, node=replace(plan.node, scale_up=replace(plan.node.scale_up, nodes_per_domain=1))).built()
        ends += [apart.ends(link) for link in range(len(apart.links)) if TIERS[apart.tier_index[link]] in ("nic", "leaf", "spine")]
    graph: nx.DiGraph = nx.DiGraph()
    gone = {frozenset(change.between) for change in down}
    for tail, head in ends:
        graph.add_nodes_from((tail, head))
        if frozenset((tail, head)) not in gone and frozenset((bundled(tail), bundled(head))) not in gone:
            graph.add_edge(tail, head)
    return graph


def bundled(name: str) -> str:
    """Return the name that all spines of a pod, or all cores, have together."""
    return re.sub(r"^core\d+$", "core", re.sub(r"spine\d+$", "spines", name))


def joined(graph: nx.DiGraph, plan: Plan, source: int, destination: int) -> bool:
    """Return whether a way that a route may take is left: inside a place, over the domain's switch, or out of one adapter into another."""
    n, per_domain = plan.node.n_accelerators, plan.node.scale_up.nodes_per_domain
    places = source // n, destination // n
    inside = [{name for name in graph if name.startswith(f"node{place}/")} for place in places]
    switches = [{name for name in graph if name == f"domain{place // per_domain}/nvswitch"} for place in places]
    names = [f"node{endpoint // n}/gpu{endpoint % n}" for endpoint in (source, destination)]
    if switches[0] == switches[1] or places[0] == places[1]:
        allowed = graph.subgraph(inside[0] | inside[1] | switches[0])
        if nx.has_path(allowed, *names):
            return True
    outward = nx.descendants(graph.subgraph(inside[0] | switches[0]), names[0])
    inward = nx.ancestors(graph.subgraph(inside[1] | switches[1]), names[1])
    between = [name for name in graph if not name.startswith(("node", "domain"))]
    above = [name for name in between if "leaf" not in name]
    exits = {head for tail in outward for head in graph.successors(tail) if head in between}
    entries = {tail for head in inward for tail in graph.predecessors(head) if tail in between}
    return any(nx.has_path(graph.subgraph({leaf, peer, *above}), leaf, peer) for leaf in exits for peer in entries)


@settings(deadline=None, max_examples=60)
@given(plans(), st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_links_that_are_down_are_an_error_exactly_where_they_cut_ranks_off(plan: Plan, numbers: list[int]) -> None:
    down = [LinkChange(between=one_pod(between, plan.built()), state="down") for between in some_links(plan, numbers)]
    graph = left_over(plan, down)
    n_ranks = plan.node.n_accelerators * plan.n_nodes
    whole = all(joined(graph, plan, source, destination) for source in range(n_ranks) for destination in range(n_ranks))

    event("whole" if whole else "cut")
    if not whole:
        with pytest.raises(DomainError, match="cannot reach"):
            plan.built(*down)
    else:
        cluster = plan.built(*down)
        routes = cluster.routes(*all_pairs(n_ranks))
        assert cluster.works is not None
        assert cluster.works[routes.link_ids].all()


@settings(deadline=None, max_examples=60)
@given(plans(), st.lists(st.integers(0, 10_000), min_size=1, max_size=4), st.sampled_from(["down", "up"]))
def test_what_leaves_a_rank_arrives_whole_around_worn_links(plan: Plan, numbers: list[int], state: Literal["up", "down"]) -> None:
    worn = [
        LinkChange(between=one_pod(between, plan.built()), state=state, fraction=None if state == "down" else 0.25)
        for between in some_links(plan, numbers)
    ]
    try:
        cluster = plan.built(*worn)
    except DomainError:
        return
    sources, destinations = all_pairs(cluster.n_ranks)
    routes = cluster.routes(sources, destinations)
    ends = [cluster.ends(link) for link in range(len(cluster.links))]

    for index, (begin, end) in enumerate(pairwise(routes.starts)):
        surplus: dict[str, float] = {}
        for rank, amount in ((sources[index], -1.0), (destinations[index], 1.0)):
            name = accelerator_name(cluster, int(rank))
            surplus[name] = surplus.get(name, 0.0) + amount
        for place in range(begin, end):
            tail, head = ends[int(routes.link_ids[place])]
            surplus[tail] = surplus.get(tail, 0.0) + routes.weights[place]
            surplus[head] = surplus.get(head, 0.0) - routes.weights[place]
        assert all(abs(value) < 1e-12 for value in surplus.values())


@settings(deadline=None, max_examples=60)
@given(plans(), st.integers(0, 10_000))
def test_pairs_that_used_none_of_the_lost_links_keep_their_routes(plan: Plan, number: int) -> None:
    intact = plan.built()
    link = number % int((np.asarray(intact.tier_index) != TIERS.index("memory")).sum())
    between = intact.ends(link)
    try:
        cluster = plan.built(LinkChange(between=between, state="down"))
    except DomainError:
        return
    if len(cluster.links) == len(intact.links):
        sources, destinations = all_pairs(intact.n_ranks)
        before, after = intact.routes(sources, destinations), cluster.routes(sources, destinations)

        lost = {link for link in range(len(intact.links)) if set(intact.ends(link)) == set(between)}
        for index, (begin, end) in enumerate(pairwise(before.starts)):
            row = before.link_ids[begin:end]
            if lost.isdisjoint(row.tolist()) and (
                plan.fabric.routing == "adaptive" or TIERS[intact.tier_index[link]] not in ("leaf", "spine")
            ):
                np.testing.assert_array_equal(row, after.link_ids[after.starts[index] : after.starts[index + 1]])


@settings(deadline=None, max_examples=60)
@given(plans(), st.lists(st.integers(0, 10_000), min_size=1, max_size=3))
def test_both_ways_of_half_duplex_links_cross_the_same_links(plan: Plan, numbers: list[int]) -> None:
    intact = plan.built()
    n_links = int((np.asarray(intact.tier_index) != TIERS.index("memory")).sum())
    chosen = [intact.ends(number % n_links) for number in numbers]
    cluster = plan.built(*(LinkChange(between=between, half_duplex=True) for between in chosen))
    halved = {frozenset(between) for between in chosen}
    sources, destinations = all_pairs(cluster.n_ranks)

    crossed = [
        [
            {int(link) for link in routes.link_ids[begin:end] if frozenset(cluster.ends(int(link))) in halved}
            for begin, end in pairwise(routes.starts)
        ]
        for routes in (cluster.routes(sources, destinations), cluster.routes(destinations, sources))
    ]

    if plan.fabric.topology not in ("torus", "dragonfly") and plan.fabric.routing == "adaptive":
        assert crossed[0] == crossed[1]
    used = {link for links in crossed[0] + crossed[1] for link in links}
    assert all(len({link for link in used if frozenset(cluster.ends(link)) == pair}) <= _parallel(cluster, pair) for pair in halved)


def _parallel(cluster: Cluster, pair: frozenset[str]) -> int:
    return sum(frozenset(cluster.ends(link)) == pair for link in range(len(cluster.links))) // 2
