"""Reader of the SQLite export of Nsight Systems (``nsys export --type sqlite``).

References
----------
.. [1] NVIDIA, *Nsight Systems*, "SQLite Export Schema Reference": times in nanoseconds, names by their number in ``StringIds``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from itertools import starmap
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.traced import LaunchedKernel, NamedRange, TracedDevice, TraceFile, may_wait
from clustersim.errors import Place, ScenarioError

HEADER: Final = b"SQLite format 3\0"
NANO: Final = 1e-9
KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_THREAD_BITS: Final = 24
"""Low bits of the number of a thread, above which it is that of its process."""
COPY_NAMES: Final[Mapping[int, str]] = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
"""Kinds of copies in CUPTI, as PyTorch names them."""
Cell = str | int | float | None
_Call = tuple[int | None, Cell]


def is_nsys(path: str) -> bool:
    """Return whether a file is an SQLite database."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as raw:
        return raw.read(len(HEADER)) == HEADER


def read_nsys(path: str) -> TraceFile:
    """Return what an export holds; shapes of operators and ranks are not in one.

    Raises
    ------
    ScenarioError
        When it is another database, is damaged, or holds no kernels.
    """
    place = Place(file=path)
    try:
        with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = _Tables(database)
            if KERNELS not in tables.columns:
                hint = "record it with nsys profile --trace=cuda,nvtx, and export it with nsys export --type sqlite"
                raise ScenarioError(f"holds no kernels: the table {KERNELS} is missing", hint=hint, place=place)
            if tables.rows(GRAPHS, "start"):
                hint = "record it again with nsys profile --cuda-graph-trace=node"
                raise ScenarioError("holds CUDA graphs as a whole, without their kernels", hint=hint, place=place)
            return _trace(tables)
    except (sqlite3.Error, TypeError, ValueError) as error:
        message = f"is not an export of Nsight Systems that can be read: {error}"
        raise ScenarioError(message, hint="export it again with nsys export --type sqlite", place=place) from error


class _Tables:
    """Tables of an export, which has only those of which something was recorded."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.columns: dict[str, set[str]] = {}
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            self.columns[str(table)] = {str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')}

    def rows(self, table: str, *columns: str) -> list[tuple[Cell, ...]]:
        """Return columns of a table; None for a column that it lacks, and no rows where there is no such table."""
        known = self.columns.get(table)
        if not known:
            return []
        chosen = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
        return self._database.execute(f'SELECT {chosen} FROM "{table}"').fetchall()  # noqa: S608 - names of tables and columns are ours


def _trace(tables: _Tables) -> TraceFile:
    names: dict[Cell, str] = {number: str(value) for number, value in tables.rows("StringIds", "id", "value")}
    issued, threads, waits = _calls(tables, names)
    where = ("start", "end", "deviceId", "streamId", "globalPid", "correlationId")
    kernels = [
        _launched(row[:6], issued, names.get(row[6]) or names.get(row[7]) or "")
        for row in tables.rows(KERNELS, *where, "demangledName", "shortName")
    ]
    copies = [
        _launched(row[:6], issued, COPY_NAMES.get(_whole(row[6]), "Memcpy"))
        for row in tables.rows("CUPTI_ACTIVITY_KIND_MEMCPY", *where, "copyKind")
    ]
    copies += [_launched(row, issued, "Memset") for row in tables.rows("CUPTI_ACTIVITY_KIND_MEMSET", *where)]
    ranges = [
        NamedRange(name=str(text or names.get(number) or ""), start_s=_seconds(start), end_s=_seconds(end))
        for start, end, text, number in tables.rows("NVTX_EVENTS", "start", "end", "text", "textId")
        if start is not None and end is not None
    ]
    used = {kernel.stream[0] for kernel in kernels}
    devices = [
        TracedDevice(name=str(name), memory_bytes=None if memory is None else float(memory))
        for number, name, memory in tables.rows("TARGET_INFO_GPU", "id", "name", "totalMemory")
        if name and (str(number) in used or len(used) == 0)
    ]
    return TraceFile(
        kernels=tuple(sorted(kernels, key=lambda each: each.start_s)),
        operators={},
        launches_s=tuple(tuple(sorted(times)) for _, times in sorted(threads.items())),
        waits_s=tuple(waits),
        devices=tuple(dict.fromkeys(devices)),
        copies=tuple(sorted(copies, key=lambda each: each.start_s)),
        ranges=tuple(sorted(ranges, key=lambda each: each.start_s)),
    )


def _calls(tables: _Tables, names: Mapping[Cell, str]) -> tuple[dict[_Call, float], dict[str, list[float]], list[float]]:
    """Return when each call was issued, by process and correlation; launches of kernels by thread; and calls in which the host may wait."""
    kernels = {*starmap(_call, tables.rows(KERNELS, "globalPid", "correlationId"))}
    alone = "globalPid" not in tables.columns[KERNELS]
    issued: dict[_Call, float] = {}
    threads: dict[str, list[float]] = {}
    waits: list[float] = []
    for start, correlation, thread, name in tables.rows("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "correlationId", "globalTid", "nameId"):
        call = _call(None if alone else thread, correlation)
        issued[call] = _seconds(start)
        if call in kernels:
            threads.setdefault(str(thread), []).append(issued[call])
        elif may_wait(names.get(name, "")):
            waits.append(issued[call])
    return issued, threads, sorted(waits)


def _call(process: Cell, correlation: Cell) -> _Call:
    """Return what tells a call from others: each process counts its own."""
    return (None if process is None else int(process) >> _THREAD_BITS, correlation)


def _launched(row: tuple[Cell, ...], issued: Mapping[_Call, float], name: str) -> LaunchedKernel:
    start, end, device, stream, process, correlation = row
    return LaunchedKernel(
        start_s=_seconds(start),
        duration_s=_seconds(end) - _seconds(start),
        stream=(str(device), str(stream)),
        launched_s=issued.get(_call(process, correlation)),
        operator=None,
        name=name,
    )


def _seconds(value: Cell) -> float:
    return _whole(value) * NANO


def _whole(value: Cell) -> int:
    if value is None:
        raise ValueError("a time is missing")
    return int(value)
