"""Error bars as the file that ``clustersim run`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.report.error_bars import Band, RunKind
from clustersim.scenario.yaml_text import yaml_text
from clustersim.studies.validation.residuals import Counted, ErrorBars

HEADER: Final = """\
# Where measured step times lie, as shares of predicted ones. Made by "clustersim validate --write-residuals"; docs/theory/error-bars.md
# explains it. Not to be edited: any change of a prediction changes it.
"""
DIGITS: Final = 4


def residuals_text(bars: ErrorBars) -> str:
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
        "held_out": [{"without": source_id, **_band(band, kind)} for (source_id, kind), band in bars.bands.held_out.items()],
    }
    return HEADER + yaml_text(data)


def write_residuals(bars: ErrorBars, file: Path) -> None:
    """Write error bars into a file, over what it holds.

    Raises
    ------
    ScenarioError
        When it cannot be written.
    """
    try:
        file.write_text(residuals_text(bars), encoding="utf-8", newline="\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(
            f"cannot write '{file}': {reason}", field="--write-residuals", hint="name a file in a folder that exists"
        ) from error


def _borrowed(counted: Counted) -> dict[str, Data]:
    return {} if counted.band.kind == counted.kind else {"borrowed_from": [*counted.band.kind]}


def _band(band: Band, kind: RunKind) -> dict[str, Data]:
    return {"kind": [*kind], "least": round(band.least_fraction, DIGITS), "most": round(band.most_fraction, DIGITS)}
