"""Sentences that hold values in braces, which the runs fill in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from clustersim.apps.compare.side_by_side_text import shown

_NAME: Final = re.compile(r"\{([\w.]+)\}")


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of the values that a sentence holds.

    Examples
    --------
    >>> names_in("{short_s} is less than {long_s}.")
    ('short_s', 'long_s')
    """
    return tuple(_NAME.findall(text))


def filled(text: str, values: Mapping[str, float]) -> str:
    """Return a sentence with its values as people read them, with three digits.

    Examples
    --------
    >>> filled("{gain} times in {step_s}, {idle_fraction} idle", {"gain": 2.0, "step_s": 0.012346, "idle_fraction": 0.2512})
    '2 times in 12.3 ms, 25.1 % idle'
    """
    return _NAME.sub(lambda found: short(found[1], values[found[1]]), text)


def short(name: str, value: float | None) -> str:
    """Return a value with three digits, in the unit in which its name ends."""
    return shown(name, None if value is None else float(f"{value:.3g}"))
