"""What is ordered by size, with equals in another order."""

from __future__ import annotations


def nine_digits(value: float) -> float:
    """Return a value to nine significant digits: those that differ in round-off alone are equal.

    Examples
    --------
    >>> nine_digits(0.1 + 0.2) == nine_digits(0.3)
    True
    """
    return float(f"{value:.9g}")
