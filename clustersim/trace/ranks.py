"""Ranks as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

_RUNS_SHOWN: Final = 3


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks as people write them, at most three stretches of them.

    Examples
    --------
    >>> ranks_text([3]), ranks_text([0, 1, 2, 4]), ranks_text(range(0, 12, 2))
    ('rank 3', 'ranks 0-2, 4', 'ranks 0, 2, 4 and 3 more')
    """
    ordered = sorted(ranks)
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])]
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:_RUNS_SHOWN])
    left = sum(len(run) for run in runs[_RUNS_SHOWN:])
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {shown}" + (f" and {left} more" if left else "")
