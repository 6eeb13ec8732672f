from __future__ import annotations

import pytest

from clustersim.network.in_flight import FEW, FlowsInFlight

INF = float("inf")


def in_flight(n_flow_classes: int = 2) -> FlowsInFlight:
    made = FlowsInFlight()
    made.grow(n_flow_classes)
    return made


def test_nothing_in_flight_never_lands() -> None:
    assert in_flight(0).next_end_s() == INF
    assert in_flight(0).landed(0.0) == []


def test_a_flow_lands_when_its_bytes_have_moved() -> None:
    found = in_flight()
    found.start(7, 1, 10.0, 3.0)
    found.set_rates([1], [5.0], 3.0)

    assert found.next_end_s() == 5.0
    assert found.landed(5.0) == [(7, 1)]
    assert found.counts == {}


def test_a_flow_keeps_what_it_moved_when_the_rate_changes() -> None:
    found = in_flight()
    found.start(0, 0, 10.0, 0.0)
    found.set_rates([0], [5.0], 0.0)

    found.set_rates([0], [1.0], 1.0)

    assert found.next_end_s() == 6.0


def test_flows_of_a_flow_class_land_by_their_bytes_and_their_start() -> None:
    found = in_flight()
    found.start(0, 0, 10.0, 0.0)
    found.set_rates([0], [1.0], 0.0)
    found.start(1, 0, 3.0, 4.0)
    found.set_rates([0], [1.0], 4.0)

    assert found.next_end_s() == 7.0
    assert found.landed(7.0) == [(1, 0)]
    found.set_rates([0], [1.0], 7.0)
    assert found.next_end_s() == 10.0


def test_what_lands_together_is_returned_in_the_order_of_its_start() -> None:
    found = in_flight()
    for flow, flow_class in ((5, 1), (3, 0), (4, 1)):
        found.start(flow, flow_class, 2.0, 0.0)
    found.set_rates([0, 1], [1.0, 1.0], 0.0)

    assert found.landed(2.0) == [(5, 1), (3, 0), (4, 1)]


def test_what_differs_by_round_off_lands_together() -> None:
    found = in_flight()
    found.start(0, 0, 1.0, 0.0)
    found.start(1, 1, 1.0 + 1e-14, 0.0)
    found.set_rates([0, 1], [1.0, 1.0], 0.0)

    assert len(found.landed(1.0)) == 2


def test_what_differs_by_more_does_not() -> None:
    found = in_flight()
    found.start(0, 0, 1.0, 0.0)
    found.start(1, 0, 1.0 + 1e-9, 0.0)
    found.set_rates([0], [1.0], 0.0)

    assert found.landed(1.0) == [(0, 0)]


def test_a_stopped_flow_does_not_land() -> None:
    found = in_flight()
    found.start(0, 0, 1.0, 0.0)
    found.start(1, 0, 2.0, 0.0)

    assert found.stop(0, 1.0) == 0
    found.set_rates([0], [1.0], 0.0)

    assert found.next_end_s() == 2.0
    assert found.landed(2.0) == [(1, 0)]


def test_a_flow_that_is_stopped_and_started_again_counts_once() -> None:
    found = in_flight()
    found.start(0, 0, 1.0, 0.0)
    found.start(1, 0, 9.0, 0.0)
    found.stop(0, 1.0)
    found.start(0, 0, 2.0, 0.0)
    found.set_rates([0], [1.0], 0.0)

    assert found.next_end_s() == 2.0
    assert found.landed(2.0) == [(0, 0)]


def test_an_endless_flow_never_lands() -> None:
    found = in_flight()
    found.start(0, 0, INF, 0.0)
    found.set_rates([0], [5.0], 0.0)

    assert found.next_end_s() == INF
    assert found.counts == {0: 1}


def test_a_flow_without_rate_never_lands() -> None:
    found = in_flight()
    found.start(0, 0, 1.0, 0.0)
    found.set_rates([0], [0.0], 0.0)

    assert found.next_end_s() == INF


def test_a_flow_without_bytes_lands_at_once_whatever_its_rate() -> None:
    found = in_flight()
    found.start(0, 0, 0.0, 2.0)
    found.set_rates([0], [0.0], 2.0)

    assert found.landed(2.0) == [(0, 0)]


def test_a_boundless_flow_lands_at_once_and_an_endless_one_stays() -> None:
    found = in_flight()
    found.start(0, 0, INF, 1.0)
    found.start(1, 0, 5.0, 1.0)
    found.set_rates([0], [INF], 1.0)
    assert found.landed(1.0) == [(1, 0)]

    found.set_rates([0], [INF], 1.0)
    found.start(2, 0, 5.0, 9.0)
    found.set_rates([0], [INF], 9.0)

    assert found.landed(9.0) == [(2, 0)]


def test_a_short_flow_beside_endless_traffic_of_its_flow_class_is_exact() -> None:
    found = in_flight()
    found.start(0, 0, INF, 0.0)
    found.set_rates([0], [1e9], 0.0)
    found.start(1, 0, 1.0, 1e9)  # after 10**18 bytes
    found.start(2, 0, 3.0, 1e9)
    found.set_rates([0], [1e-6], 1e9)

    assert found.next_end_s() == pytest.approx(1e9 + 1e6, rel=1e-15)


def test_many_flow_classes_are_given_rates_like_few() -> None:
    few, many = in_flight(4 * FEW), in_flight(4 * FEW)
    flow_classes, rates = list(range(4 * FEW)), [float(flow_class % 5) for flow_class in range(4 * FEW)]
    for found in (few, many):
        for flow_class in flow_classes:
            found.start(flow_class, flow_class, INF if flow_class % 7 == 3 else 0.0 if flow_class % 11 == 5 else 10.0 + flow_class, 0.0)
    many.set_rates(flow_classes, rates, 0.0)
    for flow_class in flow_classes:
        few.set_rates([flow_class], [rates[flow_class]], 0.0)

    for now_s in (0.0, 2.0, 5.0, 9.0, 40.0):
        assert few.next_end_s() == many.next_end_s()
        assert few.landed(now_s) == many.landed(now_s)
        left = [flow_class for flow_class in flow_classes if flow_class in many.counts]
        many.set_rates(left, [rates[flow_class] + 1.0 for flow_class in left], now_s)
        for flow_class in left:
            few.set_rates([flow_class], [rates[flow_class] + 1.0], now_s)


def test_a_flow_class_that_was_idle_begins_anew() -> None:
    found = in_flight()
    found.start(0, 0, 4.0, 0.0)
    found.set_rates([0], [2.0], 0.0)
    found.landed(2.0)

    found.start(1, 0, 4.0, 10.0)
    found.set_rates([0], [2.0], 10.0)

    assert found.next_end_s() == 12.0


def test_room_for_more_flow_classes_keeps_what_is_in_flight() -> None:
    found = in_flight(1)
    found.start(0, 0, 4.0, 0.0)
    found.set_rates([0], [2.0], 0.0)

    found.grow(5)

    assert found.next_end_s() == 2.0
    found.start(1, 4, 1.0, 1.0)
    found.set_rates([4], [4.0], 1.0)
    assert found.landed(1.25) == [(1, 4)]
