from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.in_flight import TICK_S, whole_ticks_s
from clustersim.network.sharing import SharedNetwork
from tests.unit.network.factories import INF, finish, leaf_spine, route_set


def network(*capacity: float) -> SharedNetwork:
    return SharedNetwork(np.array(capacity))


def test_equal_flow_classes_have_one_number() -> None:
    shared = network(8.0, 4.0)

    first = shared.add_class(route_set([0, 1]))
    assert shared.add_class(route_set({0: 1.0, 1: 1.0})) == first
    assert shared.add_class(route_set([0, 1]), weight=2.0) != first
    assert shared.add_class(route_set([0, 1]), cap_bytes_per_s=2.0) != first
    assert shared.add_class(route_set({0: 2.0, 1: 1.0})) != first
    assert len(shared.flow_classes) == 4


def test_an_emptied_network_has_the_same_flow_classes_and_begins_anew() -> None:
    shared = SharedNetwork(np.array([8.0, 4.0]), labels=np.array([3, 5]), few=7)
    first, second = shared.add_class(route_set([0]), cap_bytes_per_s=3.0), shared.add_class(route_set([0, 1]), weight=2.0)
    shared.start(0, first, 8.0)
    shared.share()
    shared.advance(1.0)

    emptied = shared.emptied()

    assert (emptied.now_s, emptied.next_end_s()) == (0.0, INF)
    assert [flow_class.key for flow_class in emptied.flow_classes] == [flow_class.key for flow_class in shared.flow_classes]
    state = ((first, 2), (second, 1))
    assert emptied.rates(state) == shared.rates(state)
    assert emptied.idle_rate(first) == 3.0


def test_flows_take_whole_ticks() -> None:
    shared = SharedNetwork(np.array([3.0]))
    flow_classes = [shared.add_class(route_set([0]), weight=1.0 + each) for each in range(20)]

    for each, flow_class in enumerate(flow_classes):
        shared.start(each, flow_class, 0.1 * (1.0 + each))
    shared.share()
    ends = finish(shared)

    assert all(end_s % TICK_S == 0.0 for end_s in ends.values())
    assert whole_ticks_s(1e-3) == pytest.approx(1e-3, abs=TICK_S / 2)


def test_flow_classes_with_equal_sums_are_told_apart() -> None:
    shared = network(*[8.0] * 6)

    first = shared.add_class(route_set({0: 1.0, 1: 2.0, 4: 1.0, 5: 1.0}))
    other_links = shared.add_class(route_set({0: 1.0, 2: 2.0, 3: 1.0, 5: 1.0}))
    other_flows = shared.add_class(route_set({0: 1.0, 1: 1.0, 4: 2.0, 5: 1.0}))

    assert [first, other_links, other_flows] == [0, 1, 2]
    assert shared.add_class(route_set({0: 1.0, 1: 1.0, 4: 2.0, 5: 1.0})) == other_flows


def test_links_that_no_flow_crosses_do_not_count() -> None:
    shared = network(8.0, 4.0)

    assert shared.add_class(route_set({0: 1.0, 1: 0.0})) == shared.add_class(route_set([0]))


def test_an_idle_rate_is_that_of_one_flow_alone() -> None:
    shared = network(9.0, 4.0)

    assert shared.idle_rate(shared.add_class(route_set([0, 1]))) == 4.0
    assert shared.idle_rate(shared.add_class(route_set({0: 3.0, 1: 1.0}), weight=5.0)) == 3.0
    assert shared.idle_rate(shared.add_class(route_set([0]), cap_bytes_per_s=2.0)) == 2.0
    assert shared.idle_rate(shared.add_class(route_set([]))) == INF


def test_flows_of_a_lower_bound_have_the_rates_that_they_have_alone() -> None:
    shared = network(8.0, 4.0)
    shared.shares = False
    wide, narrow = shared.add_class(route_set([0])), shared.add_class(route_set([0, 1]))

    for flow, flow_class in enumerate((wide, narrow, narrow)):
        shared.start(flow, flow_class, 8.0)
    shared.share()

    assert finish(shared) == {0: 1.0, 1: 2.0, 2: 2.0}


def test_a_flow_class_may_be_added_while_others_are_in_flight() -> None:
    shared = network(4.0)
    shared.start(0, shared.add_class(route_set([0])), 8.0)
    shared.share()
    shared.advance(1.0)

    shared.start(1, shared.add_class(route_set([0]), weight=3.0), 3.0)
    shared.share()

    # 4 B left at 1 B/s for 1 s, then 3 B at 4 B/s.
    assert finish(shared) == {1: 2.0, 0: 2.75}


def test_background_traffic_stays_until_it_is_stopped() -> None:
    shared = network(4.0)
    flow_class = shared.add_class(route_set([0]))
    shared.start(0, flow_class, INF)
    shared.start(1, flow_class, 4.0)
    shared.start(2, flow_class, 8.0)
    shared.share()
    assert shared.next_end_s() == 3.0
    shared.advance(3.0)
    assert shared.finished() == [1]

    shared.stop(0)
    shared.share()

    assert finish(shared) == {2: 4.0}


def test_a_flow_that_crosses_nothing_lands_at_once() -> None:
    shared = network(4.0)
    shared.start(0, shared.add_class(route_set([])), 1e12)
    shared.share()

    assert finish(shared) == {0: 0.0}


def test_a_link_without_capacity_holds_its_flows_for_ever() -> None:
    shared = network(0.0)
    shared.start(0, shared.add_class(route_set([0])), 1.0)
    shared.share()

    assert shared.next_end_s() == INF


def test_nothing_happens_without_flow_classes() -> None:
    shared = network(4.0)
    shared.share()
    shared.advance(3.0)

    assert shared.finished() == []
    assert shared.next_end_s() == INF
    assert shared.occupancy() == {}


def test_what_lands_is_named_in_the_order_of_its_start() -> None:
    shared = network(4.0, 4.0)
    flow_classes = [shared.add_class(route_set([link])) for link in (0, 1)]
    for flow, link in ((9, 1), (4, 0), (7, 1), (2, 0)):
        shared.start(flow, flow_classes[link], 4.0)
    shared.share()
    shared.advance(2.0)

    assert shared.finished() == [9, 4, 7, 2]


def test_the_seconds_of_each_state_are_counted() -> None:
    shared = network(4.0)
    flow_class = shared.add_class(route_set([0]))
    shared.start(0, flow_class, 4.0)
    shared.start(1, flow_class, 8.0)
    shared.share()
    finish(shared)

    assert shared.occupancy() == {((flow_class, 2),): 2.0, ((flow_class, 1),): 1.0}


def test_the_present_state_counts_up_to_now() -> None:
    shared = network(4.0)
    flow_class = shared.add_class(route_set([0]))
    shared.start(0, flow_class, INF)
    shared.share()

    shared.advance(5.0)

    assert shared.occupancy() == {((flow_class, 1),): 5.0}
    assert shared.occupancy() == {((flow_class, 1),): 5.0}


def test_flow_classes_that_never_meet_have_states_of_their_own() -> None:
    shared = network(4.0, 2.0)
    first, second = (shared.add_class(route_set([link])) for link in (0, 1))
    shared.start(0, first, 4.0)
    shared.start(1, second, 4.0)
    shared.share()
    finish(shared)

    assert shared.occupancy() == {((first, 1),): 1.0, ((second, 1),): 2.0}


def test_seconds_are_kept_when_a_new_flow_class_connects_what_was_apart() -> None:
    shared = network(4.0, 4.0)
    first, second = (shared.add_class(route_set([link])) for link in (0, 1))
    shared.start(0, first, INF)
    shared.start(1, second, INF)
    shared.share()
    shared.advance(1.0)

    both = shared.add_class(route_set([0, 1]))
    shared.start(2, both, 4.0)
    shared.share()
    finish(shared)

    assert shared.occupancy() == {((first, 1),): 1.0, ((second, 1),): 1.0, ((first, 1), (second, 1), (both, 1)): 2.0}


def test_there_is_no_account_for_those_who_want_none() -> None:
    shared = SharedNetwork(np.array([4.0]), account=False)
    shared.start(0, shared.add_class(route_set([0])), 4.0)
    shared.share()
    finish(shared)

    assert shared.occupancy() == {}


def test_time_does_not_run_backwards() -> None:
    shared = network(4.0)
    shared.advance(2.0)

    with pytest.raises(AssertionError):
        shared.advance(1.0)


def test_many_flow_classes_are_shared_as_exactly_as_few() -> None:
    shared, flow_classes = leaf_spine(16)
    generator = np.random.default_rng(1)
    in_flight: dict[int, int] = {}
    for flow, flow_class in enumerate(generator.permutation(flow_classes).tolist()):
        shared.start(flow, flow_class, float(generator.uniform(1.0, 9.0)))
        in_flight[flow] = flow_class
        shared.share()
    assert len(in_flight) == 240

    while in_flight:
        state = tuple(sorted((flow_class, 1) for flow_class in in_flight.values()))
        expected = shared.rates(state)
        found = {flow_class: shared._in_flight._rate.each[flow_class] for flow_class in in_flight.values()}
        assert found == pytest.approx(expected, rel=1e-11)  # follows 480 changes; each is exact to round-off
        shared.advance(shared.next_end_s())
        for flow in shared.finished():
            del in_flight[flow]
        shared.share()
