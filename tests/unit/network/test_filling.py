from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.filling import progressive_filling, spans

INF = float("inf")


def fill(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> tuple[list[float], dict[int, float]]:
    """Fill link classes with flow classes that are given as columns of a full matrix."""
    columns = zip(*flows, limits or [INF] * len(flows[0]), strict=True)
    return progressive_filling([([(link, load) for link, load in enumerate(loads) if load], limit) for *loads, limit in columns], capacity)


def levels(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> list[float]:
    return fill(flows, capacity, limits)[0]


def test_a_flow_class_that_crosses_nothing_has_its_limit() -> None:
    assert levels([[1.0, 0.0, 0.0]], [5.0], [INF, INF, 7.0]) == [5.0, INF, 7.0]


def test_a_link_class_without_capacity_stops_what_crosses_it_and_nothing_else() -> None:
    assert levels([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 4.0]) == [0.0, 0.0, 4.0]


def test_nothing_in_flight_has_no_levels() -> None:
    assert fill([[], []], [1.0, 1.0]) == ([], {})


def test_a_full_link_class_has_the_level_of_what_it_holds_back_and_one_with_room_has_none() -> None:
    assert fill([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [10.0, 2.0, 11.0]) == ([2.0, 8.0], {1: 2.0, 0: 8.0})
    assert fill([[1.0]], [10.0], [3.0]) == ([3.0], {})


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_link_classes_full_but_for_round_off_count_as_full(scale: float) -> None:
    # 0.1 three times is not 0.3 in binary; both link classes must end the filling, or the second flow class would creep on.
    found = levels([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [0.3 * scale, (0.1 + 0.1 + 0.1) * scale])

    assert found == pytest.approx([0.1 * scale] * 3, rel=1e-12)  # round-off


def test_a_light_flow_class_beside_a_heavy_one_is_not_lost_in_round_off() -> None:
    # The heavy flow class is held back elsewhere; of what the link class takes at level 1 it has all but a millionth.
    found = levels([[0.3, 1e-6 / 3], [1.0, 0.0]], [0.4, 1.0])

    assert found == pytest.approx([1.0, 0.1 / (1e-6 / 3)], rel=1e-12)


def test_the_entries_of_no_rows_are_none() -> None:
    assert spans(np.array([0, 2, 5]), np.zeros(0, dtype=np.int64)).tolist() == []
