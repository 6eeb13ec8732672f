"""The slowest of many accelerators whose clocks differ."""

from __future__ import annotations

from dataclasses import replace
from math import erfc, sqrt

import pytest

from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_accelerator
from clustersim.kernels.kernel_model import expected_largest, slowest_of

H100 = load_accelerator("h100-sxm5-80g")


def integral(n: int) -> float:
    """Return the expected largest of n standard normal numbers from its distribution function."""
    width, total = 0.005, 0.0
    for index in range(-1600, 1600):
        point = (index + 0.5) * width
        below = (0.5 * erfc(-point / sqrt(2.0))) ** n
        total += width * ((1.0 - below) if point > 0.0 else -below)
    return total


@pytest.mark.parametrize("n", [8, 64, 512, 4096])
def test_the_largest_of_many_is_the_integral_to_one_percent(n: int) -> None:
    assert expected_largest(n) == pytest.approx(integral(n), rel=0.01)


def test_a_job_of_the_size_of_the_fitted_ones_takes_as_long_as_they_did() -> None:
    calibration = calibration_for(H100)

    assert slowest_of(calibration.gemm.under_load_ranks, H100, calibration) == 1.0


def test_more_accelerators_wait_longer_for_the_slowest() -> None:
    calibration = calibration_for(H100)
    times = [slowest_of(n, H100, calibration) for n in (1, 8, 64, 512, 4096)]

    assert times == sorted(times)
    assert times[3] == pytest.approx(1.020, abs=0.001)


@pytest.mark.parametrize("n", [1, 4096])
def test_nobody_waits_for_accelerators_that_are_alike(n: int) -> None:
    assert slowest_of(n, replace(H100, clock_spread=0.0), calibration_for(H100)) == 1.0


def test_nobody_waits_where_the_clock_is_at_its_limit() -> None:
    card = load_accelerator("mi300x")

    assert slowest_of(4096, card, calibration_for(card)) == 1.0
