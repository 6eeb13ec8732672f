"""All published rows, replayed once for all tests that ask about them."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from clustersim.apps.validate.published import Validation, step_time_error_bars, validate, validate_defaults
from clustersim.apps.validate.residuals import ErrorBars
from clustersim.apps.validate.rows import RowResult
from clustersim.apps.validate.sources import PublishedSource, read_source, source_names

PATIENCE_S: Final = 1200.0


@cache
def published() -> dict[str, tuple[PublishedSource, int]]:
    """Return the source of each row, and its place there."""
    return {row.id: (source, index) for source in map(read_source, source_names()) for index, row in enumerate(source.spec.rows)}


@cache
def everything() -> Validation:
    """Return all rows; of several processes that run tests one replays them, and the others wait for what it found."""
    return _shared("said", validate)


@cache
def defaults() -> Validation:
    """Return all rows by what people type alone."""
    return _shared("defaults", validate_defaults)


def _shared(name: str, work: Callable[..., Validation]) -> Validation:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return work()
    found = Path(tempfile.gettempdir()) / f"clustersim-published-{name}-{run}.pickle"
    try:
        os.close(os.open(found.with_suffix(".begun"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return _waited_for(found)
    validation = work(jobs=2)
    part = found.with_suffix(".part")
    part.write_bytes(pickle.dumps(validation))
    part.rename(found)
    return validation


def _waited_for(found: Path) -> Validation:
    end = time.monotonic() + PATIENCE_S
    while not found.exists():
        assert time.monotonic() < end, "another process has not replayed the published rows"
        time.sleep(0.1)
    validation: Validation = pickle.loads(found.read_bytes())
    return validation


@cache
def results() -> dict[str, RowResult]:
    return {row.id: row for source in everything().sources for row in source.rows}


def result(row_id: str) -> RowResult:
    return results()[row_id]


@cache
def bars() -> ErrorBars:
    return step_time_error_bars(everything(), defaults())
