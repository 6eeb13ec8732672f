"""Time in ticks, sums of which are exact."""

from __future__ import annotations

from typing import Final

TICK_S: Final = 2.0**-50
"""Not quite a femtosecond. Sums of multiples of it up to 8 s are exact, whichever of the parts are added first; longer ones are rounded as
ever."""
_PER_SECOND: Final = 2.0**50


def whole_ticks_s(seconds: float) -> float:
    """Return the multiple of ``TICK_S`` that is next to a time.

    Examples
    --------
    >>> first, second, third = 0.1, 0.2, 0.3
    >>> first + (second + third) == (first + second) + third
    False
    >>> first, second, third = whole_ticks_s(0.1), whole_ticks_s(0.2), whole_ticks_s(0.3)
    >>> first + (second + third) == (first + second) + third
    True
    """
    return round(seconds * _PER_SECOND) * TICK_S
