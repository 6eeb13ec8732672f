"""From a pattern and a size to bytes, latencies and caps."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest

from clustersim.collectives.pattern import FlowSet, Pattern
from clustersim.collectives.timing import (
    DATA_SHARE,
    STEP_BYTES,
    AlgorithmCandidate,
    Operation,
    Way,
    call_overhead_s,
    hops_s,
    idle_rate_bytes_per_s,
    timed,
)
from clustersim.hardware.calibration import BandwidthCeilings, FamilyCalibration, NetworkCalibration
from clustersim.hardware.calibrations import calibration_of_generation
from clustersim.hardware.library_costs import LATENCIES, PROTOCOLS, AlgorithmLatencies, Family, Medium, Protocol
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.link_demand import RouteSet
from tests.unit.topology.factories import NIC_BYTES_PER_S, PCIE_BYTES_PER_S, SCALE_UP_BYTES_PER_S, make_node

ROUND_OFF = 1e-12
CLUSTER = build_cluster(make_node(), 2)
MEDIA: tuple[Medium, ...] = ("nvlink", "pcie", "net")
FAMILIES: tuple[Family, ...] = ("ring", "tree", "nvls", "exchange")
SIZE = 1e6
RATE = 1e9
"""Bytes of the tensor in a second on idle links."""

LATENCY_OF: dict[Family, AlgorithmLatencies] = {
    family: AlgorithmLatencies(
        base_s={protocol: 1e-6 * (2 + place + 10 * row) for place, protocol in enumerate(PROTOCOLS)},
        hop_s={
            medium: {protocol: 1e-7 * (3 + place + 10 * row + 100 * column) for place, protocol in enumerate(PROTOCOLS)}
            for column, medium in enumerate(MEDIA)
        },
    )
    for row, family in enumerate(FAMILIES)
}
LIMITS = calibration_of_generation("ampere").network.library
CALIBRATION = NetworkCalibration(
    efficiency=dict.fromkeys(TIERS, 0.5),
    families={family: FamilyCalibration(start_s=5e-6 * (1 + row), chunk_s=7e-9 * (1 + row)) for row, family in enumerate(FAMILIES)},
    ceilings=BandwidthCeilings(nvls=0.7, exchange=0.6, pair=0.4, peer=0.3),
    multiprocessors=24,
    library=LIMITS,
    latencies=LATENCY_OF,
)
"""No two constants alike, so that a mistake shows."""

RING = Way(algorithm="ring", protocol="simple", family="ring")


def on(tier: str, *flows: float) -> RouteSet:
    """Return so many flows on each of the first links of a tier."""
    links = np.flatnonzero(np.asarray(CLUSTER.tier_index) == TIERS.index(tier))[: len(flows)]
    return RouteSet(link_ids=links, flows=np.array(flows, dtype=np.float64))


def flow_set(
    route_set: RouteSet | None = None, *, share: float = 0.25, steps: tuple[int, int] = (0, 0), wire_s: tuple[float, float] = (0.0, 0.0)
) -> FlowSet:
    return FlowSet(
        route_set=on("nvlink", 1.0) if route_set is None else route_set,
        share=share,
        intra_steps=steps[0],
        inter_steps=steps[1],
        intra_latency_s=wire_s[0],
        inter_latency_s=wire_s[1],
    )


def candidate(*phases: tuple[FlowSet, ...], rate: float = RATE, uniform: bool = True) -> AlgorithmCandidate:
    pattern = Pattern(phases=phases, uniform=uniform)
    return AlgorithmCandidate(algorithm="ring", pattern=pattern, lone=pattern, idle_rate_bytes_per_s=rate, known_rate_bytes_per_s=rate)


def operation(*phases: tuple[FlowSet, ...], way: Way = RING, size_bytes: float = SIZE, pieces: int = 1, rate: float = inf) -> Operation:
    """Return an operation whose ramp-up takes no time unless a rate is given."""
    return timed(candidate(*phases, rate=rate), way, CLUSTER, CALIBRATION, size_bytes=size_bytes, pieces=pieces)


def cap_of(route_set: RouteSet, way: Way, *, share: float = 0.25, steps: tuple[int, int] = (1, 0)) -> float:
    ((leg,),) = operation((flow_set(route_set, share=share, steps=steps),), way=way).phases
    return leg.cap_bytes_per_s


# Latency


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("medium", ["nvlink", "pcie"])
def test_a_hop_inside_a_domain_takes_what_protocol_and_medium_cost(protocol: Protocol, medium: Medium) -> None:
    way = replace(RING, protocol=protocol, medium=medium)

    assert hops_s(flow_set(steps=(5, 0)), way, LATENCY_OF["ring"]) == pytest.approx(
        5 * LATENCY_OF["ring"].hop_s[medium][protocol], rel=ROUND_OFF
    )


def test_a_wire_inside_a_domain_counts_only_where_it_is_longer_than_the_hop() -> None:
    hop_s = LATENCY_OF["ring"].hop_s["nvlink"]["simple"]
    short, long = (hops_s(flow_set(steps=(5, 0), wire_s=(times * hop_s, 0.0)), RING, LATENCY_OF["ring"]) for times in (0.9, 3.0))

    assert short == pytest.approx(5 * hop_s, rel=ROUND_OFF)
    assert long == pytest.approx(15 * hop_s, rel=ROUND_OFF)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("medium", ["nvlink", "pcie"])
def test_a_hop_between_domains_takes_its_wire_on_top_whatever_is_inside(protocol: Protocol, medium: Medium) -> None:
    way = replace(RING, protocol=protocol, medium=medium)

    between_s = hops_s(flow_set(steps=(0, 3), wire_s=(9.0, 4e-6)), way, LATENCY_OF["ring"])

    assert between_s == pytest.approx(3 * (LATENCY_OF["ring"].hop_s["net"][protocol] + 4e-6), rel=ROUND_OFF)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_family_starts_and_hops_in_its_own_time(family: Family, protocol: Protocol) -> None:
    ((leg,),) = operation((flow_set(steps=(2, 3)),), way=replace(RING, family=family, protocol=protocol)).phases

    row = LATENCY_OF[family]
    hops = 2 * row.hop_s["nvlink"][protocol] + 3 * row.hop_s["net"][protocol]
    assert leg.latency_s == pytest.approx(CALIBRATION.families[family].start_s + row.base_s[protocol] + hops, rel=ROUND_OFF)


def test_only_the_first_phase_pays_the_start() -> None:
    first, second = operation((flow_set(steps=(1, 0)),), (flow_set(steps=(4, 0)),)).phases

    hop_s = LATENCY_OF["ring"].hop_s["nvlink"]["simple"]
    assert first[0].latency_s == pytest.approx(5e-6 + LATENCY_OF["ring"].base_s["simple"] + hop_s, rel=ROUND_OFF)
    assert second[0].latency_s == pytest.approx(4 * hop_s, rel=ROUND_OFF)


def test_flow_sets_beside_each_other_all_wait_for_the_start() -> None:
    ((one, other),) = operation((flow_set(steps=(1, 0)), flow_set(steps=(4, 0)))).phases

    assert other.latency_s - one.latency_s == pytest.approx(3 * LATENCY_OF["ring"].hop_s["nvlink"]["simple"], rel=1e-9)
    assert one.latency_s > 5e-6


def test_pieces_pay_all_latency_each_and_move_the_bytes_once() -> None:
    phases = (flow_set(steps=(1, 0)),), (flow_set(steps=(4, 0)),)
    once, thrice = operation(*phases), operation(*phases, pieces=3)

    assert [leg.latency_s for (leg,) in thrice.phases] == pytest.approx([3 * leg.latency_s for (leg,) in once.phases], rel=ROUND_OFF)
    assert [leg.bytes_per_flow for (leg,) in thrice.phases] == [leg.bytes_per_flow for (leg,) in once.phases]


def test_the_latencies_of_the_library_serve_where_a_calibration_brings_none() -> None:
    shipped = NetworkCalibration(
        efficiency=CALIBRATION.efficiency,
        families=CALIBRATION.families,
        ceilings=CALIBRATION.ceilings,
        multiprocessors=24,
        library=LIMITS,
    )

    assert shipped.latencies is LATENCIES
    assert shipped.protocols == PROTOCOLS


# Ramp-up


def ramp_s(*phases: tuple[FlowSet, ...], way: Way = RING, size_bytes: float = SIZE, rate: float = RATE) -> float:
    """Return what a call costs above its start."""
    found = call_overhead_s(candidate(*phases, rate=rate), way, CALIBRATION, size_bytes=size_bytes)
    return found - CALIBRATION.families[way.family].start_s - LATENCY_OF[way.family].base_s[way.protocol]


@pytest.mark.parametrize("family", FAMILIES)
def test_ramp_up_is_that_of_the_best_chunks(family: Family) -> None:
    overhead_s = 6 * CALIBRATION.families[family].chunk_s + 2 * 3e-6

    found_s = ramp_s((flow_set(steps=(6, 2), wire_s=(1.0, 3e-6)),), way=replace(RING, family=family))

    # The least of S/B/k + k * overhead over all k.
    chunks = np.geomspace(1.0, 1e5, 20_000)
    assert found_s == pytest.approx(2 * sqrt(SIZE / RATE * overhead_s), rel=1e-9)
    assert found_s == pytest.approx(float((SIZE / RATE / chunks + chunks * overhead_s).min()), rel=1e-6)


def test_a_chain_waits_for_a_whole_chunk_of_a_channel_at_each_relay() -> None:
    chain = replace(flow_set(steps=(0, 63), wire_s=(0.0, 3e-6)), relays=63, channels=8)

    assert ramp_s((chain,), size_bytes=1e9) == pytest.approx(63 * 8 * STEP_BYTES[RING.protocol] / RATE, rel=1e-9)
    assert ramp_s((chain,), size_bytes=1e3) == pytest.approx(63 * 1e3 / RATE, rel=1e-9)


def test_overheads_of_phases_add_up_and_of_flow_sets_beside_each_other_the_longest_counts() -> None:
    chunk_s = CALIBRATION.families["ring"].chunk_s

    found_s = ramp_s((flow_set(steps=(6, 0)), flow_set(steps=(2, 0))), (flow_set(steps=(3, 0)),))

    assert found_s == pytest.approx(2 * sqrt(SIZE / RATE * (6 + 3) * chunk_s), rel=1e-9)


def test_chunks_grow_no_larger_than_the_buffers() -> None:
    overhead_s = 10 * CALIBRATION.families["ring"].chunk_s
    # From here on the best chunk would be larger: S/k = sqrt(S B overhead).
    turn_bytes = LIMITS.in_flight_bytes**2 / RATE / overhead_s
    phase = (flow_set(steps=(10, 0)),)

    below, above, far = (ramp_s(phase, size_bytes=times * turn_bytes) for times in (0.25, 1.0, 100.0))

    assert below == pytest.approx(LIMITS.in_flight_bytes / RATE, rel=1e-9)
    assert above == pytest.approx(2 * LIMITS.in_flight_bytes / RATE, rel=1e-9)
    assert far == pytest.approx(2 * LIMITS.in_flight_bytes / RATE, rel=1e-9)


def test_the_simple_protocol_ramps_at_the_idle_rate_and_lines_below_it() -> None:
    phase = (flow_set(steps=(10, 0)),)

    simple_s, lines_s = (ramp_s(phase, way=replace(RING, protocol=protocol)) for protocol in ("simple", "ll128"))

    assert lines_s / simple_s == pytest.approx(sqrt(128 / 120), rel=1e-9)


def test_a_ceiling_below_the_links_sets_the_rate_of_the_ramp_up() -> None:
    phase = (flow_set(steps=(10, 0)),)

    free_s, held_s = (ramp_s(phase, way=replace(RING, ceiling_bytes_per_s=ceiling)) for ceiling in (5 * RATE, RATE / 4))

    assert held_s / free_s == pytest.approx(2.0, rel=1e-9)


def test_low_latency_stores_have_no_chunks_to_wait_for() -> None:
    assert ramp_s((flow_set(steps=(10, 0)),), way=replace(RING, protocol="ll")) == pytest.approx(0.0, abs=1e-18)


def test_each_piece_ramps_up_by_its_own_size() -> None:
    phase = (flow_set(steps=(10, 0)),)
    ((leg,),) = operation(phase, rate=RATE, pieces=4).phases

    start_s = 5e-6 + LATENCY_OF["ring"].base_s["simple"] + 10 * LATENCY_OF["ring"].hop_s["nvlink"]["simple"]
    assert leg.latency_s == pytest.approx(4 * (start_s + ramp_s(phase, size_bytes=SIZE / 4)), rel=ROUND_OFF)


# Bytes and rates


@pytest.mark.parametrize(("protocol", "wire_bytes"), [("ll", 8 / 4), ("ll128", 128 / 120), ("simple", 1.0)])
def test_flags_of_a_protocol_go_over_the_wire_too(protocol: Protocol, wire_bytes: float) -> None:
    ((leg,),) = operation((flow_set(share=0.25),), way=replace(RING, protocol=protocol)).phases

    assert leg.bytes_per_flow == pytest.approx(0.25 * SIZE * wire_bytes, rel=ROUND_OFF)


def test_an_operation_says_how_it_is_done_and_whether_members_are_placed_alike() -> None:
    done = timed(candidate((flow_set(),), uniform=False), replace(RING, protocol="ll128"), CLUSTER, CALIBRATION, size_bytes=1.0)

    assert (done.algorithm, done.protocol, done.uniform) == ("ring", "ll128", False)


def test_the_idle_rate_is_that_of_the_fullest_link_of_each_phase() -> None:
    inside, between = flow_set(on("nvlink", 1.0, 4.0), share=0.5), flow_set(on("nic", 2.0), share=0.25)

    rate = idle_rate_bytes_per_s(Pattern(phases=((inside,), (between,)), uniform=True), CLUSTER.bandwidth_bytes_per_s)

    assert 1.0 / rate == pytest.approx(2.0 / SCALE_UP_BYTES_PER_S + 0.5 / NIC_BYTES_PER_S, rel=ROUND_OFF)


def test_flow_sets_beside_each_other_add_up_on_the_links_they_share() -> None:
    one, other = flow_set(on("nvlink", 1.0), share=0.5), flow_set(on("nvlink", 3.0, 1.0), share=0.25)

    rate = idle_rate_bytes_per_s(Pattern(phases=((one, other),), uniform=True), CLUSTER.bandwidth_bytes_per_s)

    assert rate == pytest.approx(SCALE_UP_BYTES_PER_S / 1.25, rel=ROUND_OFF)


# Ceilings


CEILINGS = [
    ("nvls", replace(RING, algorithm="nvls"), "nvlink", 0.7 * SCALE_UP_BYTES_PER_S),
    ("sharp", replace(RING, algorithm="sharp"), "nvlink", 0.7 * SCALE_UP_BYTES_PER_S),
    ("exchange", replace(RING, spreads=True), "nvlink", 0.6 * SCALE_UP_BYTES_PER_S),
    ("pair", replace(RING, pair=True), "nvlink", 0.4 * SCALE_UP_BYTES_PER_S),
    ("peer", replace(RING, medium="pcie"), "pcie", 0.3 * PCIE_BYTES_PER_S),
]
"""Engine behind the links, and its share of the data sheet's bandwidth; usable is half of it here."""


@pytest.mark.parametrize(("way", "tier", "most"), [row[1:] for row in CEILINGS], ids=[row[0] for row in CEILINGS])
def test_multiprocessors_cap_the_links_that_they_drive(way: Way, tier: str, most: float) -> None:
    # The fullest link is the one that counts.
    assert cap_of(on(tier, 1.0, 4.0, 2.0), way) == pytest.approx(most / 4.0, rel=ROUND_OFF)


@pytest.mark.parametrize(("way", "tier"), [row[1:3] for row in CEILINGS], ids=[row[0] for row in CEILINGS])
def test_they_cap_no_other_links(way: Way, tier: str) -> None:
    assert cap_of(on("pcie" if tier == "nvlink" else "nvlink", 1.0), way) == inf


def test_a_ring_over_nvlink_has_the_links_to_itself() -> None:
    assert cap_of(on("nvlink", 1.0), RING) == inf
    assert cap_of(on("pcie", 1.0), RING) == inf


def test_data_for_other_nodes_do_not_go_from_peer_to_peer() -> None:
    way = replace(RING, medium="pcie")

    assert cap_of(on("pcie", 1.0), way, steps=(1, 1)) == inf


def test_the_lowest_of_several_ceilings_counts() -> None:
    way = replace(RING, algorithm="nvls", spreads=True, pair=True)

    assert cap_of(on("nvlink", 1.0), way) == pytest.approx(0.4 * SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_channels_cap_the_tensor_whatever_its_flows_and_flags(protocol: Protocol) -> None:
    way = replace(RING, protocol=protocol, ceiling_bytes_per_s=8e9)

    ((leg,),) = operation((flow_set(on("nic", 3.0), share=0.125),), way=way).phases

    # At its cap the whole tensor, flags and all, takes S over the ceiling.
    assert leg.bytes_per_flow / leg.cap_bytes_per_s == pytest.approx(SIZE / 8e9, rel=ROUND_OFF)
    assert leg.cap_bytes_per_s == pytest.approx(0.125 * 8e9 / DATA_SHARE[protocol], rel=ROUND_OFF)


def test_links_may_cap_below_the_channels() -> None:
    way = replace(RING, spreads=True, ceiling_bytes_per_s=1e15)

    assert cap_of(on("nvlink", 1.0), way) == pytest.approx(0.6 * SCALE_UP_BYTES_PER_S, rel=ROUND_OFF)


def test_a_cap_is_that_of_one_group_however_many_are_beside_it() -> None:
    pattern, lone = (Pattern(phases=((flow_set(on("nvlink", flows), steps=(1, 0)),),), uniform=True) for flows in (6.0, 2.0))
    many = AlgorithmCandidate(algorithm="ring", pattern=pattern, lone=lone, idle_rate_bytes_per_s=RATE, known_rate_bytes_per_s=RATE)

    ((leg,),) = timed(many, replace(RING, pair=True), CLUSTER, CALIBRATION, size_bytes=SIZE).phases

    assert leg.route_set.flows.tolist() == [6.0]
    assert leg.cap_bytes_per_s == pytest.approx(0.4 * SCALE_UP_BYTES_PER_S / 2.0, rel=ROUND_OFF)


def test_where_groups_have_other_flow_sets_than_the_first_the_caps_are_those_of_all() -> None:
    beside = flow_set(on("nvlink", 5.0), steps=(1, 0))
    pattern = Pattern(phases=((flow_set(on("nvlink", 4.0), steps=(1, 0)), beside),), uniform=False)
    lone = Pattern(phases=((flow_set(on("nvlink", 2.0), steps=(1, 0)),),), uniform=True)
    many = AlgorithmCandidate(algorithm="ring", pattern=pattern, lone=lone, idle_rate_bytes_per_s=RATE, known_rate_bytes_per_s=RATE)

    ((one, other),) = timed(many, replace(RING, pair=True), CLUSTER, CALIBRATION, size_bytes=SIZE).phases

    assert one.cap_bytes_per_s == pytest.approx(0.4 * SCALE_UP_BYTES_PER_S / 4.0, rel=ROUND_OFF)
    assert other.cap_bytes_per_s == pytest.approx(0.4 * SCALE_UP_BYTES_PER_S / 5.0, rel=ROUND_OFF)
