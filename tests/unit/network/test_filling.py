from __future__ import annotations

import numpy as np
import pytest

from clustersim.network.filling import Filled, Filling, progressive_filling, spans

INF = float("inf")


def fill(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> Filled:
    """Fill cells with kinds that are given as columns of a full matrix."""
    matrix = np.array(flows, dtype=np.float64)
    kinds, cells = np.nonzero(matrix.T)
    problem = Filling(
        starts=np.searchsorted(kinds, np.arange(matrix.shape[1] + 1)),
        cells=cells,
        loads=matrix.T[kinds, cells],
        limits=np.array(limits or [INF] * matrix.shape[1]),
        capacity_bytes_per_s=np.array(capacity),
    )
    return progressive_filling(problem)


def levels(flows: list[list[float]], capacity: list[float], limits: list[float] | None = None) -> list[float]:
    return fill(flows, capacity, limits).levels.tolist()


def test_one_kind_has_its_narrowest_cell() -> None:
    assert levels([[1.0], [1.0]], [8.0, 5.0]) == [5.0]


def test_kinds_on_one_cell_have_equal_levels() -> None:
    assert levels([[1.0, 1.0]], [8.0]) == [4.0, 4.0]


def test_a_kind_of_three_flows_takes_three_shares() -> None:
    assert levels([[3.0, 1.0]], [8.0]) == [2.0, 2.0]


def test_what_is_held_back_elsewhere_leaves_the_rest_to_others() -> None:
    assert levels([[2.0, 1.0], [5.0, 0.0]], [10.0, 5.0]) == [1.0, 8.0]


def test_kinds_that_share_nothing_do_not_touch_each_other() -> None:
    assert levels([[1.0, 0.0], [0.0, 1.0]], [3.0, 7.0]) == [3.0, 7.0]


def test_a_kind_stops_at_its_limit_and_the_rest_grow_on() -> None:
    assert levels([[1.0, 1.0, 1.0]], [9.0], [1.0, INF, INF]) == [1.0, 4.0, 4.0]


def test_limits_are_reached_one_after_the_other() -> None:
    assert levels([[1.0, 1.0, 1.0]], [9.0], [3.5, 1.0, 2.0]) == [3.5, 1.0, 2.0]


def test_a_limit_out_of_reach_changes_nothing() -> None:
    assert levels([[1.0, 1.0]], [9.0], [100.0, INF]) == [4.5, 4.5]


def test_a_kind_that_crosses_nothing_has_its_limit() -> None:
    assert levels([[1.0, 0.0, 0.0]], [5.0], [INF, INF, 7.0]) == [5.0, INF, 7.0]


def test_a_cell_without_capacity_stops_what_crosses_it_and_nothing_else() -> None:
    assert levels([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0, 4.0]) == [0.0, 0.0, 4.0]


def test_nothing_in_flight_has_no_levels() -> None:
    assert fill([[], []], [1.0, 1.0]).levels.shape == (0,)


def test_the_owner_of_a_kind_is_the_full_cell_that_holds_it_back() -> None:
    # Entries by kind: 0 and 1 of kind 0 (both cells), 2 of kind 1 (cell 0).
    filled = fill([[1.0, 1.0], [1.0, 0.0]], [10.0, 2.0])

    assert filled.owners.tolist() == [1, 2]
    assert filled.cell_levels.tolist() == [8.0, 2.0]


def test_nobody_owns_a_kind_at_its_limit_and_a_cell_with_room_is_not_full() -> None:
    filled = fill([[1.0]], [10.0], [3.0])

    assert filled.owners.tolist() == [-1]
    assert filled.cell_levels.tolist() == [INF]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_cells_full_but_for_round_off_count_as_full(scale: float) -> None:
    # 0.1 three times is not 0.3 in binary; both cells must end the filling, or the second kind would creep on.
    found = levels([[3.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [0.3 * scale, (0.1 + 0.1 + 0.1) * scale])

    assert found == pytest.approx([0.1 * scale] * 3, rel=1e-12)  # round-off


def test_a_light_kind_beside_a_heavy_one_is_not_lost_in_round_off() -> None:
    # The heavy kind is held back elsewhere; of what the cell takes at level 1 it has all but a millionth.
    found = levels([[0.3, 1e-6 / 3], [1.0, 0.0]], [0.4, 1.0])

    assert found == pytest.approx([1.0, 0.1 / (1e-6 / 3)], rel=1e-12)


def test_the_problem_is_left_as_it_was() -> None:
    capacity, limits = np.array([4.0]), np.array([1.0, INF])
    problem = Filling(starts=np.array([0, 1, 2]), cells=np.array([0, 0]), loads=np.ones(2), limits=limits, capacity_bytes_per_s=capacity)

    progressive_filling(problem)

    assert capacity.tolist() == [4.0]
    assert limits.tolist() == [1.0, INF]
    assert problem.loads.tolist() == [1.0, 1.0]


def test_the_entries_of_no_rows_are_none() -> None:
    assert spans(np.array([0, 2, 5]), np.zeros(0, dtype=np.int64)).tolist() == []
