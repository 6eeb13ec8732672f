"""Clocks of accelerators that are not alike: the slowest of many, for which all others wait."""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

from clustersim.hardware.calibration import Calibration
from clustersim.hardware.models import Accelerator

BLOM: Final = 0.375
"""Makes the quantile of a normal distribution the expected order statistic."""


def expected_largest(n: int) -> float:
    """Return the expected largest of so many independent standard normal numbers, to 1 % from eight on.

    References
    ----------
    .. [1] G. Blom, *Statistical Estimates and Transformed Beta-Variables*, 1958.

    Examples
    --------
    >>> [round(expected_largest(n), 2) for n in (1, 8, 512, 16384)]
    [0.0, 1.43, 3.03, 3.96]
    """
    return NormalDist().inv_cdf((n - BLOM) / (n + 1.0 - 2.0 * BLOM))


def slowest_of(n: int, accelerator: Accelerator, calibration: Calibration) -> float:
    """Return how many times as long the slowest of so many accelerators computes as the slowest of those that were calibrated on.

    Nothing is held up where products keep their rate under load: their clock is at its limit, which is the same for all.
    """
    gemm = calibration.gemm
    if gemm.under_load["default"] == 1.0:
        return 1.0
    spread = gemm.clock_spread if accelerator.clock_spread is None else accelerator.clock_spread
    return (1.0 + spread * expected_largest(n)) / (1.0 + spread * expected_largest(gemm.under_load_ranks))
