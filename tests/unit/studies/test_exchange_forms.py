"""The closed forms of docs/theory/parameter-server.md, term by term."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.studies.exchange_forms import Bandwidths, Parties, Placement, pull_s, push_s, ring_s
from tests.unit.engine.factories import IDEAL_NETWORK, LATENT_NETWORK
from tests.unit.topology.factories import MEMORY_BYTES_PER_S, NIC_BYTES_PER_S, PCIE_BYTES_PER_S, make_fabric, make_node

B = 10.0
"""Of an adapter; everything else is faster, so that one term binds."""
WIDE = Bandwidths(adapter_bytes_per_s=B, pcie_bytes_per_s=1e6, memory_bytes_per_s=1e6, uplink_bytes_per_s=1e6, nodes_per_leaf=4)


def parties(workers: int, servers: int, placement: Placement = "dedicated", first_host: int = 64) -> Parties:
    return Parties(workers=workers, servers=servers, placement=placement, first_host=first_host)


def narrow(ratio: float) -> Bandwidths:
    return replace(WIDE, uplink_bytes_per_s=WIDE.nodes_per_leaf * B / ratio)


def test_usable_bandwidths_are_shares_of_those_on_the_data_sheet() -> None:
    node, fabric = make_node(n_accelerators=1, n_nics=1), make_fabric("leaf_spine", nodes_per_leaf=4, oversubscription=2.0)

    ideal, real = (Bandwidths.of(node, fabric, network) for network in (IDEAL_NETWORK, LATENT_NETWORK))

    assert ideal.adapter_bytes_per_s == NIC_BYTES_PER_S
    assert ideal.pcie_bytes_per_s == PCIE_BYTES_PER_S
    assert ideal.memory_bytes_per_s == MEMORY_BYTES_PER_S
    assert ideal.uplink_bytes_per_s == 4 * NIC_BYTES_PER_S / 2
    share = LATENT_NETWORK.efficiency
    assert real.adapter_bytes_per_s == share["nic"] * NIC_BYTES_PER_S
    assert real.pcie_bytes_per_s == share["pcie"] * PCIE_BYTES_PER_S
    assert real.memory_bytes_per_s == share["memory"] * MEMORY_BYTES_PER_S
    assert real.uplink_bytes_per_s == share["leaf"] * 2 * NIC_BYTES_PER_S


@pytest.mark.parametrize(("placement", "hosts"), [("dedicated", range(64, 67)), ("colocated", range(3))])
def test_servers_stand_behind_the_workers_or_on_the_first_of_them(placement: Placement, hosts: range) -> None:
    assert parties(8, 3, placement).hosts == hosts


@pytest.mark.parametrize(("workers", "servers", "rounds"), [(4, 1, 4.0), (8, 3, 8 / 3), (8, 8, 1.0), (4, 16, 1.0)])
def test_dedicated_servers_take_what_all_workers_send_through_their_adapters(workers: int, servers: int, rounds: float) -> None:
    assert push_s(WIDE, parties(workers, servers), 30.0) == pytest.approx(rounds * 3.0, rel=1e-12)
    assert pull_s(WIDE, parties(workers, servers), 30.0) == pytest.approx(rounds * 3.0, rel=1e-12)


@pytest.mark.parametrize(("workers", "servers", "rounds"), [(4, 4, 3 / 4), (8, 1, 7.0), (8, 3, 7 / 3), (8, 7, 1.0)])
def test_a_server_on_a_worker_gets_nothing_from_itself(workers: int, servers: int, rounds: float) -> None:
    assert push_s(WIDE, parties(workers, servers, "colocated"), 30.0) == pytest.approx(rounds * 3.0, rel=1e-12)


def test_memory_carries_four_bytes_for_one_that_is_added_and_one_for_one_that_is_sent() -> None:
    slow = replace(WIDE, memory_bytes_per_s=5.0)

    assert push_s(slow, parties(8, 2), 30.0) == pytest.approx(4 * 8 / 2 * 30.0 / 5.0, rel=1e-12)
    assert pull_s(slow, parties(8, 2), 30.0) == pytest.approx(8 / 2 * 30.0 / 5.0, rel=1e-12)


def test_everything_a_worker_sends_crosses_its_bus() -> None:
    slow = replace(WIDE, pcie_bytes_per_s=5.0)

    assert push_s(slow, parties(4, 4, "colocated"), 30.0) == pytest.approx(30.0 / 5.0, rel=1e-12)
    assert ring_s(slow, 4, 30.0) == pytest.approx(2 * 3 / 4 * 30.0 / 5.0, rel=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 8.0])
@pytest.mark.parametrize(("workers", "servers"), [(8, 2), (8, 8), (16, 3), (16, 6)])
def test_a_leaf_of_workers_or_a_leaf_of_servers_binds_where_it_is_oversubscribed(workers: int, servers: int, ratio: float) -> None:
    beside = min(servers, 4)

    rounds = max(1.0, workers / servers, ratio, ratio * beside * workers / servers / 4)
    assert push_s(narrow(ratio), parties(workers, servers), 30.0) == pytest.approx(rounds * 3.0, rel=1e-12)


def test_workers_that_do_not_fill_their_leaf_share_its_uplink_among_fewer() -> None:
    # Two workers send 2 S through an uplink that is as wide as half an adapter.
    assert push_s(narrow(8.0), parties(2, 2), 30.0) == pytest.approx(4 * 3.0, rel=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("workers", [8, 16])
def test_a_server_on_every_worker_talks_to_all_leaves_and_a_ring_to_the_next(workers: int, ratio: float) -> None:
    everywhere = parties(workers, workers, "colocated")

    expected_s = max(workers - 1, ratio * (workers - 4)) / workers * 3.0
    assert push_s(narrow(ratio), everywhere, 30.0) == pytest.approx(expected_s, rel=1e-12)
    assert ring_s(narrow(ratio), workers, 30.0) == pytest.approx(2 * (workers - 1) / workers * max(1.0, ratio / 4) * 3.0, rel=1e-12)


def test_nothing_leaves_a_leaf_that_holds_all() -> None:
    assert ring_s(narrow(100.0), 4, 30.0) == pytest.approx(2 * 3 / 4 * 3.0, rel=1e-12)
    assert push_s(narrow(100.0), parties(4, 4, "colocated"), 30.0) == pytest.approx(3 / 4 * 3.0, rel=1e-12)
    assert push_s(narrow(100.0), parties(2, 2, "dedicated", first_host=2), 30.0) == pytest.approx(3.0, rel=1e-12)
