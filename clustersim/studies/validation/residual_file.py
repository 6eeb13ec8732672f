"""Error bars as the file that ``clustersim run`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clustersim.documents.files import write_text
from clustersim.documents.spots import Data
from clustersim.report.error_bars import Band, RunKind
from clustersim.scenario.yaml_text import yaml_text
from clustersim.studies.validation.ratios import CountedRatio
from clustersim.studies.validation.residuals import Counted, ErrorBars

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
