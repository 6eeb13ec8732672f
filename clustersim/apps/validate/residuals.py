"""Error bars from residuals: quantiles of measured over predicted times by kind of run, tested on other sources, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, inf
from pathlib import Path
from statistics import fmean
from typing import Final

from clustersim.apps.validate.quantiles import FEWEST_ROWS, FEWEST_SOURCES, LEVEL_FRACTION, Residual, weighted_quantile
from clustersim.apps.validate.ratios import CountedRatio, Ratios, ratios_of
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import write_text
from clustersim.documents.spots import Data
from clustersim.measure.error_bars import Band, Bands, RunKind, wider

ROW_DIGITS: Final = 5
"""Digits of the residuals that the digest is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of rows that lie in intervals which the other sources alone give."""

    weighted_fraction: float
    """A source of n rows counts as the root of n."""
    rows_fraction: float
    sources_fraction: float
    """Every source counts as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The band of a kind, and how much of that there is."""

    kind: RunKind
    band: Band
    """Band of the kind itself, or of a wider one from which it borrows."""
    n_rows: int
    n_sources: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBars:
    """Everything that follows from some residuals."""

    bands: Bands
    counted: tuple[Counted, ...]
    """The bands by kind."""
    widening: float
    """Factor by which half the width of a quantile is multiplied, so that sources that did not give it are covered."""
    coverage: Coverage
    source_ids: tuple[str, ...]
    n_rows: int
    digest: str
    """SHA-256 of the residuals."""
    ratios: Ratios
    """Ratios of two times on one machine."""


BySource = Mapping[str, Sequence[Residual]]


@dataclass(frozen=True, slots=True)
class _Raw:
    """Quantiles of one kind, as a middle and a half width of logarithms."""

    kind: RunKind
    middle: float
    half: float

    def band(self, widening: float) -> Band:
        spread = widening * self.half
        return Band(kind=self.kind, least_fraction=exp(self.middle - spread), most_fraction=exp(self.middle + spread))


def error_bars(residuals: Sequence[Residual], *, unmeasured_widening: float = 1.0) -> ErrorBars:
    """Return error bars from the residuals of at least three sources.

    Of a kind, the quantiles at 0.1 and 0.9 of the logarithm of measured over predicted step time are taken, where a row of a source that
    has n of the kind weighs one over the root of n. A kind that there is too little of borrows those of a wider one, which then reach at
    least as far as its own. Quantiles are widened about their middle by one factor for all kinds, for which 0.8 of the
    rows, weighed alike, lie in what the other sources give. Where a source is left out, so it is for the factor.

    Parameters
    ----------
    unmeasured_widening
        By how much wider are the bands of accelerators that none of the residuals is of.

    Raises
    ------
    ValueError
        Where there are fewer sources: none can be left out.
    """
    by_source: dict[str, list[Residual]] = {}
    for residual in residuals:
        by_source.setdefault(residual.source_id, []).append(residual)
    if len(by_source) < FEWEST_SOURCES:
        raise ValueError(f"{len(by_source)} sources, of at least {FEWEST_SOURCES}")
    widening = _widening(by_source)
    held_out = {
        (source_id, kind): _raw(others, kind).band(factor)
        for source_id, rows in by_source.items()
        for others in [_without(by_source, source_id)]
        for factor in [_widening(others)]
        for kind in dict.fromkeys(row.kind for row in rows)
    }
    kinds = sorted({each for residual in residuals for each in wider(residual.kind)})
    counted = tuple(
        Counted(
            kind=kind,
            band=_raw(by_source, kind).band(widening),
            n_rows=sum(len(rows) for rows in _of_kind(by_source, kind)),
            n_sources=len(_of_kind(by_source, kind)),
        )
        for kind in kinds
    )
    ratios = ratios_of(by_source)
    bands = Bands(
        level_fraction=LEVEL_FRACTION,
        by_kind={each.kind: each.band for each in counted},
        held_out=held_out,
        ratios={each.kind: each.most_fraction for each in ratios.counted} or {(): inf},
        accelerators=tuple(sorted({row.accelerator for row in residuals})),
        unmeasured_widening=unmeasured_widening,
    )
    return ErrorBars(
        bands=bands,
        counted=counted,
        widening=widening,
        coverage=_coverage(by_source, held_out),
        source_ids=tuple(sorted(by_source)),
        n_rows=len(residuals),
        digest=digest(residuals),
        ratios=ratios,
    )


def digest(residuals: Iterable[Residual]) -> str:
    """Return the SHA-256 of residuals in any order, rounded to so many digits that round-off does not show."""
    lines = sorted(
        f"{each.source_id},{each.row_id},{'/'.join(each.kind)},{each.measured_s / each.predicted_s:.{ROW_DIGITS}g}" for each in residuals
    )
    return sha256("\n".join(lines).encode()).hexdigest()


def _raw(by_source: BySource, kind: RunKind) -> _Raw:
    """Return the quantiles of a kind; of too little of it, those of the narrowest wider one, that reach at least as far as its own."""
    chain = [(each, rows) for each in wider(kind) for rows in [_of_kind(by_source, each)]]
    found = next(place for place, (each, rows) in enumerate(chain) if _suffices(rows) or not each)
    least, most = _quantiles(chain[found][1])
    # The widest kind that has too little: what little there is must not be promised away.
    if found and chain[found - 1][1]:
        own_least, own_most = _quantiles(chain[found - 1][1])
        least, most = min(least, own_least), max(most, own_most)
    return _Raw(chain[found][0], (least + most) / 2, (most - least) / 2)


def _quantiles(rows_of: Sequence[Sequence[Residual]]) -> tuple[float, float]:
    """Return the ends between which the middle of the logarithms lies, as much of it as is promised."""
    values = [row.log_ratio for rows in rows_of for row in rows]
    weights = [len(rows) ** -0.5 for rows in rows_of for _ in rows]
    least, most = (weighted_quantile(values, weights, (1.0 + side * LEVEL_FRACTION) / 2) for side in (-1, 1))
    return least, most


def _of_kind(by_source: BySource, kind: RunKind) -> list[list[Residual]]:
    """Return the rows of a kind of each source that has any."""
    rows_of = ([row for row in rows if row.kind[: len(kind)] == kind] for rows in by_source.values())
    return [rows for rows in rows_of if rows]


def _suffices(rows_of: Sequence[Sequence[Residual]]) -> bool:
    return len(rows_of) >= FEWEST_SOURCES and sum(map(len, rows_of)) >= FEWEST_ROWS


def _without(by_source: BySource, source_id: str) -> dict[str, Sequence[Residual]]:
    return {name: rows for name, rows in by_source.items() if name != source_id}


def _widening(by_source: BySource) -> float:
    """Return the factor by which quantiles must be widened to cover as much of a source that did not give them."""
    needed: list[float] = []
    weights: list[float] = []
    for source_id, rows in by_source.items():
        others = _without(by_source, source_id)
        raw_of = {kind: _raw(others, kind) for kind in dict.fromkeys(row.kind for row in rows)}
        needed += [abs(row.log_ratio - raw_of[row.kind].middle) / raw_of[row.kind].half for row in rows]
        weights += [len(rows) ** -0.5] * len(rows)
    return weighted_quantile(needed, weights, LEVEL_FRACTION)


def _coverage(by_source: BySource, held_out: Mapping[tuple[str, RunKind], Band]) -> Coverage:
    inside = {
        source_id: [
            band.least_fraction <= exp(row.log_ratio) <= band.most_fraction for row in rows for band in [held_out[source_id, row.kind]]
        ]
        for source_id, rows in by_source.items()
    }
    return Coverage(
        weighted_fraction=sum(len(rows) ** 0.5 * fmean(rows) for rows in inside.values())
        / sum(len(rows) ** 0.5 for rows in inside.values()),
        rows_fraction=fmean(each for rows in inside.values() for each in rows),
        sources_fraction=fmean(fmean(rows) for rows in inside.values()),
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
        "widening": round(bars.widening, DIGITS),
        "coverage": {
            "weighted": round(coverage.weighted_fraction, DIGITS),
            "rows": round(coverage.rows_fraction, DIGITS),
            "sources": round(coverage.sources_fraction, DIGITS),
        },
        "kinds": [
            {**_band(each.band, each.kind), **_borrowed(each), "rows": each.n_rows, "sources": each.n_sources} for each in bars.counted
        ],
        **(_machines(bars) if what == STEP_TIMES else {}),
        "held_out": [{"without": source_id, **_band(band, kind)} for (source_id, kind), band in bars.bands.held_out.items()],
    }
    return HEADER.format(what=what) + yaml_text(data)


def _machines(bars: ErrorBars) -> dict[str, Data]:
    """Return the keys that only step times have: ratios on one machine, where any are known, and accelerators without a row."""
    unmeasured: Data = {"measured": list(bars.bands.accelerators), "widening": round(bars.bands.unmeasured_widening, DIGITS)}
    if not bars.ratios.counted:
        return {"unmeasured": unmeasured}
    ratios: Data = {
        "widening": round(bars.ratios.widening, DIGITS),
        "coverage": round(bars.ratios.coverage_fraction, DIGITS),
        "kinds": [_ratio(each) for each in bars.ratios.counted],
    }
    return {"ratios": ratios, "unmeasured": unmeasured}


def write_residuals(bars: ErrorBars, file: Path, what: str = STEP_TIMES) -> None:
    """Write error bars into a file, over what it holds.

    Raises
    ------
    ScenarioError
        When it cannot be written.
    """
    write_text(file, residuals_text(bars, what), field="--write-residuals", hint="name a file in a folder that exists")


def _borrowed(counted: Counted) -> dict[str, Data]:
    return {} if counted.band.kind == counted.kind else {"borrowed_from": [*counted.band.kind]}


def _ratio(counted: CountedRatio) -> Data:
    borrowed: dict[str, Data] = {} if counted.of == counted.kind else {"borrowed_from": [*counted.of]}
    pairs: dict[str, Data] = {"pairs": counted.n_pairs, "sources": counted.n_sources}
    return {"kind": [*counted.kind], "most": round(counted.most_fraction, DIGITS), **borrowed, **pairs}


def _band(band: Band, kind: RunKind) -> dict[str, Data]:
    return {"kind": [*kind], "least": round(band.least_fraction, DIGITS), "most": round(band.most_fraction, DIGITS)}
