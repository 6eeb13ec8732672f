"""All published rows, replayed once for all tests that ask about them."""

from __future__ import annotations

from functools import cache
from typing import Final

from clustersim.studies.published import Validation, validate
from clustersim.studies.sources import read_source, source_names
from clustersim.studies.validation.residuals import ErrorBars
from clustersim.studies.validation.rows import RowResult

SOURCES: Final = {name: read_source(name) for name in source_names()}
ROWS: Final = {row.id: (source, index) for source in SOURCES.values() for index, row in enumerate(source.spec.rows)}


@cache
def everything() -> Validation:
    return validate()


@cache
def results() -> dict[str, RowResult]:
    return {row.id: row for source in everything().sources for row in source.rows}


def result(row_id: str) -> RowResult:
    return results()[row_id]


def bars() -> ErrorBars:
    made = everything().error_bars
    assert made is not None
    return made
