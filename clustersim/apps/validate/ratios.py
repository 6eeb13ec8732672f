"""Errors of the ratio of two step times on one machine: pairs of rows of one source, tested on other sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp

from clustersim.apps.validate.quantiles import FEWEST_ROWS, FEWEST_SOURCES, LEVEL_FRACTION, Residual, thinned, weighted_quantile
from clustersim.measure.error_bars import RunKind, wider

BySource = Mapping[str, Mapping[RunKind, Sequence[float]]]
"""Sizes of the logarithm of measured over predicted ratio, by source and kind of pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRatio:
    """Error of ratios of one kind, and the number of pairs behind it."""

    kind: RunKind
    of: RunKind
    """The kind itself, or a wider one from which it borrows."""
    most_fraction: float
    n_pairs: int
    n_sources: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Everything that follows from pairs of rows."""

    counted: tuple[CountedRatio, ...]
    widening: float
    """Factor of the quantile with which sources that did not give it are covered."""
    coverage_fraction: float
    """Share of pairs that lie within what the other sources give; a source counts as the root of its pairs' rows."""


def ratios_of(by_source: Mapping[str, Sequence[Residual]]) -> Ratios:
    """Return how far ratios of two step times on one machine are off, from pairs of rows of one source and one machine.

    The size of the logarithm of measured over predicted ratio does not depend on the order of a pair. Of a kind, its quantile at 0.8 is
    taken, where a source weighs as the root of its paired rows, and widened by the factor for which 0.8 of the pairs of sources that
    did not give it are covered. A kind that there is too little of borrows from a wider one, and reaches at least as far as its own.
    Without any pair nothing is known, and nothing is ever decided.
    """
    pairs = {source_id: found for source_id, rows in by_source.items() if (found := _pairs(rows))}
    if len(pairs) < FEWEST_SOURCES:
        return Ratios(counted=(), widening=1.0, coverage_fraction=0.0)
    kinds = sorted({each for found in pairs.values() for kind in found for each in wider(kind)})
    widening = _widening(pairs)
    counted = [(kind, _quantile(pairs, kind), _of_kind(pairs, kind)) for kind in kinds]
    return Ratios(
        counted=tuple(
            CountedRatio(
                kind=kind,
                of=of,
                most_fraction=exp(widening * spread),
                n_pairs=sum(map(len, lots)),
                n_sources=len(lots),
            )
            for kind, (of, spread), lots in counted
        ),
        widening=widening,
        coverage_fraction=_coverage(pairs),
    )


def _pairs(rows: Sequence[Residual]) -> dict[RunKind, list[float]]:
    """Return the pairs of a source by what their kinds have in common."""
    found: dict[RunKind, list[float]] = {}
    for one, other in combinations(thinned(rows), 2):
        if one.machine == other.machine:
            found.setdefault(_common(one.kind, other.kind), []).append(abs(one.log_ratio - other.log_ratio))
    return found


def _common(one: RunKind, other: RunKind) -> RunKind:
    return next(kind for kind in wider(one) if other[: len(kind)] == kind)


def _of_kind(pairs: BySource, kind: RunKind) -> list[list[float]]:
    """Return the pairs of a kind of each source that has any."""
    lots = ([each for of, some in found.items() if of[: len(kind)] == kind for each in some] for found in pairs.values())
    return [lot for lot in lots if lot]


def _quantile(pairs: BySource, kind: RunKind) -> tuple[RunKind, float]:
    """Return the quantile of a kind; of too little of it, that of the narrowest wider one, which is at least as large as its own."""
    chain = [(each, _of_kind(pairs, each)) for each in wider(kind)]
    found = next(place for place, (each, lots) in enumerate(chain) if _suffices(lots) or not each)
    spread = _spread(chain[found][1])
    if found and chain[found - 1][1]:
        spread = max(spread, _spread(chain[found - 1][1]))
    return chain[found][0], spread


def _suffices(lots: Sequence[Sequence[float]]) -> bool:
    return len(lots) >= FEWEST_SOURCES and sum(map(len, lots)) >= FEWEST_ROWS


def _spread(lots: Sequence[Sequence[float]]) -> float:
    values = [each for lot in lots for each in lot]
    return weighted_quantile(values, [weight for lot in lots for weight in _weights(len(lot))], LEVEL_FRACTION)


def _weights(n_pairs: int) -> Iterator[float]:
    """Yield the weight of each of so many pairs: together the root of the rows that have as many pairs."""
    n_rows = (1.0 + (1.0 + 8.0 * n_pairs) ** 0.5) / 2.0
    yield from [n_rows**0.5 / n_pairs] * n_pairs


def _needed(pairs: BySource) -> Iterator[tuple[str, float, float]]:
    """Yield of each pair its source, how much wider the quantile of the other sources would have to be, and its weight."""
    for source_id, found in pairs.items():
        others = {name: each for name, each in pairs.items() if name != source_id}
        spread_of = {kind: _quantile(others, kind)[1] for kind in found}
        needed = [each / spread_of[kind] for kind, some in found.items() for each in some]
        yield from ((source_id, each, weight) for each, weight in zip(needed, _weights(len(needed)), strict=True))


def _widening(pairs: BySource) -> float:
    needed = list(_needed(pairs))
    return weighted_quantile([each for _, each, _ in needed], [weight for _, _, weight in needed], LEVEL_FRACTION)


def _coverage(pairs: BySource) -> float:
    """Return the share of pairs that the other sources cover, widened as these alone would be."""
    factors = {source_id: _widening({name: each for name, each in pairs.items() if name != source_id}) for source_id in pairs}
    needed = list(_needed(pairs))
    inside = sum(weight for source_id, each, weight in needed if each <= factors[source_id])
    return inside / sum(weight for _, _, weight in needed)
