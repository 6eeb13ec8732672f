from __future__ import annotations

import pytest

from clustersim.collectives.pattern import FlowSet
from clustersim.collectives.rooted import ROOTED, RootedOp
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from tests.unit.collectives.execution import groups, laid, load_by_name, nodes_of, one_domain, one_each
from tests.unit.topology.factories import make_node

OPS: tuple[RootedOp, ...] = ("broadcast", "reduce")
EVERY_WAY = pytest.mark.parametrize(("op", "name"), [(op, name) for op in OPS for name in ("ring", "tree")])


def only_flow_set(op: RootedOp, name: str, cluster: Cluster) -> FlowSet:
    ((flow_set,),) = laid(ROOTED[op][name], cluster).phases
    return flow_set


@pytest.mark.parametrize("name", ["ring", "tree"])
@pytest.mark.parametrize("cluster", [one_domain(5), one_each(5), nodes_of(4, 3)], ids=["one domain", "one in each", "both"])
def test_nothing_enters_the_root_of_a_broadcast_and_nothing_leaves_that_of_a_reduction(name: str, cluster: Cluster) -> None:
    down, up = (load_by_name(cluster, laid(ROOTED[op][name], cluster)) for op in OPS)

    assert [link for link in down if link in ("node0/gpu0/nvlink/down", "node0/nic0/rx", "node0/gpu0/pcie/down")] == []
    assert [link for link in up if link in ("node0/gpu0/nvlink/up", "node0/nic0/tx", "node0/gpu0/pcie/up")] == []


@EVERY_WAY
def test_groups_of_an_orbit_have_a_root_each(op: RootedOp, name: str) -> None:
    cluster = build_cluster(make_node(), 2)

    load = load_by_name(cluster, ROOTED[op][name].lay(cluster, groups(cluster, (0, 8), (1, 9))))

    here, there = ("tx", "rx") if op == "broadcast" else ("rx", "tx")
    adapters = {f"node0/nic{index}/{here}" for index in (0, 1)} | {f"node1/nic{index}/{there}" for index in (0, 1)}
    assert {link: share for link, share in load.items() if "nic" in link} == dict.fromkeys(adapters, 1.0)


@pytest.mark.parametrize(
    ("cluster", "steps"),
    [(one_domain(6), (5, 0)), (one_each(6), (0, 5)), (nodes_of(4, 3), (8, 3))],
    ids=["past every other member", "leaving each node but the last", "starting in the middle of a node and back to it"],
)
def test_a_chain_takes_a_step_for_every_member_that_it_reaches(cluster: Cluster, steps: tuple[int, int]) -> None:
    flow_set = only_flow_set("broadcast", "ring", cluster)

    assert (flow_set.intra_steps, flow_set.inter_steps) == steps


def test_a_chain_relays_between_nodes_over_twice_as_many_channels_as_it_has_rings() -> None:
    flow_set = only_flow_set("broadcast", "ring", nodes_of(4, 3))

    assert (flow_set.relays, flow_set.channels) == (3, 2 * round(1.0 / flow_set.share))
    assert only_flow_set("broadcast", "tree", nodes_of(4, 3)).relays == 0


@pytest.mark.parametrize(("n_nodes", "levels"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_trees_reach_the_nodes_level_by_level(n_nodes: int, levels: int) -> None:
    flow_set = only_flow_set("broadcast", "tree", nodes_of(4, n_nodes))

    assert (flow_set.intra_steps, flow_set.inter_steps) == (3, levels)


def test_a_tree_inside_a_domain_is_a_chain() -> None:
    cluster = one_domain(6)

    assert load_by_name(cluster, laid(ROOTED["broadcast"]["tree"], cluster)) == pytest.approx(
        load_by_name(cluster, laid(ROOTED["broadcast"]["ring"], cluster)), rel=1e-12
    )


@pytest.mark.parametrize("n_nodes", [2, 3, 4, 7, 8, 16])
def test_no_node_sends_more_than_it_was_sent(n_nodes: int) -> None:
    cluster = one_each(n_nodes)

    load = load_by_name(cluster, laid(ROOTED["broadcast"]["tree"], cluster))

    assert max(load.values()) == pytest.approx(1.0, rel=1e-12)
    assert load["node0/nic0/tx"] == pytest.approx(1.0, rel=1e-12)


def test_chains_avoid_pairs_without_a_link_in_a_mesh() -> None:
    cluster = build_cluster(make_node("cube_mesh"), 1)

    ((flow_set,),) = laid(ROOTED["broadcast"]["ring"], cluster).phases

    # Six rings over six lanes: no relayed pair, so no link carries more than a ring for each of its lanes.
    assert (flow_set.route_set.flows * flow_set.share).max() <= 2 / 6 + 1e-12
