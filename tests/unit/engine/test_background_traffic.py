"""Loads of others: what they take, when, and what the links say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.engine.background_traffic import prepare_loads
from clustersim.engine.simulate import Machine, replay
from clustersim.errors import DeadlockError
from clustersim.network.in_flight import TICK_S
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Background
from clustersim.program.tasks import Action, Task
from clustersim.topology.link_demand import RouteSet
from clustersim.trace.timeline import LinkUse, Timeline
from tests.unit.engine.factories import (
    collective,
    communicate,
    compute,
    group_of,
    make_machine,
    program,
    task,
    transfer,
    work,
)
from tests.unit.topology.factories import NIC_BYTES_PER_S, SCALE_UP_BYTES_PER_S

SEND = transfer((0, 8), size_bytes=NIC_BYTES_PER_S)
"""A second from one node to another."""


def link_ids(machine: Machine, *names: str) -> tuple[int, ...]:
    known = {link.name: link_id for link_id, link in enumerate(machine.cluster.links)}
    return tuple(known[name] for name in names)


def load_on(machine: Machine, *names: str, rate: float = 0.5 * NIC_BYTES_PER_S, name: str = "backup", **times: float) -> Background:
    """Return a load; ``times`` are start_s, period_s and burst_s."""
    load = Background(name=name, link_ids=link_ids(machine, *names), rate_bytes_per_s=rate)
    return replace(load, **times)


def timeline_with(machine: Machine, background: list[Background], *tasks: Task) -> Timeline:
    return replay(program(*tasks, n_ranks=machine.cluster.n_ranks), machine, background)[0]


def step_s(machine: Machine, background: list[Background], *actions: Action) -> float:
    chain = [task(action, *([index - 1] if index else [])) for index, action in enumerate(actions)]
    return timeline_with(machine, background, *chain).step_time_s


def use_of(timeline: Timeline, name: str) -> LinkUse:
    (use,) = [link for link in timeline.links if link.name == name]
    return use


def test_a_load_takes_its_rate_from_whoever_fills_the_link() -> None:
    machine = make_machine(n_nodes=2)

    quarter = [load_on(machine, "node0/nic0/tx", rate=0.25 * NIC_BYTES_PER_S)]

    assert step_s(machine, quarter, SEND) == pytest.approx(4 / 3, abs=4 * TICK_S)


def test_a_load_gets_no_more_than_its_fair_share() -> None:
    machine = make_machine(n_nodes=2)
    greedy = [load_on(machine, "node0/nic0/tx", rate=NIC_BYTES_PER_S)]

    timeline = timeline_with(machine, greedy, task(SEND))

    assert timeline.step_time_s == pytest.approx(2.0, rel=1e-12)
    assert use_of(timeline, "node0/nic0/tx").bytes == pytest.approx(2 * NIC_BYTES_PER_S, rel=1e-12)


def test_a_load_of_many_flows_gets_the_share_of_so_many() -> None:
    machine = make_machine(n_nodes=2)
    (ids,) = [link_ids(machine, "node0/nic0/tx")]
    crowd = Background(name="crowd", link_ids=ids, rate_bytes_per_s=NIC_BYTES_PER_S, n_flows=3)

    assert step_s(machine, [crowd], SEND) == pytest.approx(4.0, rel=1e-12)


def test_a_link_that_is_named_twice_carries_the_load_twice() -> None:
    machine = make_machine(n_nodes=2)
    twice = [load_on(machine, "node0/nic0/tx", "node0/nic0/tx", rate=0.2 * NIC_BYTES_PER_S)]

    assert step_s(machine, twice, SEND) == pytest.approx(1 / 0.6, abs=4 * TICK_S)


def test_a_load_on_a_wide_link_slows_nobody() -> None:
    machine = make_machine(n_nodes=2)
    light = [load_on(machine, "node0/gpu0/pcie/up", rate=1e9)]

    assert step_s(machine, light, SEND) == step_s(machine, [], SEND)


def test_a_load_on_links_that_nobody_uses_changes_no_time() -> None:
    machine = make_machine(n_nodes=2)
    actions = [compute(work(0.3), name="F"), SEND, communicate(group_of((0, 1, 2, 3)), SCALE_UP_BYTES_PER_S)]

    alone, beside = (step_s(machine, loads, *actions) for loads in ([], [load_on(machine, "node1/nic7/tx", "node1/memory")]))

    assert beside == alone


def test_each_link_carries_a_load_by_itself() -> None:
    # The first adapter is full, so that the load gets half of it; on the idle one it has its rate all the same.
    machine = make_machine(n_nodes=2)
    greedy = [load_on(machine, "node0/nic0/tx", "node0/nic1/tx", rate=NIC_BYTES_PER_S)]

    timeline = timeline_with(machine, greedy, task(SEND))

    idle = use_of(timeline, "node0/nic1/tx")
    assert idle.bytes == pytest.approx(NIC_BYTES_PER_S * timeline.step_time_s, rel=1e-12)
    assert idle.peak_utilisation == pytest.approx(1.0, rel=1e-12)
    assert idle.users == ("backup",)


def test_a_load_stays_as_long_as_the_step_and_no_longer() -> None:
    machine = make_machine(n_nodes=2)
    light = [load_on(machine, "node1/nic7/tx", rate=2.0)]

    # The network has nothing to do for the first second and the last.
    timeline = timeline_with(machine, light, task(compute(work(1.0))), task(SEND, 0), task(compute(work(1.0)), 1))

    use = use_of(timeline, "node1/nic7/tx")
    assert (use.bytes, use.busy_s) == pytest.approx((2.0 * 3.0, 3.0), rel=1e-12)


def test_a_burst_that_goes_on_at_the_end_is_cut_off() -> None:
    machine = make_machine(n_nodes=2)
    bursts = [load_on(machine, "node1/nic7/tx", rate=2.0, period_s=0.75, burst_s=0.5)]

    use = use_of(timeline_with(machine, bursts, task(compute(work(1.0)))), "node1/nic7/tx")

    # From 0 to 0.5 s and from 0.75 s to the end.
    assert (use.bytes, use.busy_s) == pytest.approx((2.0 * 0.75, 0.75), rel=1e-12)


def test_a_load_that_would_start_later_never_does() -> None:
    machine = make_machine(n_nodes=2)

    timeline = timeline_with(machine, [load_on(machine, "node0/nic0/tx", start_s=5.0)], task(SEND))

    assert timeline.step_time_s == step_s(machine, [], SEND)
    assert use_of(timeline, "node0/nic0/tx").users == ("pp send",)


def test_a_load_starts_when_it_says() -> None:
    machine = make_machine(n_nodes=2)

    late = [load_on(machine, "node0/nic0/tx", start_s=0.25)]

    # A quarter alone, the other three at half the rate.
    assert step_s(machine, late, SEND) == pytest.approx(0.25 + 2 * 0.75, rel=1e-12)


@pytest.mark.parametrize("size_s", [0.3, 7.77])
@pytest.mark.parametrize("rate_fraction", [0.2, 1.0])
@pytest.mark.parametrize(("start_s", "period_s", "burst_s"), [(0.0, 1.0, 0.25), (0.4, 0.5, 0.4), (0.1, 3.0, 0.001)])
def test_a_square_wave_slows_a_transfer_in_its_bursts_only(
    size_s: float, rate_fraction: float, start_s: float, period_s: float, burst_s: float
) -> None:
    machine = make_machine(n_nodes=2)
    wave = load_on(
        machine, "node0/nic0/tx", rate=rate_fraction * NIC_BYTES_PER_S, start_s=start_s, period_s=period_s, burst_s=burst_s
    )  # fmt: skip

    measured_s = step_s(machine, [wave], transfer((0, 8), size_bytes=size_s * NIC_BYTES_PER_S))

    # One flow against one: what the load leaves, and half at least.
    slow = max(1.0 - rate_fraction, 0.5)
    left_s = size_s - start_s
    if left_s <= 0.0:
        expected_s = size_s
    else:
        of_period_s = slow * burst_s + period_s - burst_s
        n_whole, rest_s = divmod(left_s, of_period_s)
        in_burst_s = min(rest_s, slow * burst_s)
        expected_s = start_s + n_whole * period_s + in_burst_s / slow + rest_s - in_burst_s
    assert measured_s == pytest.approx(expected_s, rel=1e-9)


def test_a_pass_meets_a_load_on_the_links_of_its_collectives() -> None:
    machine = make_machine()
    tp = group_of((0, 1), name="tp", dimension="tp")
    action = compute(work(0.1), collective(tp, SCALE_UP_BYTES_PER_S))
    half = [load_on(machine, "node0/gpu0/nvlink/up", rate=0.5 * SCALE_UP_BYTES_PER_S)]

    timeline = timeline_with(machine, half, task(action))

    # The pair has two rings, each of which goes up once: the load is one flow of three.
    assert timeline.step_time_s == pytest.approx(0.1 + 1.5, abs=4 * TICK_S)
    (span,) = timeline.spans
    assert dict(span.exposed_s)["tp"] == pytest.approx(1.5, rel=1e-12)


def test_links_say_what_met_the_load() -> None:
    machine = make_machine(n_nodes=2)

    use = use_of(timeline_with(machine, [load_on(machine, "node0/nic0/tx", start_s=0.5)], task(SEND)), "node0/nic0/tx")

    assert use.users == ("pp send", "backup")
    assert [(meeting.names, meeting.seconds) for meeting in use.meetings] == [(("backup", "pp send"), pytest.approx(1.0, rel=1e-12))]


@pytest.mark.parametrize("times", [{}, {"period_s": 0.5, "burst_s": 0.1}])
def test_a_deadlock_is_found_although_a_load_goes_on_for_ever(times: dict[str, float]) -> None:
    machine = make_machine(n_nodes=2)
    circle = program(task(SEND), task(compute(work(1.0)), 2), task(communicate(group_of((0, 1)), 1.0), 1), n_ranks=16)

    with pytest.raises(DeadlockError, match="2 of 3 tasks wait"):
        replay(circle, machine, [replace(load_on(machine, "node0/nic0/tx"), **times)])


def network_of(*route_sets: tuple[int, ...], n_links: int = 6) -> SharedNetwork:
    network = SharedNetwork(np.full(n_links, 8.0))
    for links in route_sets:
        network.add_class(RouteSet(link_ids=np.array(links), flows=np.ones(len(links))))
    return network


def laid_on(network: SharedNetwork, *loads: tuple[int, ...]) -> list[tuple[str, list[int]]]:
    background = [Background(name=str(place), link_ids=links, rate_bytes_per_s=1.0) for place, links in enumerate(loads)]
    found = prepare_loads(background, network, np.full(6, 8.0))
    return [(load.background.name, network.flow_classes[load.flow_class].route_set.link_ids.tolist()) for load in found]


def test_links_that_nothing_tells_apart_are_one_flow_class() -> None:
    assert laid_on(network_of((0, 1, 2, 3)), (3, 2)) == [("0", [2, 3])]


def test_links_that_a_flow_tells_apart_are_flow_classes_of_their_own() -> None:
    assert laid_on(network_of((0, 1, 2), (2, 3)), (0, 1, 2, 3, 4)) == [("0", [4]), ("0", [0, 1]), ("0", [2]), ("0", [3])]


def test_links_that_another_load_tells_apart_are_flow_classes_of_their_own() -> None:
    assert laid_on(network_of((0, 1, 2, 3)), (0, 1), (1, 2)) == [("0", [0]), ("0", [1]), ("1", [2]), ("1", [1])]


def test_no_loads_are_no_flow_classes() -> None:
    network = network_of((0, 1))

    assert laid_on(network) == []
    assert len(network.flow_classes) == 1
