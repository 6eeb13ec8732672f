"""Ring collectives against their closed forms, through a whole replay."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest

from clustersim.collectives.ring import ROUNDS, RingOp
from clustersim.network.in_flight import TICK_S
from clustersim.program.tasks import RankGroups
from clustersim.topology.cluster import TIERS
from tests.unit.engine.factories import (
    CHUNK_S,
    IDEAL_NETWORK,
    RAMPED_NETWORK,
    bytes_by_link,
    collective,
    communicate,
    compute,
    group_of,
    instant,
    make_machine,
    solo_s,
    task,
    timeline_of,
    total_bytes,
    transfer,
    work,
)
from tests.unit.topology.factories import CABLE_S, LEAF_S, NIC_BYTES_PER_S, NIC_S, SCALE_UP_BYTES_PER_S, SCALE_UP_S, make_fabric, make_node

SIZE = 3e9
ROUND_OFF = 1e-12
FACTOR: dict[RingOp, int] = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def over_nodes(n_nodes: int, share: int, *, first: int = 0, name: str = "group") -> RankGroups:
    """Return one group with ``share`` members in each node, from local index ``first`` on."""
    return group_of(tuple(node * 8 + first + index for node in range(n_nodes) for index in range(share)), name=name)


@pytest.mark.parametrize("op", list(ROUNDS))
@pytest.mark.parametrize("n_ranks", [2, 3, 8])
def test_a_ring_on_an_idle_switch_takes_its_bytes_over_the_bandwidth(op: RingOp, n_ranks: int) -> None:
    took_s = solo_s(communicate(group_of(tuple(range(n_ranks))), SIZE, op), make_machine())

    assert took_s == pytest.approx(FACTOR[op] * (n_ranks - 1) / n_ranks * SIZE / SCALE_UP_BYTES_PER_S, abs=64 * TICK_S)


@pytest.mark.parametrize("op", list(ROUNDS))
@pytest.mark.parametrize("n_ranks", [2, 5])
@pytest.mark.parametrize("size_bytes", [1.0, 3e9])
def test_start_hops_and_ramp_up_come_on_top(op: RingOp, n_ranks: int, size_bytes: float) -> None:
    took_s = solo_s(communicate(group_of(tuple(range(n_ranks))), size_bytes, op), make_machine(make_node(), network=RAMPED_NETWORK))

    steps = FACTOR[op] * (n_ranks - 1)
    # The wire is shorter than the hop, which includes it.
    latency_s = 11e-6 + 3e-6 + steps * max(1.3e-6, SCALE_UP_S)
    moving_s = steps / n_ranks * size_bytes / (0.8 * SCALE_UP_BYTES_PER_S)
    ramp_s = 2 * sqrt(moving_s * steps * CHUNK_S)
    assert took_s == pytest.approx(latency_s + ramp_s + moving_s, abs=64 * TICK_S)


@pytest.mark.parametrize("size_bytes", [3e11, 3e12])
def test_the_ramp_up_of_large_tensors_is_that_of_the_largest_chunk(size_bytes: float) -> None:
    took_s = solo_s(communicate(group_of(tuple(range(8))), size_bytes), make_machine(network=RAMPED_NETWORK))

    # Two round trips of the buffers come to more than the square root only for tensors that are small.
    bus_bytes_per_s = 0.8 * SCALE_UP_BYTES_PER_S / (2 * 7 / 8)
    best_s, largest_s = 2 * sqrt(size_bytes / bus_bytes_per_s * 14 * CHUNK_S), 2 * RAMPED_NETWORK.library.in_flight_bytes / bus_bytes_per_s
    assert largest_s < best_s
    assert took_s == pytest.approx(14e-6 + 14 * 1.3e-6 + largest_s + size_bytes / bus_bytes_per_s, rel=ROUND_OFF)


@pytest.mark.parametrize("op", list(ROUNDS))
def test_inside_a_pass_a_ring_takes_as_long_as_beside_it(op: RingOp) -> None:
    machine, group = make_machine(make_node(), network=RAMPED_NETWORK), group_of(tuple(range(8)))

    inside_s = solo_s(compute(collective(group, SIZE, op)), machine)

    assert inside_s == pytest.approx(solo_s(communicate(group, SIZE, op), machine), rel=ROUND_OFF)


def test_an_all_reduce_takes_as_long_as_its_two_halves() -> None:
    machine, group = make_machine(), group_of(tuple(range(8)))

    halves_s = sum(solo_s(communicate(group, SIZE, op), machine) for op in ("reduce_scatter", "all_gather"))

    assert solo_s(communicate(group, SIZE), machine) == pytest.approx(halves_s, abs=64 * TICK_S)


@pytest.mark.parametrize("op", list(ROUNDS))
@pytest.mark.parametrize("n_nodes", [2, 5])
@pytest.mark.parametrize("share", [1, 8])
def test_over_nodes_every_adapter_carries_its_share_of_the_tensor(op: RingOp, n_nodes: int, share: int) -> None:
    n_ranks = n_nodes * share

    timeline = timeline_of(make_machine(n_nodes=n_nodes), task(communicate(over_nodes(n_nodes, share), SIZE, op)))

    carried = FACTOR[op] * (n_ranks - 1) / n_ranks * SIZE / share
    assert list(bytes_by_link(timeline, "nic").values()) == [pytest.approx(carried, rel=ROUND_OFF)]
    assert total_bytes(timeline, "nic") == pytest.approx(2 * n_ranks * carried, rel=ROUND_OFF)


@pytest.mark.parametrize("op", list(ROUNDS))
@pytest.mark.parametrize("n_nodes", [2, 5])
@pytest.mark.parametrize("share", [1, 8])
def test_over_nodes_the_adapters_set_the_time(op: RingOp, n_nodes: int, share: int) -> None:
    machine = make_machine(make_node(), n_nodes, network=replace(RAMPED_NETWORK, efficiency=IDEAL_NETWORK.efficiency))

    took_s = solo_s(communicate(over_nodes(n_nodes, share), SIZE, op), machine)

    n_ranks, rounds = n_nodes * share, FACTOR[op]
    # Two nodes below a leaf: with more, the longest edge climbs to the spines and down again.
    climb_s = 2 * CABLE_S + LEAF_S + 0.4e-6 if n_nodes > 2 else 0.0
    wire_s = 2 * NIC_S + 2 * CABLE_S + LEAF_S + climb_s
    inside, between = rounds * (n_ranks - n_nodes), rounds * (n_nodes - 1)
    latency_s = 11e-6 + 3e-6 + inside * 1.3e-6 + between * (5e-6 + wire_s)
    moving_s = rounds * (n_ranks - 1) / n_ranks * SIZE / share / NIC_BYTES_PER_S
    # A chunk between nodes waits for its credit, once along the wires; chunks are no larger than the buffers.
    ramp_s = 2 * min(sqrt(moving_s * (inside * CHUNK_S + between * wire_s)), RAMPED_NETWORK.library.in_flight_bytes * moving_s / SIZE)
    assert took_s == pytest.approx(latency_s + ramp_s + moving_s, abs=64 * TICK_S)


@pytest.mark.parametrize("share", [2, 4, 8])
def test_over_nodes_nvlink_carries_one_edge_less_than_inside_a_node(share: int) -> None:
    timeline = timeline_of(make_machine(n_nodes=2), task(communicate(over_nodes(2, share), SIZE)))

    n_ranks = 2 * share
    carried = 2 * (n_ranks - 1) / n_ranks * SIZE / share * (share - 1)
    assert list(bytes_by_link(timeline, "nvlink").values()) == [pytest.approx(carried, rel=ROUND_OFF)]


def test_more_members_in_a_node_use_more_adapters() -> None:
    times_s = [solo_s(communicate(over_nodes(2, share), SIZE), make_machine(n_nodes=2)) for share in (1, 2, 4, 8)]

    # 2 (n - 1) / n S / g: from 1/1 to 15/8 / 8.
    assert [times_s[0] / time_s for time_s in times_s] == pytest.approx([1.0, 4 / 3, 16 / 7, 64 / 15], rel=1e-9)


@pytest.mark.parametrize("n_nodes", [1, 2])
def test_two_all_reduces_on_the_same_links_take_twice_as_long(n_nodes: int) -> None:
    machine = make_machine(n_nodes=n_nodes)
    one, other = (communicate(over_nodes(n_nodes, 8, name=name), SIZE, name=name) for name in ("one", "other"))

    timeline = timeline_of(machine, task(one, stream="one"), task(other, stream="other"))

    assert [span.end_s for span in timeline.spans] == pytest.approx([2 * solo_s(one, machine)] * 2, rel=ROUND_OFF)


def test_three_calls_on_one_group_at_once_take_three_times_as_long() -> None:
    machine, action = make_machine(), communicate(group_of(tuple(range(8))), SIZE)

    timeline = timeline_of(machine, *(task(action, stream=stream) for stream in ("a", "b", "c")))

    assert timeline.step_time_s == pytest.approx(3 * solo_s(action, machine), abs=64 * TICK_S)


def test_an_all_reduce_that_joins_halfway_leaves_half_of_the_link() -> None:
    machine = make_machine()
    one, other = (communicate(group_of(tuple(range(8)), name=name), SIZE, name=name) for name in ("one", "other"))
    alone_s = solo_s(one, machine)

    timeline = timeline_of(machine, task(one, stream="one"), task(compute(work(alone_s / 2))), task(other, 1, stream="other"))

    ends_s = {span.name: span.end_s for span in timeline.spans}
    assert ends_s["one"] == pytest.approx(1.5 * alone_s, abs=64 * TICK_S)
    assert ends_s["other"] == pytest.approx(2.0 * alone_s, rel=ROUND_OFF)


def test_all_reduces_of_an_orbit_that_share_an_adapter_slow_each_other() -> None:
    machine = make_machine(instant(make_node(n_nics=2)), 2)
    rails = group_of(*((index, 8 + index) for index in range(8)))

    # Four groups of two share each adapter: 2 * 1/2 * S for each of them.
    assert solo_s(communicate(rails, SIZE), machine) == pytest.approx(4 * SIZE / NIC_BYTES_PER_S, abs=64 * TICK_S)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_an_oversubscribed_leaf_slows_rings_that_climb(ratio: float) -> None:
    fabric = make_fabric("leaf_spine", nodes_per_leaf=1, oversubscription=ratio)
    machine = make_machine(instant(make_node(fabric=fabric)), 4)

    took_s = solo_s(communicate(over_nodes(4, 8), SIZE), machine)

    assert took_s == pytest.approx(ratio * 2 * 31 / 32 * SIZE / 8 / NIC_BYTES_PER_S, abs=64 * TICK_S)


@pytest.mark.parametrize("tier", ["nvlink", "nic"])
def test_the_usable_share_of_a_tier_divides_its_bandwidth(tier: str) -> None:
    half = replace(IDEAL_NETWORK, efficiency={name: 0.5 if name == tier else 1.0 for name in TIERS})
    group = over_nodes(1, 8) if tier == "nvlink" else over_nodes(2, 8)

    ideal_s, half_s = (solo_s(communicate(group, SIZE), make_machine(n_nodes=2, network=network)) for network in (IDEAL_NETWORK, half))

    assert half_s == pytest.approx(2 * ideal_s, rel=ROUND_OFF)


def test_a_send_takes_its_bytes_over_the_narrowest_link() -> None:
    machine = make_machine(n_nodes=2)

    assert solo_s(transfer((0, 1), size_bytes=SIZE), machine) == pytest.approx(SIZE / SCALE_UP_BYTES_PER_S, abs=64 * TICK_S)
    assert solo_s(transfer((0, 8), size_bytes=SIZE), machine) == pytest.approx(SIZE / NIC_BYTES_PER_S, abs=64 * TICK_S)


@pytest.mark.parametrize("pieces", [1, 3, 10])
def test_pieces_pay_start_and_ramp_up_each(pieces: int) -> None:
    machine, group = make_machine(network=RAMPED_NETWORK), group_of(tuple(range(8)))

    took_s = solo_s(compute(collective(group, SIZE, pieces=pieces)), machine)

    moving_s = 2 * 7 / 8 * SIZE / (0.8 * SCALE_UP_BYTES_PER_S)
    each_s = 11e-6 + 3e-6 + 14 * 1.3e-6 + 2 * sqrt(moving_s / pieces * 14 * CHUNK_S)
    assert took_s == pytest.approx(pieces * each_s + moving_s, abs=64 * TICK_S)
