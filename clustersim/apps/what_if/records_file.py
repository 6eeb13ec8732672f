"""Records of the operations of all ranks of a job: one row for each rank, step and operation, as CSV or Parquet.

References
----------
.. [1] ByteDance, *StragglerAnalysis*, columns of the published records: https://github.com/ByteDance-Seed/StragglerAnalysis.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.sweep.duckdb_file import read_by_duckdb
from clustersim.documents.check import did_you_mean
from clustersim.documents.files import MB, read_text
from clustersim.errors import Place, ScenarioError

SUFFIXES: Final = (".csv", ".parquet")
COLUMNS: Final = ("step", "rank", "dp_rank", "stage", "optype", "start_ts", "duration", "seq_id")
_MOST_BYTES: Final = 256 * MB
_TEXT: Final = "optype"
WHOLE: Final = "whole number"
MOST: Final = 2**53
"""Largest number of a step, a rank or an operation, which a float still tells from the next."""

COMPUTE: Final = ("forward-compute", "backward-compute", "optimizer", "gc")
SENDS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"forward-send": ("forward-recv", 1), "backward-send": ("backward-recv", -1)}
)
"""Operation at the other end of a send, and the stage of that from the stage of the sender."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "params-all-gather": ("stage",),
        "grads-reduce-scatter": ("stage",),
        "layernorm-grads-all-reduce": ("stage", "dp_rank"),
        "embedding-grads-all-reduce": ("dp_rank",),
        "optimizer-clip-main-grad": (),
    }
)
"""Columns that ranks of one group of a collective have in common."""
OPERATIONS: Final = (*COMPUTE, *SENDS, *(receive for receive, _ in SENDS.values()), *GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One operation of one rank; times in seconds."""

    step: int
    rank: int
    dp_rank: int
    stage: int
    operation: str
    number: int
    """Among the operations of this name of the rank in the step."""
    start_s: float
    end_s: float


def is_records(source: str) -> bool:
    """Return whether a file is a table, which no scenario is."""
    return Path(source).suffix.lower() in SUFFIXES and Path(source).is_file()


def read_records(source: str) -> tuple[JobRecord, ...]:
    """Return the records of a file.

    Raises
    ------
    ScenarioError
        When it cannot be read, is empty, lacks a column, or a value is wrong.
    """
    path, place = Path(source), Place(file=source)
    rows = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not rows:
        raise ScenarioError("holds no records", place=place, hint=f"give a row for each operation, with {', '.join(COLUMNS)}")
    lacking = [column for column in COLUMNS if column not in rows[0]]
    if lacking:
        near = did_you_mean(lacking[0], rows[0])
        raise ScenarioError(f"lacks the column '{lacking[0]}'", place=place, hint=near or f"columns are {', '.join(COLUMNS)}")
    return tuple(_record(row, number, source) for number, row in enumerate(rows, start=1))


def _csv(path: Path) -> list[Mapping[str, object]]:
    try:
        rows = list(csv.DictReader(read_text(path, _MOST_BYTES).splitlines(), strict=True))
        for line, row in enumerate(rows, start=2):
            if None in row or None in row.values():
                raise ScenarioError("has more or fewer values than the header", place=Place(file=str(path), line=line))
        return list[Mapping[str, object]](rows)
    except csv.Error as error:
        raise ScenarioError(f"is not CSV: {error}", place=Place(file=str(path))) from error


def _parquet(path: Path) -> list[Mapping[str, object]]:
    try:
        return list(read_by_duckdb(path))
    except ImportError as error:
        hint = "pip install 'clustersim[store]', or give it as CSV"
        raise ScenarioError("is read by DuckDB, which is not installed", place=Place(file=str(path)), hint=hint) from error
    except OSError as error:
        raise ScenarioError(f"is not Parquet: {error}", place=Place(file=str(path))) from error


def _record(row: Mapping[str, object], number: int, source: str) -> JobRecord:
    def refuse(column: str, right: str) -> ScenarioError:
        hint = did_you_mean(str(row[column]), OPERATIONS) if column == _TEXT else None
        return ScenarioError(f"record {number}: {row[column]!r} is no {right}", field=column, place=Place(file=source), hint=hint)

    def value(column: str, kind: str) -> float:
        try:
            found = float(str(row[column]))
        except ValueError as error:
            raise refuse(column, kind) from error
        if not isfinite(found) or (kind == WHOLE and not (found == int(found) and 0 <= found < MOST)):
            raise refuse(column, kind)
        return found

    operation = str(row[_TEXT])
    if operation not in OPERATIONS:
        raise refuse(_TEXT, "known operation")
    start_s, duration_s = value("start_ts", "time in seconds"), value("duration", "time in seconds")
    if duration_s < 0.0:
        raise refuse("duration", "duration")
    step, rank, dp_rank, stage, seq = (int(value(column, WHOLE)) for column in ("step", "rank", "dp_rank", "stage", "seq_id"))
    return JobRecord(
        step=step, rank=rank, dp_rank=dp_rank, stage=stage, operation=operation, number=seq, start_s=start_s, end_s=start_s + duration_s
    )
