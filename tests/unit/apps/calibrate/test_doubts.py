"""Doubts about constants that moved far, rest on little or leave much open."""

from __future__ import annotations

import pytest

from clustersim.apps.calibrate.document import Errors, doubts_of, is_far

GOOD = [0.01, -0.02, 0.03, -0.01]


@pytest.mark.parametrize(("factor", "far"), [(1.0, False), (2.9, False), (3.1, True), (1 / 2.9, False), (1 / 3.1, True)])
def test_a_constant_is_far_beyond_threefold_up_or_down(factor: float, far: bool) -> None:
    assert is_far(2.5e-6, 2.5e-6 * factor) is far


def test_a_fit_that_meets_enough_measurements_with_small_moves_is_not_doubted() -> None:
    assert doubts_of(Errors.of(GOOD), {"gemm.depth_overhead": (100.0, 120.0)}) == []


@pytest.mark.parametrize(
    ("errors", "moves", "doubt"),
    [
        ([0.4, 0.2, -0.3, 0.3], {"gemm.depth_overhead": (100.0, 120.0)}, "predictions stay 30 % off the measured times (on average +15 %)"),
        (
            GOOD,
            {"network.efficiency.nic": (0.96, 1.0)},
            "at the bound of the fit, a share of 1: network.efficiency.nic; the measurements ask for more",
        ),
        (GOOD, {"launch.step": (5e-3, 20e-3)}, "moved more than 3 times: launch.step from 5 ms to 20 ms (4.0 times)"),
    ],
)
def test_each_reason_to_doubt_a_fit_is_told(errors: list[float], moves: dict[str, tuple[float, float]], doubt: str) -> None:
    assert doubts_of(Errors.of(errors), moves) == [doubt]


def test_constants_that_measurements_are_too_few_for_are_named_with_how_many_are_missing() -> None:
    found = doubts_of(Errors.of(GOOD[:1]), {"gemm.a": (1.0, 1.1)}, ["gemm.b", "gemm.c"], n_unlike=3)

    assert found == ["too few different measurements (3) for 3 constants: gemm.b, gemm.c keep their values; 3 more would fit them"]


@pytest.mark.parametrize(("n_unlike", "doubts"), [(1, ["fitted to a single measurement: gemm.a"]), (2, [])])
def test_a_constant_of_a_single_measurement_is_in_doubt(n_unlike: int, doubts: list[str]) -> None:
    assert doubts_of(Errors.of(GOOD[:1]), {"gemm.a": (1.0, 1.1)}, n_unlike=n_unlike) == doubts
