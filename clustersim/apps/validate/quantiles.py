"""Measured runs beside their predictions, and the weighted quantiles that error bars are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from clustersim.measure.error_bars import RunKind

FloatArray = npt.NDArray[np.float64]

T = TypeVar("T")

LEVEL_FRACTION: Final = 0.8
FEWEST_SOURCES: Final = 3
"""Fewer tell nothing of others: a source has errors of its own, which its rows share."""
MOST_ROWS: Final = 120
"""Rows of one source that are used where each takes long; a larger source is thinned evenly."""
TIE: Final = 1e-9
"""Values that differ by less, or by less of themselves, are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One run, measured and predicted."""

    source_id: str
    row_id: str
    kind: RunKind
    measured_s: float
    predicted_s: float
    accelerator: str = ""
    machine: str = ""
    n_accelerators: int = 1
    seq_length: int = 1

    @property
    def log_ratio(self) -> float:
        """Natural logarithm of the measured step time over the predicted one."""
        return log(self.measured_s / self.predicted_s)


def thinned(rows: Sequence[T]) -> Sequence[T]:
    """Return at most ``MOST_ROWS`` of some rows, evenly taken.

    Examples
    --------
    >>> thinned(range(300))
    range(0, 300, 3)
    """
    return rows[:: -(-len(rows) // MOST_ROWS) or 1]


def weighted_quantile(values: Sequence[float], weights: Sequence[float], fraction: float) -> float:
    """Return a quantile of weighted values; between two of them, where half of their own weight is reached, it is interpolated.

    Examples
    --------
    >>> weighted_quantile([3.0, 1.0, 2.0], [1.0, 1.0, 1.0], 0.5), weighted_quantile([0.0, 1.0], [3.0, 1.0], 0.375)
    (2.0, 0.0)
    """
    # What differs by round-off only is in the order of its weights, or the same residuals in other units would have another quantile.
    all_values, all_weights = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    ascending = np.argsort(all_values, kind="stable")
    steps = np.diff(all_values[ascending], prepend=all_values[ascending][:1])
    alike = np.cumsum(steps > TIE * np.maximum(1.0, np.abs(all_values[ascending])))
    order = ascending[np.lexsort((all_weights[ascending], alike))]
    firsts = np.searchsorted(alike, alike)
    sorted_values: FloatArray = all_values[ascending][firsts]
    sorted_weights: FloatArray = all_weights[order]
    centres = np.cumsum(sorted_weights) - 0.5 * sorted_weights
    return float(np.interp(fraction * sum(weights), centres, sorted_values))
