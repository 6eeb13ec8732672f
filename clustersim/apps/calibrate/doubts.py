"""Reasons to doubt constants: they moved far, rest on few measurements, or fit them badly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clustersim.apps.calibrate.document import SECONDS, Errors
from clustersim.units.quantity import format_quantity

FAR: Final = 3.0
"""Factor up or down. Constants read from a trace differ by at most 1.2 times between the shipped calibrations."""
FEW: Final = 100
"""Samples of a trace; one step of a small model launches more kernels."""
POOR: Final = 0.2
"""Mean error of predicted times, relative: twice that of the shipped fits."""


def is_far(before: float, after: float) -> bool:
    """Return whether a constant moved by more than ``FAR`` times; one that begins or ends at zero has no such ratio.

    Examples
    --------
    >>> is_far(2.5e-6, 48.9e-6), is_far(9e-8, 3.9e-8), is_far(0.0, 1.0)
    (True, False, False)
    """
    return min(before, after) > 0.0 and max(before, after) > FAR * min(before, after)


def move(name: str, before: float, after: float) -> str:
    """Return a move of a constant in words.

    Examples
    --------
    >>> move("launch.kernel", 2.5e-6, 48.88e-6)
    'launch.kernel from 2.5 us to 48.88 us (19.6 times)'
    """
    times = f"{after / before:.1f} times" if after > before else f"1/{before / after:.1f}"
    return f"{name} from {worded(name, before)} to {worded(name, after)} ({times})"


def worded(name: str, value: float) -> str:
    """Return the value of a constant with its unit."""
    return format_quantity(value, "s", 4) if name.startswith(SECONDS) else f"{value:.4g}"


def doubts_of(after: Errors, moves: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the reasons to doubt a fit.

    Parameters
    ----------
    after
        How well the fit meets what it was fitted to.
    moves
        Value before and after of each fitted constant.
    """
    found: list[str] = []
    if after.mean_absolute_error_fraction > POOR:
        bias = f"{100 * after.mean_error_fraction:+.0f} %"
        found.append(f"predictions stay {100 * after.mean_absolute_error_fraction:.0f} % off the measured times (on average {bias})")
    if after.n_measurements < len(moves):
        found.append(f"fewer measurements ({after.n_measurements}) than constants that they move ({len(moves)})")
    far = [move(name, *values) for name, values in moves.items() if is_far(*values)]
    if far:
        found.append(f"moved more than {FAR:.0f} times: {', '.join(far)}")
    return found
