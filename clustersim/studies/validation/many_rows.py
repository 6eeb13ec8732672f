"""Simulate many rows, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from typing import Final

from clustersim.studies.sources import PublishedSource, read_source
from clustersim.studies.validation.rows import RowResult, run_row

Wanted = tuple[PublishedSource, int]
"""A source, and the number of a row in it, from zero."""
Ran = tuple[RowResult, tuple[str, ...]]
"""A row, and the calibration constants that were fitted to its source."""
OnRow = Callable[[int, int, str], None]
"""Called with the number of a row, from one, the number of rows, and its id: before it begins, or, with several processes, after it."""

ROWS_AT_ONCE: Final = 8
"""That a process is given: few enough that none is left alone with the last ones."""


def run_rows(wanted: Sequence[Wanted], *, n_processes: int = 1, on_row: OnRow | None = None) -> list[Ran]:
    """Return the results of some rows, in their order, however many processes simulate them."""
    tell = on_row or _nobody
    if n_processes == 1:
        return list(_one_by_one(wanted, tell))
    ran: list[Ran] = []
    for number, each in enumerate(_pooled(wanted, n_processes), 1):
        tell(number, len(wanted), each[0].id)
        ran.append(each)
    return ran


def _nobody(number: int, total: int, row_id: str) -> None:
    """Hear of a row, and tell nobody."""


def _one_by_one(wanted: Sequence[Wanted], tell: OnRow) -> Iterator[Ran]:
    for number, (source, index) in enumerate(wanted, 1):
        tell(number, len(wanted), source.spec.rows[index].id)
        yield run_row(source, index)


def _pooled(wanted: Sequence[Wanted], n_processes: int) -> Iterator[Ran]:
    names = [(source.document.name, index) for source, index in wanted]
    # New processes, not forked ones: a fork copies whatever locks other threads hold.
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run, names, chunksize=ROWS_AT_ONCE)


def _run(name: tuple[str, int]) -> Ran:
    return run_row(_read_once(name[0]), name[1])


@lru_cache
def _read_once(path: str) -> PublishedSource:
    """Return a source, read once in each process."""
    return read_source(path)
