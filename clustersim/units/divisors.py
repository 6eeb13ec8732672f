"""Divisors of numbers, and lists of numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Sequence
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


def listed(items: Sequence[object], word: str = "or") -> str:
    """Return numbers or names as a sentence has them, at most a dozen.

    Examples
    --------
    >>> listed([1, 2, 4]), listed(["tp", "pp"], "and")
    ('1, 2 or 4', 'tp and pp')
    """
    shown = [str(item) for item in items[:_MOST_SHOWN]]
    if len(items) > _MOST_SHOWN:
        return f"{', '.join(shown)} and so on"
    return f"{', '.join(shown[:-1])} {word} {shown[-1]}" if len(shown) > 1 else shown[0]


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the plural (an ``s`` unless given) but for one.

    Examples
    --------
    >>> count_text(1, "GPU"), count_text(4096, "GPU"), count_text(2, "class", "classes")
    ('1 GPU', '4,096 GPUs', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def shortened(text: str, longest: int) -> str:
    """Return a text, cut where it has more characters than may be shown.

    Examples
    --------
    >>> shortened("bandwidth", 9), shortened("bandwidths", 9)
    ('bandwidth', 'bandwi...')
    """
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
