"""Names with wildcards, for many places or links at once."""

from __future__ import annotations

import re
from typing import Final

from clustersim.errors import DomainError

_WILD: Final = re.compile(r"(\*|\[[^\]]*\])")
_RANGES: Final = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")
_LARGEST_RANGE: Final = 1_000_000


def name_expression(text: str) -> re.Pattern[str]:
    """Return what a name stands for, as an expression for a full match.

    Parameters
    ----------
    text
        Such as ``leaf0/up`` or ``node[0-3]/nic*/tx``: ``*`` stands for anything up to the next slash, brackets for some of the numbers.

    Raises
    ------
    DomainError
        Brackets hold something else than numbers and ranges.

    Examples
    --------
    >>> bool(name_expression("node[0-3]/nic*").fullmatch("node2/nic7"))
    True
    """
    return re.compile("".join(_read(part) if _WILD.fullmatch(part) else re.escape(part) for part in _WILD.split(text)))


def _read(part: str) -> str:
    if part == "*":
        return "[^/]*"
    ranges = part[1:-1].replace(" ", "")
    bounds = [(int(low), int(high or low)) for low, high in re.findall(r"(\d+)(?:-(\d+))?", ranges)]
    if not _RANGES.fullmatch(ranges) or any(not low <= high <= low + _LARGEST_RANGE for low, high in bounds):
        raise DomainError(f"'{part}' is not a range of numbers", hint="write such as [0-3] or [0,2,5]")
    return f"(?:{'|'.join(str(number) for low, high in bounds for number in range(low, high + 1))})"
