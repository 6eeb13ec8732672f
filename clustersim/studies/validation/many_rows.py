"""Simulate many rows, in one process or in several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from clustersim.studies.sources import PublishedSource, read_source
from clustersim.studies.sweeps.pools import in_order
from clustersim.studies.validation.rows import RowResult, run_row

Wanted = tuple[PublishedSource, int]
"""A source, and the number of a row in it, from zero."""
Ran = tuple[RowResult, tuple[str, ...]]
"""A row, and the calibration constants that were fitted to its source."""
ROWS_AT_ONCE: Final = 8
"""That a process is given: few enough that none is left alone with the last ones."""


def run_rows(wanted: Sequence[Wanted], *, jobs: int | None = 1) -> list[Ran]:
    """Return the results of some rows, in their order, however many processes simulate them; None for one for each processor."""
    rows = [_Row(source.document.name, _version(source.document.name), index) for source, index in wanted]
    return list(in_order(_run, rows, jobs=jobs, chunk=ROWS_AT_ONCE))


class _Row(NamedTuple):
    """A row as it is handed to a process."""

    path: str
    version: int
    """Modification time of the file, in ns, which may have been edited since it was read."""
    number: int


def _version(path: str) -> int:
    return Path(path).stat().st_mtime_ns


def _run(row: _Row) -> Ran:
    return run_row(_read_once(row.path, row.version), row.number)


@lru_cache
def _read_once(path: str, version: int) -> PublishedSource:
    """Return a source, read once in each process."""
    del version
    return read_source(path)
