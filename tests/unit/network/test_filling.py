from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.filling import Filled, Filling, progressive_filling, spans

INF = float("inf")


def fill(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> Filled:
    """Fill link classes with flow classes that are given as columns of a full matrix."""
    matrix = np.array(flows, dtype=np.float64)
    flow_classes, link_classes = np.nonzero(matrix.T)
    problem = Filling(
        starts=np.searchsorted(flow_classes, np.arange(matrix.shape[1] + 1)),
        link_classes=link_classes,
        loads=matrix.T[flow_classes, link_classes],
        limits=np.array(limits or [INF] * matrix.shape[1]),
        capacity_bytes_per_s=np.array(capacity),
    )
    return progressive_filling(problem)


def levels(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> list[float]:
    return fill(flows, capacity, limits).levels.tolist()


def test_a_flow_class_that_crosses_nothing_has_its_limit() -> None:
    assert levels([[1.0, 0.0, 0.0]], [5.0], [INF, INF, 7.0]) == [5.0, INF, 7.0]


def test_a_link_class_without_capacity_stops_what_crosses_it_and_nothing_else() -> None:
    assert levels([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 4.0]) == [0.0, 0.0, 4.0]


def test_nothing_in_flight_has_no_levels() -> None:
    assert fill([[], []], [1.0, 1.0]).levels.shape == (0,)


def test_the_owner_of_a_flow_class_is_the_full_link_class_that_holds_it_back() -> None:
    # Entries by flow class: 0 and 1 of flow class 0 (both link classes), 2 of flow class 1 (link class 0).
    filled = fill([[1.0, 1.0], [1.0, 0.0]], [10.0, 2.0])

    assert filled.owners.tolist() == [1, 2]
    assert filled.class_levels.tolist() == [8.0, 2.0]


def test_nobody_owns_a_flow_class_at_its_limit_and_a_link_class_with_room_is_not_full() -> None:
    filled = fill([[1.0]], [10.0], [3.0])

    assert filled.owners.tolist() == [-1]
    assert filled.class_levels.tolist() == [INF]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_link_classes_full_but_for_round_off_count_as_full(scale: float) -> None:
    # 0.1 three times is not 0.3 in binary; both link classes must end the filling, or the second flow class would creep on.
    found = levels([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [0.3 * scale, (0.1 + 0.1 + 0.1) * scale])

    assert found == pytest.approx([0.1 * scale] * 3, rel=1e-12)  # round-off


def test_a_light_flow_class_beside_a_heavy_one_is_not_lost_in_round_off() -> None:
    # The heavy flow class is held back elsewhere; of what the link class takes at level 1 it has all but a millionth.
    found = levels([[0.3, 1e-6 / 3], [1.0, 0.0]], [0.4, 1.0])

    assert found == pytest.approx([1.0, 0.1 / (1e-6 / 3)], rel=1e-12)


def test_the_problem_is_left_as_it_was() -> None:
    capacity, limits = np.array([4.0]), np.array([1.0, INF])
    problem = Filling(
        starts=np.array([0, 1, 2]), link_classes=np.array([0, 0]), loads=np.ones(2), limits=limits, capacity_bytes_per_s=capacity
    )

    progressive_filling(problem)

    assert capacity.tolist() == [4.0]
    assert limits.tolist() == [1.0, INF]
    assert problem.loads.tolist() == [1.0, 1.0]


def test_the_entries_of_no_rows_are_none() -> None:
    assert spans(np.array([0, 2, 5]), np.zeros(0, dtype=np.int64)).tolist() == []
