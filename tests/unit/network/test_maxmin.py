"""A change is followed as far as it reaches, by the interpreter and by the compiled solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from clustersim.network.filling import progressive_filling
from clustersim.network.following import Following, numba_is_installed
from clustersim.network.wiring import FlowClass, Wiring
from tests.unit.network.factories import INF, flow_class, wiring

PATIENCE = 1000
WITH_NUMBA = [
    pytest.mark.skipif(not numba_is_installed(), reason="numba is not installed (extra 'fast')"),
    pytest.mark.xdist_group("numba"),  # compiled once
]
WAYS = ["interpreted", pytest.param("compiled", marks=WITH_NUMBA)]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def following(way: str, laid: Wiring) -> Following:
    return Following(laid, compiled=way == "compiled")


def made(way: str, flow_classes: Sequence[FlowClass], capacity: Sequence[float]) -> Following:
    return following(way, wiring(flow_classes, capacity))


def settle(to: Following, counts: Mapping[int, float], patience: int = PATIENCE) -> dict[int, float] | None:
    """Return classes with another rate, and the rate."""
    changes = to.settle(list(counts), list(counts.values()), patience)
    return None if changes is None else dict(zip(*changes, strict=True))


def rates(of: Following) -> list[float]:
    """Return the rate of each class; 0 for those that are not in flight."""
    table = of.table
    return [float(table.fair[link]) if n_flows else 0.0 for link, n_flows in zip(table.bottleneck, table.n_flows, strict=True)]


def out_of_balance(of: Following) -> list[str]:
    """Return what is wrong."""
    table, wrong = of.table, list[str]()
    for link, capacity in enumerate(table.capacity):
        first, n_group = table.first[link], table.n_group[link]
        places = range(first, first + table.n_crossing[link])
        flows = [int(table.crossing[place]) for place in places]
        loads = [float(table.load[place]) for place in places]
        group: dict[int, float] = {}
        for flow in flows[:n_group]:
            for other, unit in zip(table.route[flow], table.unit[flow], strict=True):
                if unit > 0.0:
                    group[int(other)] = group.get(int(other), 0.0) + float(unit * table.n_flows[flow])
        carried = sum(load * rates(of)[flow] for load, flow in zip(loads, flows, strict=True))
        checks = {
            "the group goes at its fair rate": all(table.bottleneck[flow] == link for flow in flows[:n_group]),
            "others do not": all(table.bottleneck[flow] != link for flow in flows[n_group:]),
            "loads of the group": dict(of.groups[link]) == pytest.approx(group, rel=1e-9),
            "its own load": table.group[link] == pytest.approx(group.get(link, 0.0), rel=1e-9),
            "what it carries": table.taken[link] == pytest.approx(carried, rel=1e-9, abs=1e-9),
            "nobody above": all(rates(of)[flow] <= table.fair[link] * (1.0 + 1e-9) for flow in flows),
            "not overbooked": carried <= capacity * (1.0 + 1e-9),
            "full": table.fair[link] == INF or carried >= capacity * (1.0 - 1e-9),
            "full with a group": table.fair[link] < INF or not n_group,
            "waits for nothing": not table.waiting[link],
        }
        wrong += [f"link {link}: {claim}" for claim, holds in checks.items() if not holds]
    return wrong


def random_wiring(generator: np.random.Generator) -> Wiring:
    n_links, n_flow_classes = int(generator.integers(1, 12)), int(generator.integers(1, 25))
    flow_classes: list[FlowClass] = []
    for _ in range(n_flow_classes):
        links = generator.choice(n_links, int(generator.integers(1, min(5, n_links) + 1)), replace=False).tolist()
        flows = dict(zip(links, generator.choice([0.5, 1.0, 1.0, 2.0, 14.0], len(links)).tolist(), strict=True))
        cap = float(generator.choice([0.2, 1.0, 3.0, INF, INF, INF]))
        flow_classes.append(flow_class(flows, weight=float(generator.choice([0.25, 1.0, 1.0, 2.0])), cap=cap))
    return wiring(flow_classes, generator.choice([1.0, 2.0, 4.0, 7.3, 33.0], n_links).tolist())


def test_what_has_a_lower_level_than_a_departing_flow_is_not_looked_at(way: str) -> None:
    # Flow classes 0 and 1 share a narrow link class, 1 and 2 a wide one.
    found = made(way, [flow_class([0]), flow_class([0, 1]), flow_class([1]), flow_class([1])], [2.0, 11.0])
    settle(found, dict.fromkeys(range(4), 1.0))
    assert rates(found) == [1.0, 1.0, 5.0, 5.0]
    looks = found.table.n_looks[0]

    assert settle(found, {3: 0.0}) == {2: 10.0}
    assert found.table.n_looks[0] - looks == 1
    assert rates(found) == [1.0, 1.0, 10.0, 0.0]


def test_another_component_is_not_looked_at(way: str) -> None:
    found = made(way, [flow_class([0]), flow_class([0]), flow_class([1]), flow_class([1])], [2.0, 4.0])
    settle(found, dict.fromkeys(range(4), 1.0))

    assert settle(found, {0: 0.0}) == {1: 2.0}


def test_a_link_class_without_capacity_stops_its_flow_classes(way: str) -> None:
    found = made(way, [flow_class([0, 1]), flow_class([1])], [0.0, 4.0])

    settle(found, {0: 1.0, 1: 1.0})

    assert rates(found) == [0.0, 4.0]


def test_a_change_that_goes_too_far_is_given_up(way: str) -> None:
    # A chain of link classes, each wider than the last: taking the first flow class off moves all of them, one after the other.
    n_flow_classes = 20
    found = made(
        way,
        [flow_class([0]), *(flow_class([link, link + 1]) for link in range(n_flow_classes))],
        [2.0**link for link in range(n_flow_classes + 1)],
    )
    settle(found, dict.fromkeys(range(n_flow_classes + 1), 1.0))

    assert settle(found, {0: 0.0}, patience=3) is None


def test_a_light_flow_class_is_exact_beside_heavy_ones_that_come_and_go(way: str) -> None:
    # What a link class's own flow classes take at level 1 shrinks to a billionth when the heavy one leaves: what is left is counted anew.
    found = made(way, [flow_class([0], weight=1e6), flow_class([0], weight=1e-3 / 3), flow_class([0], weight=1e-3 / 7)], [1.0])
    settle(found, {0: 1.0, 1: 1.0, 2: 1.0})

    settle(found, {0: 0.0})

    assert rates(found)[1] == pytest.approx(1.0 / (1e-3 / 3 + 1e-3 / 7), rel=1e-13)


def test_a_flow_class_with_another_count_is_named_even_with_its_old_rate(way: str) -> None:
    found = made(way, [flow_class([0], cap=2.0)], [8.0])
    settle(found, {0: 1.0})

    assert settle(found, {0: 2.0}) == {0: 2.0}


def test_filling_from_nothing_leaves_all_in_balance(way: str) -> None:
    found = made(way, [flow_class([0]), flow_class([0, 1]), flow_class([1], cap=1.0)], [8.0, 4.0])
    settle(found, {0: 5.0, 2: 1.0})

    assert found.fill(np.arange(3), [1, 2], [2.0, 1.0]) == [1.5, 1.0]

    assert rates(found) == [0.0, 1.5, 1.0]
    assert out_of_balance(found) == []
    # Flow class 0 is gone: as a newcomer it takes its share.
    settle(found, {0: 1.0})
    assert rates(found) == [5.0, 1.5, 1.0]


def test_another_component_is_left_alone_when_one_is_filled(way: str) -> None:
    found = made(way, [flow_class([0]), flow_class([1]), flow_class([1])], [8.0, 4.0])
    settle(found, {0: 1.0, 1: 1.0, 2: 1.0})

    found.fill(np.array([1, 2]), [2], [1.0])

    assert rates(found) == [8.0, 0.0, 4.0]
    assert out_of_balance(found) == []


def test_a_component_can_be_emptied(way: str) -> None:
    found = made(way, [flow_class([0])], [8.0])
    settle(found, {0: 2.0})

    assert found.fill(np.array([0]), [], []) == []
    settle(found, {0: 1.0})
    assert rates(found) == [8.0]


def test_a_change_that_was_given_up_can_be_filled_from_nothing(way: str) -> None:
    n_flow_classes = 20
    found = made(
        way,
        [flow_class([0]), *(flow_class([link, link + 1]) for link in range(n_flow_classes))],
        [2.0**link for link in range(n_flow_classes + 1)],
    )
    everything = dict.fromkeys(range(n_flow_classes + 1), 1.0)
    settle(found, everything)
    settle(found, {0: 0.0}, patience=3)

    rest = list(range(1, n_flow_classes + 1))
    expected = found.fill(np.arange(n_flow_classes + 1), rest, [1.0] * n_flow_classes)

    assert rates(found)[1:] == expected
    assert out_of_balance(found) == []


@pytest.mark.parametrize("seed", range(5))
def test_after_every_change_the_rates_are_those_of_progressive_filling(way: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    laid = random_wiring(generator)
    n_flow_classes = len(laid.limits)
    found, counts = following(way, laid), np.zeros(n_flow_classes)

    for _ in range(30):
        changed = generator.choice(n_flow_classes, int(generator.integers(1, min(4, n_flow_classes) + 1)), replace=False)
        counts[changed] = generator.choice([0.0, 0.0, 1.0, 1.0, 3.0], len(changed))
        flow_classes = np.flatnonzero(counts).tolist()
        before = rates(found)
        after = settle(found, {int(number): float(counts[number]) for number in changed})
        if after is not None:
            assert {number: after.get(number, before[number]) for number in flow_classes} == {
                number: rates(found)[number] for number in flow_classes
            }
        else:
            found.fill(np.arange(n_flow_classes), flow_classes, counts[flow_classes].tolist())

        assert out_of_balance(found) == []
        expected, _ = progressive_filling(laid.rows(flow_classes, counts[flow_classes].tolist()), laid.capacity_bytes_per_s.tolist())
        assert [rates(found)[number] for number in flow_classes] == pytest.approx(expected, rel=1e-11)
