"""Records of the operations of all ranks of a job: one row for each rank, step and operation, as CSV or Parquet.

References
----------
.. [1] ByteDance, *StragglerAnalysis*, columns of the published records: https://github.com/ByteDance-Seed/StragglerAnalysis.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.records.recorded_job import JobRecord, JobRecords
from clustersim.apps.study.duckdb_file import read_by_duckdb
from clustersim.documents.files import MB, read_text
from clustersim.documents.near_names import did_you_mean
from clustersim.errors import Place, ScenarioError

SUFFIXES: Final = (".csv", ".parquet")
COLUMNS: Final = ("step", "rank", "dp_rank", "stage", "optype", "start_ts", "duration", "seq_id")
_MOST_BYTES: Final = 256 * MB
_TEXT: Final = "optype"
WHOLE: Final = "whole number"
MOST: Final = 2**53
"""Largest number of a step, a rank or an operation that a float represents exactly."""

COMPUTED: Final = ("forward-compute", "backward-compute", "optimizer", "gc")
SENDS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"forward-send": ("forward-recv", 1), "backward-send": ("backward-recv", -1)}
)
"""Operation at the other end of a send, and the stage of that from the stage of the sender."""
RECEIVES: Final = MappingProxyType({receive: send for send, (receive, _) in SENDS.items()})
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
OPERATIONS: Final = (*COMPUTED, *SENDS, *RECEIVES, *GROUPS)


OVERLAP_S: Final = 2e-5
"""By how much an operation may begin before the one that it waits for has ended: published records show up to 15 us."""


def is_records(source: str) -> bool:
    """Return whether a file is a table, which no scenario is."""
    return Path(source).suffix.lower() in SUFFIXES and Path(source).is_file()


def read_records(sources: Sequence[str]) -> JobRecords:
    """Return the records of one file.

    Raises
    ------
    ScenarioError
        When there are several, or it cannot be read, is empty, lacks a column, or a value is wrong.
    """
    source, *others = sources
    if others:
        raise ScenarioError("holds all ranks of a job, and no other file is read beside it", place=Place(file=source), hint="name it alone")
    path, place = Path(source), Place(file=source)
    rows = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not rows:
        raise ScenarioError("holds no records", place=place, hint=f"give a row for each operation, with {', '.join(COLUMNS)}")
    lacking = [column for column in COLUMNS if column not in rows[0]]
    if lacking:
        near = did_you_mean(lacking[0], rows[0])
        raise ScenarioError(f"lacks the column '{lacking[0]}'", place=place, hint=near or f"columns are {', '.join(COLUMNS)}")
    read = [_row(row, number, source) for number, row in enumerate(rows, start=1)]
    n_stages = max(row["stage"] for row, _, _, _ in read) + 1
    return JobRecords(
        records=tuple(_record(*row, n_stages) for row in read),
        n_ranks=len({row["rank"] for row, _, _, _ in read}),
        overlap_s=OVERLAP_S,
        delays=False,
        whole_steps=True,
        clocks="one",
    )


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


def _row(row: Mapping[str, object], number: int, source: str) -> tuple[dict[str, int], str, float, float]:
    """Return the whole numbers of a row, its operation, start and end."""

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
    numbers = {column: int(value(column, WHOLE)) for column in ("step", "rank", "dp_rank", "stage", "seq_id")}
    return numbers, operation, start_s, start_s + duration_s


def _record(row: Mapping[str, int], operation: str, start_s: float, end_s: float, n_stages: int) -> JobRecord:
    transfer = operation in SENDS or operation in RECEIVES
    return JobRecord(
        step=row["step"],
        rank=row["rank"],
        stage=row["stage"],
        operation=RECEIVES.get(operation, operation),
        computes=operation in COMPUTED,
        shared=_shared(row, operation, n_stages),
        alike=RECEIVES.get(operation, operation),
        stream=operation,
        start_s=start_s,
        end_s=end_s,
        is_send=transfer,
        n_ends=2 if transfer else 0,
        title=f"{operation} {row['seq_id']}",
    )


def _shared(row: Mapping[str, int], operation: str, n_stages: int) -> tuple[object, ...]:
    """Return the key that the records of one operation share."""
    for send, (receive, direction) in SENDS.items():
        if operation in (send, receive):
            sender = row["stage"] if operation == send else (row["stage"] - direction) % n_stages
            return send, row["dp_rank"], sender, row["seq_id"]
    if operation in COMPUTED:
        return operation, row["rank"], row["seq_id"]
    return operation, row["seq_id"], *(row[column] for column in GROUPS[operation])
