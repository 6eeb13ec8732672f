"""Divisors of numbers, and numbers as a sentence has them: what a refusal offers in place of a degree."""

from __future__ import annotations

from typing import Final

_MOST_SHOWN: Final = 12


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def listed(numbers: list[int]) -> str:
    """Return numbers as a sentence has them, at most a dozen.

    Examples
    --------
    >>> listed([1, 2, 4])
    '1, 2 or 4'
    """
    shown = [str(number) for number in numbers[:_MOST_SHOWN]]
    if len(numbers) > _MOST_SHOWN:
        return f"{', '.join(shown)} and so on"
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0]
