"""Measured runs beside their predictions, and the weighted quantiles that error bars are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from clustersim.apps.run.intervals import RatiosSpec
from clustersim.measure.error_bars import USUAL_SETTINGS, RunKind, Spread

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


def thinned(rows: Sequence[T], most: int = MOST_ROWS) -> Sequence[T]:
    """Return at most a number of some rows, evenly taken.

    Examples
    --------
    >>> thinned(range(300))
    range(0, 300, 3)
    """
    return rows[:: -(-len(rows) // most) or 1]


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


BySource = Mapping[str, Sequence[float]]
"""Sizes of the logarithm of measured over predicted ratio, over the factor of the pair, by source."""


def ratios_of(by_source: Mapping[str, Sequence[Residual]], spread: Spread) -> RatiosSpec | None:
    """Return how far ratios of two step times on one machine are off, from pairs of rows of one source and one machine.

    The size of the logarithm of measured over predicted ratio does not depend on the order of a pair. Over the larger factor of the two
    rows, its quantile at 0.8 is taken, where a source weighs as the root of its paired rows, and widened by the factor for which 0.8 of
    the pairs of sources that did not give it are covered. None where fewer than three sources have pairs: nothing is ever decided then.
    """
    pairs = {source_id: found for source_id, rows in by_source.items() if (found := _pairs(rows, spread))}
    if len(pairs) < FEWEST_SOURCES:
        return None
    return RatiosSpec(
        most=exp(_widening(pairs) * _quantile(pairs)),
        pairs=sum(map(len, pairs.values())),
        sources=len(pairs),
        coverage=_coverage(pairs),
    )


def _pairs(rows: Sequence[Residual], spread: Spread) -> list[float]:
    # A run that is predicted in two ways is no pair of runs.
    return [
        abs(one.log_ratio - other.log_ratio) / max(spread.factor(one.kind), spread.factor(other.kind))
        for one, other in combinations(thinned(rows), 2)
        if one.machine == other.machine and (USUAL_SETTINGS in one.kind) == (USUAL_SETTINGS in other.kind)
    ]


def _quantile(pairs: BySource) -> float:
    values = [each for lot in pairs.values() for each in lot]
    return weighted_quantile(values, [weight for lot in pairs.values() for weight in _weights(len(lot))], LEVEL_FRACTION)


def _weights(n_pairs: int) -> Iterator[float]:
    """Yield the weight of each of so many pairs: together the root of the rows that have as many pairs."""
    n_rows = (1.0 + (1.0 + 8.0 * n_pairs) ** 0.5) / 2.0
    yield from [n_rows**0.5 / n_pairs] * n_pairs


def _needed(pairs: BySource) -> Iterator[tuple[str, float, float]]:
    """Yield of each pair its source, how much wider the quantile of the other sources would have to be, and its weight."""
    for source_id, lot in pairs.items():
        quantile = _quantile(without(pairs, source_id))
        yield from ((source_id, each / quantile, weight) for each, weight in zip(lot, _weights(len(lot)), strict=True))


def without(by_source: Mapping[str, T], source_id: str) -> dict[str, T]:
    """Return a mapping by source but for one of them."""
    return {name: each for name, each in by_source.items() if name != source_id}


def _widening(pairs: BySource) -> float:
    needed = list(_needed(pairs))
    return weighted_quantile([each for _, each, _ in needed], [weight for _, _, weight in needed], LEVEL_FRACTION)


def _coverage(pairs: BySource) -> float:
    """Return the share of pairs that the other sources cover, widened as these alone would be."""
    factors = {source_id: _widening(without(pairs, source_id)) for source_id in pairs}
    needed = list(_needed(pairs))
    inside = sum(weight for source_id, each, weight in needed if each <= factors[source_id])
    return inside / sum(weight for _, _, weight in needed)
