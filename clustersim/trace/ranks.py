"""Ranks as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

_RUNS_SHOWN: Final = 3


def ranks_text(ranks: Sequence[int] | NDArray[np.int64]) -> str:
    """Return ranks as people write them, at most three stretches of them.

    Examples
    --------
    >>> ranks_text([3]), ranks_text([0, 1, 2, 4]), ranks_text(range(0, 12, 2))
    ('rank 3', 'ranks 0-2, 4', 'ranks 0, 2, 4 and 3 more')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    ordered = np.sort(np.asarray(ranks, dtype=np.int64))
    begins = np.concatenate(([0], np.flatnonzero(np.diff(ordered) != 1) + 1, [len(ordered)])).tolist()
    runs = [(ordered.item(first), ordered.item(end - 1)) for first, end in pairwise(begins[: _RUNS_SHOWN + 1])]
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    left = len(ordered) - begins[len(runs)]
    return f"ranks {shown}" + (f" and {left} more" if left else "")
