"""All-to-all, rooted operations and sends against their closed forms, on idle links without latency."""

from __future__ import annotations

import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.hardware.library_costs import CollectiveOp
from clustersim.topology.wired import Cluster
from tests.unit.collectives.beside import flown_s
from tests.unit.collectives.execution import laid, nodes_of, one_domain, one_each
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_fabric

ROUND_OFF = 1e-9
SIZES = [2, 3, 8, 25]
EVERY_WAY = pytest.mark.parametrize("name", list(ALGORITHMS["all_to_all"]))
ROOTED_WAYS = pytest.mark.parametrize(("op", "name"), [(op, name) for op in ("broadcast", "reduce") for name in ("ring", "tree")])


def time_s(op: CollectiveOp, name: str, cluster: Cluster) -> float:
    """Return the time for each byte of the tensor, of all ranks together in one group."""
    return flown_s(cluster, laid(ALGORITHMS[op][name], cluster))


def below_leaves(n_nodes: int, nodes_per_leaf: int, oversubscription: float) -> Cluster:
    return nodes_of(1, n_nodes, fabric=make_fabric("leaf_spine", nodes_per_leaf=nodes_per_leaf, oversubscription=oversubscription))


@EVERY_WAY
@pytest.mark.parametrize("n", SIZES)
def test_in_one_domain_every_rank_sends_all_but_its_own_share(name: str, n: int) -> None:
    assert time_s("all_to_all", name, one_domain(n)) == pytest.approx((n - 1) / n / SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)


@EVERY_WAY
@pytest.mark.parametrize("n", SIZES)
def test_over_nodes_of_one_every_adapter_does(name: str, n: int) -> None:
    assert time_s("all_to_all", name, one_each(n)) == pytest.approx((n - 1) / n / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("name", ["direct", "hierarchical"])
@pytest.mark.parametrize("n_nodes", [2, 3])
@pytest.mark.parametrize("per_node", [2, 8])
def test_what_stays_in_a_node_does_not_cross_its_adapters(name: str, n_nodes: int, per_node: int) -> None:
    n = n_nodes * per_node

    took_s = time_s("all_to_all", name, nodes_of(per_node, n_nodes))

    assert took_s == pytest.approx((n_nodes - 1) / n_nodes / NIC_BYTES_PER_S, rel=ROUND_OFF)
    # As nccl-tests counts: twice the adapter's bandwidth over two nodes, but for the share of a rank itself.
    bus_bytes_per_s = (n - 1) / n / took_s
    assert bus_bytes_per_s == pytest.approx((n - 1) / n * n_nodes / (n_nodes - 1) * NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 4), (4, 8), (8, 2)])
def test_in_pairs_of_powers_of_two_a_round_is_inside_nodes_or_between_them(n_nodes: int, per_node: int) -> None:
    n = n_nodes * per_node
    expected_s = (per_node - 1) / n / SCALE_UP_BYTES_PER_S + (n - per_node) / n / NIC_BYTES_PER_S

    assert time_s("all_to_all", "pairwise", nodes_of(per_node, n_nodes)) == pytest.approx(expected_s, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n", "nodes_per_leaf"), [(8, 2), (16, 4), (64, 8), (30, 5)])
def test_an_oversubscribed_leaf_carries_what_is_for_other_leaves(n: int, nodes_per_leaf: int, ratio: float) -> None:
    took_s = time_s("all_to_all", "direct", below_leaves(n, nodes_per_leaf, ratio))

    assert took_s == pytest.approx(max(n - 1, ratio * (n - nodes_per_leaf)) / n / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n", "nodes_per_leaf"), [(8, 2), (16, 4), (64, 8)])
def test_in_pairs_of_powers_of_two_all_climb_or_none(n: int, nodes_per_leaf: int, ratio: float) -> None:
    took_s = time_s("all_to_all", "pairwise", below_leaves(n, nodes_per_leaf, ratio))

    assert took_s == pytest.approx((nodes_per_leaf - 1 + (n - nodes_per_leaf) * ratio) / n / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n", "nodes_per_leaf"), [(6, 2), (15, 5), (30, 5), (36, 4)])
def test_in_turns_more_climb_the_further_the_partner(n: int, nodes_per_leaf: int, ratio: float) -> None:
    climb = [min(turn, n - turn, nodes_per_leaf) / nodes_per_leaf for turn in range(1, n)]

    took_s = time_s("all_to_all", "pairwise", below_leaves(n, nodes_per_leaf, ratio))

    assert took_s == pytest.approx(sum(max(1.0, ratio * share) for share in climb) / n / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 8), (4, 4), (8, 8)])
def test_relays_keep_traffic_on_its_rail(n_nodes: int, per_node: int, ratio: float) -> None:
    n = n_nodes * per_node
    cluster = nodes_of(per_node, n_nodes, fabric=make_fabric("rail_optimized", nodes_per_leaf=n_nodes, oversubscription=ratio))

    on_rails_s, direct_s = (time_s("all_to_all", name, cluster) for name in ("hierarchical", "direct"))

    assert on_rails_s == pytest.approx((n_nodes - 1) / n_nodes / NIC_BYTES_PER_S, rel=ROUND_OFF)
    # Of the messages for a node, one is for the sender's own rail.
    climbing = (n_nodes - 1) * (per_node - 1) / n
    assert direct_s == pytest.approx(max((n_nodes - 1) / n_nodes, ratio * climbing) / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize(("nodes_per_leaf", "n_nodes"), [(2, 8), (4, 8)])
def test_relays_do_not_help_against_leaves_that_hold_all_rails(nodes_per_leaf: int, n_nodes: int) -> None:
    cluster = nodes_of(8, n_nodes, fabric=make_fabric("leaf_spine", nodes_per_leaf=nodes_per_leaf, oversubscription=4.0))

    on_rails_s, direct_s = (time_s("all_to_all", name, cluster) for name in ("hierarchical", "direct"))

    assert on_rails_s == pytest.approx(direct_s, rel=ROUND_OFF)
    assert direct_s == pytest.approx(4.0 * (n_nodes - nodes_per_leaf) / n_nodes / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("op", ["gather", "scatter"])
@pytest.mark.parametrize("n", SIZES)
def test_the_port_of_the_root_carries_all_but_its_own_share(op: CollectiveOp, n: int) -> None:
    assert time_s(op, "direct", one_domain(n)) == pytest.approx((n - 1) / n / SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)
    assert time_s(op, "direct", one_each(n)) == pytest.approx((n - 1) / n / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("op", ["gather", "scatter"])
@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 8), (4, 4)])
def test_the_root_has_one_adapter_for_all_other_nodes(op: CollectiveOp, n_nodes: int, per_node: int) -> None:
    assert time_s(op, "direct", nodes_of(per_node, n_nodes)) == pytest.approx((n_nodes - 1) / n_nodes / NIC_BYTES_PER_S, rel=ROUND_OFF)


@ROOTED_WAYS
@pytest.mark.parametrize("n", SIZES)
def test_every_rank_receives_a_broadcast_once_and_sends_no_more(op: CollectiveOp, name: str, n: int) -> None:
    assert time_s(op, name, one_domain(n)) == pytest.approx(1 / SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)
    assert time_s(op, name, one_each(n)) == pytest.approx(1 / NIC_BYTES_PER_S, rel=ROUND_OFF)


@ROOTED_WAYS
@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 8), (3, 4), (8, 2)])
def test_a_broadcast_uses_all_adapters_of_a_node(op: CollectiveOp, name: str, n_nodes: int, per_node: int) -> None:
    assert time_s(op, name, nodes_of(per_node, n_nodes)) == pytest.approx(1 / per_node / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize("ratio", [1.0, 8.0])
@pytest.mark.parametrize("nodes_per_leaf", [2, 4])
def test_one_chain_leaves_each_leaf_once(op: CollectiveOp, nodes_per_leaf: int, ratio: float) -> None:
    took_s = time_s(op, "ring", below_leaves(16, nodes_per_leaf, ratio))

    assert took_s == pytest.approx(max(1.0, ratio / nodes_per_leaf) / NIC_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("n", SIZES)
def test_every_rank_sends_a_message_to_the_next(n: int) -> None:
    assert time_s("send_recv", "direct", one_domain(n)) == pytest.approx(1 / SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)
    assert time_s("send_recv", "direct", one_each(n)) == pytest.approx(1 / NIC_BYTES_PER_S, rel=ROUND_OFF)


def test_sends_out_of_a_node_take_one_adapter() -> None:
    assert time_s("send_recv", "direct", nodes_of(8, 2)) == pytest.approx(1 / NIC_BYTES_PER_S, rel=ROUND_OFF)
