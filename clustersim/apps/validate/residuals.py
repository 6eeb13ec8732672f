"""Error bars from residuals: the size of errors by what makes them larger, tested on other sources, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from clustersim.apps.run.intervals import FactorSpec, RatiosSpec
from clustersim.apps.validate.quantiles import (
    FEWEST_SOURCES,
    LEVEL_FRACTION,
    TIE,
    FloatArray,
    Residual,
    ratios_of,
    weighted_quantile,
    without,
)
from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.files import write_text
from clustersim.documents.text import Data
from clustersim.measure.error_bars import WORDS, Bands, Reach, Spread
from clustersim.units.grouping import grouped

ROW_DIGITS: Final = 5
"""Digits of the residuals that the digest is made of."""
FEWEST_OF_A_WORD: Final = 2
"""Sources that must have rows of which a word is true, for the word to have a factor."""
MANY_OF_A_WORD: Final = 4
"""Sources of a word that tell its factor without a surcharge."""
MOST_FACTOR: Final = 5.0
MOST_WIDTH: Final = 1.0
"""Logarithm of an interval's end over its middle. Only a handful of rows that contradict each other meet these two limits."""
MOST_ROUNDS: Final = 100
CONVERGED: Final = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of rows that lie in intervals which the other sources alone give."""

    weighted_fraction: float
    """A source of n rows counts as the root of n."""
    rows_fraction: float
    sources_fraction: float
    """Every source counts as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBars:
    """Everything that follows from some residuals."""

    bands: Bands
    words: tuple[FactorSpec, ...]
    coverage: Coverage
    source_ids: tuple[str, ...]
    n_rows: int
    """Published runs, each once however it was predicted."""
    digest: str
    """SHA-256 of the residuals."""
    ratios: RatiosSpec | None
    """Ratios of two times on one machine; None where too few are known."""


BySource = Mapping[str, Sequence[Residual]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widenings:
    """Growth of errors beyond what residuals have reached, as factors of logarithms."""

    unmeasured: float = 1.0
    borrowed: float = 1.0
    """With constants of another generation."""
    borrowed_ratios: float = 1.0
    """The same of ratios of two times."""


NOT_WIDER: Final = Widenings()


@dataclass(frozen=True, slots=True)
class _Fit:
    """Middle of the logarithms, mean size of what is left, and the factors of the mean by word."""

    middle: float
    size: float
    factors: dict[str, float]

    def needed(self, row: Residual) -> float:
        """Return the size of a residual over the mean size of its kind."""
        mean = self.size
        for word in row.kind:
            mean *= self.factors.get(word, 1.0)
        return abs(row.log_ratio - self.middle) / mean

    def spread(self, widening: float) -> Spread:
        """Return the intervals that are so many mean sizes wide to each side."""
        return Spread(middle_fraction=exp(self.middle), most_fraction=exp(min(widening * self.size, MOST_WIDTH)), factors=self.factors)


def error_bars(residuals: Sequence[Residual], widenings: Widenings = NOT_WIDER) -> ErrorBars:
    """Return error bars from the residuals of at least three sources.

    The middle is the weighted median of the logarithm r of measured over predicted step time, where a row of a source of n rows weighs one
    over the root of n. The distance from it is taken as distributed exponentially with a mean that is a product: a size, times a
    factor for each word that is true of the row. They are those of maximum likelihood; no factor is below 1. The interval is as many
    of these means wide as hold 0.8 of the rows, weighed alike, where each source is judged by the middle, size and factors of the others.

    Parameters
    ----------
    widenings
        Growth of errors beyond what the residuals have reached.

    Raises
    ------
    ValueError
        Where there are fewer sources: none can be left out.
    """
    by_source = grouped((each.source_id, each) for each in residuals)
    if len(by_source) < FEWEST_SOURCES:
        raise ValueError(f"{len(by_source)} sources, of at least {FEWEST_SOURCES}")
    spread = _fit(by_source).spread(_widening(by_source))
    held_out: dict[str, Spread] = {}
    for source_id in by_source:
        others = without(by_source, source_id)
        held_out[source_id] = _fit(others).spread(_widening(others))
    ratios = ratios_of(by_source, spread)
    bands = Bands(
        level_fraction=LEVEL_FRACTION,
        spread=spread,
        held_out=held_out,
        ratio_most_fraction=inf if ratios is None else ratios.most,
        reach=_reach(by_source, widenings),
    )
    inside = {source_id: [covers(held_out[source_id], row) for row in rows] for source_id, rows in by_source.items()}
    return ErrorBars(
        bands=bands,
        words=tuple(_counted(by_source, word, factor, inside) for word, factor in spread.factors.items()),
        coverage=coverage_of(inside),
        source_ids=tuple(sorted(by_source)),
        n_rows=len({(row.source_id, row.row_id) for row in residuals}),
        digest=digest(residuals),
        ratios=ratios,
    )


def covers(spread: Spread, row: Residual) -> bool:
    """Return whether the measured time is in the interval of the predicted one."""
    band = spread.band(row.kind)
    return band.least_fraction <= exp(row.log_ratio) <= band.most_fraction


def coverage_of(inside: Mapping[str, Sequence[bool]]) -> Coverage:
    """Return the share of rows that are covered, from whether each row of each source is."""
    return Coverage(
        weighted_fraction=sum(len(rows) ** 0.5 * fmean(rows) for rows in inside.values())
        / sum(len(rows) ** 0.5 for rows in inside.values()),
        rows_fraction=fmean(each for rows in inside.values() for each in rows),
        sources_fraction=fmean(fmean(rows) for rows in inside.values()),
    )


def digest(residuals: Iterable[Residual]) -> str:
    """Return the SHA-256 of residuals in any order, rounded to so many digits that round-off does not show."""
    lines = sorted(
        f"{each.source_id},{each.row_id},{'/'.join(each.kind)},{each.measured_s / each.predicted_s:.{ROW_DIGITS}g}" for each in residuals
    )
    return sha256("\n".join(lines).encode()).hexdigest()


def _weights(by_source: BySource) -> list[float]:
    return [len(rows) ** -0.5 for rows in by_source.values() for _ in rows]


def _fit(by_source: BySource) -> _Fit:
    rows = [row for some in by_source.values() for row in some]
    weights, logs = _weights(by_source), [row.log_ratio for row in rows]
    middle = weighted_quantile(logs, weights, 0.5)
    words = [word for word in WORDS if _tells(by_source, word)]
    true = np.array([[1.0, *(float(word in row.kind) for word in words)] for row in rows])
    means = _mean_sizes(true, np.abs(np.array(logs) - middle), np.array(weights))
    # Words only widen: an error bar is not made narrower by what few sources happen to have met well.
    factors = {word: max(1.0, float(mean)) * _for_few(by_source, word) for word, mean in zip(words, means[1:], strict=True)}
    return _Fit(middle, float(means[0]), {word: min(factor, MOST_FACTOR) for word, factor in factors.items()})


def _for_few(by_source: BySource, word: str) -> float:
    """Return by how much another source may be farther off than the few that have a word, as the mean of k draws is from one more."""
    n_sources = sum(any(word in row.kind for row in rows) for rows in by_source.values())
    return sqrt(1.0 + 1.0 / (n_sources - 1)) if 1 < n_sources < MANY_OF_A_WORD else 1.0


def _tells(by_source: BySource, word: str) -> bool:
    true = [sum(word in row.kind for row in rows) for rows in by_source.values()]
    return sum(n > 0 for n in true) >= FEWEST_OF_A_WORD and sum(true) < sum(map(len, by_source.values()))


def _mean_sizes(true: FloatArray, sizes: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the first mean and the factors of the rest, of exponentially distributed sizes with most likelihood, by Fisher scoring."""
    found = np.zeros(true.shape[1])
    found[0] = log(max(float(np.average(sizes, weights=weights)), TIE))
    information = np.linalg.pinv(true.T @ (weights[:, None] * true))
    for _ in range(MOST_ROUNDS):
        change = information @ (true.T @ (weights * (sizes * np.exp(-true @ found) - 1.0)))
        found += np.clip(change, -1.0, 1.0)
        if np.abs(change).max() < CONVERGED:
            break
    means: FloatArray = np.exp(np.maximum(found, log(TIE)))
    return means


def _widening(by_source: BySource) -> float:
    """Return how many mean sizes of the other sources an interval must be wide to cover as much of a source."""
    needed = [fit.needed(row) for source_id, rows in by_source.items() for fit in [_fit(without(by_source, source_id))] for row in rows]
    return weighted_quantile(needed, _weights(by_source), LEVEL_FRACTION)


def _reach(by_source: BySource, widenings: Widenings) -> Reach:
    def farthest(of: Mapping[str, int]) -> int:
        """Return what at least three sources have gone to."""
        return sorted(of.values(), reverse=True)[FEWEST_SOURCES - 1]

    return Reach(
        accelerators=tuple(sorted({row.accelerator for rows in by_source.values() for row in rows})),
        n_accelerators=farthest({name: max(row.n_accelerators for row in rows) for name, rows in by_source.items()}),
        seq_length=farthest({name: max(row.seq_length for row in rows) for name, rows in by_source.items()}),
        widening=widenings.unmeasured,
        borrowed_widening=widenings.borrowed,
        borrowed_ratio_widening=widenings.borrowed_ratios,
    )


def _counted(by_source: BySource, word: str, factor: float, inside: Mapping[str, Sequence[bool]]) -> FactorSpec:
    held = [
        (row, covered)
        for source_id, rows in by_source.items()
        for row, covered in zip(rows, inside[source_id], strict=True)
        if word in row.kind
    ]
    return FactorSpec.model_validate(
        {
            "word": word,
            "factor": factor,
            "rows": len({(row.source_id, row.row_id) for row, _ in held}),
            "sources": len({row.source_id for row, _ in held}),
            "covered": fmean(covered for _, covered in held),
        }
    )


STEP_TIMES: Final = "step times"
PEAKS: Final = "peaks of memory"
HEADER: Final = """\
# Where measured {what} lie, as shares of predicted ones. Made by "clustersim validate --write-residuals"; docs/theory/error-bars.md
# explains it. Not to be edited: any change of a prediction changes it.
"""
DIGITS: Final = 4


def residuals_text(bars: ErrorBars, what: str = STEP_TIMES) -> str:
    """Return error bars as YAML; equal error bars give equal text."""
    coverage = bars.coverage
    data: dict[str, Data] = {
        "level": bars.bands.level_fraction,
        "sources": list(bars.source_ids),
        "made_from": {"rows": bars.n_rows, "sha256": bars.digest},
        "coverage": {"weighted": coverage.weighted_fraction, "rows": coverage.rows_fraction, "sources": coverage.sources_fraction},
        "spread": _spread(bars.bands.spread),
        **(_of_step_times(bars) if what == STEP_TIMES else {}),
        "held_out": [
            {"without": source_id, **_spread(spread), **({"factors": dict(spread.factors)} if spread.factors else {})}
            for source_id, spread in sorted(bars.bands.held_out.items())
        ],
    }
    return HEADER.format(what=what) + yaml_text({key: rounded_data(value, DIGITS) for key, value in data.items()})


def _of_step_times(bars: ErrorBars) -> dict[str, Data]:
    """Return the keys that only step times have."""
    found: dict[str, Data] = {"factors": [each.model_dump() for each in bars.words], "reach": plain(bars.bands.reach)}
    return found if bars.ratios is None else {**found, "ratios": bars.ratios.model_dump()}


def rounded_data(data: Data, digits: int) -> Data:
    """Return data with its fractional numbers rounded to digits behind the point."""
    if isinstance(data, dict):
        return {key: rounded_data(value, digits) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded_data(value, digits) for value in data]
    return round(data, digits) if isinstance(data, float) else data


def write_residuals(bars: ErrorBars, file: Path, what: str = STEP_TIMES) -> None:
    """Write error bars into a file, over what it holds."""
    write_text(file, residuals_text(bars, what), field="--write-residuals", hint="name a file in a folder that exists")


def _spread(spread: Spread) -> dict[str, Data]:
    return {"middle": spread.middle_fraction, "most": spread.most_fraction}
