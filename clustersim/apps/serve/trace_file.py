"""Traces of requests, and lists of lengths: CSV files with a header; lines that begin with ``#`` are comments."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from clustersim.documents.files import read_text
from clustersim.errors import Place, ScenarioError
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import IntArray

_MOST_BYTES: Final = 1_000_000_000
_MOST_TOKENS: Final = 100_000_000
_COLUMNS: Final = ("arrival_s", "input_tokens", "output_tokens")
_PREFIX: Final = "prefix_blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests as they were recorded."""

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    prefixes: tuple[tuple[int, ...], ...]
    """Ids of the blocks of each prompt; empty where the file has none."""


def found_file(name: str, folder: Path, field: str) -> Path:
    """Return a file that stands beside the scenario or in the working directory."""
    for path in (folder / name, Path(name)):
        if path.is_file():
            return path
    raise ScenarioError(f"there is no file '{name}'", field=field, hint="write the path of a CSV file, counted from the scenario")


def read_trace(path: Path) -> Trace:
    """Return the requests of a trace, in the order of their arrival.

    Raises
    ------
    ScenarioError
        With the line of the first mistake.
    """
    rows = _rows(path, _COLUMNS)
    arrival_s = np.array([_number(path, line, row["arrival_s"], "arrival_s") for line, row in rows])
    later = np.flatnonzero(np.diff(arrival_s) < 0.0)
    if len(later):
        line = rows[int(later[0]) + 1][0]
        raise ScenarioError(
            "arrival_s is less than in the line before", place=Place(file=str(path), line=line), hint="sort the trace by it"
        )
    lengths = [
        np.array([_whole(path, line, row[column], column) for line, row in rows], dtype=np.int64)
        for column in ("input_tokens", "output_tokens")
    ]
    has_prefixes = _PREFIX in rows[0][1]
    prefixes = tuple(_ids(path, line, row[_PREFIX]) for line, row in rows) if has_prefixes else ()
    return Trace(arrival_s=arrival_s, input_tokens=lengths[0], output_tokens=lengths[1], prefixes=prefixes)


def read_lengths(path: Path, column: str) -> tuple[int, ...]:
    """Return the lengths of a file: of a column, or of the only one that there is."""
    rows = _rows(path, ())
    names = list(rows[0][1])
    chosen = column if column in names else names[0]
    if chosen != column and len(names) > 1:
        raise ScenarioError(f"has no column {column}", place=Place(file=str(path), line=1), hint=f"its columns are {', '.join(names)}")
    return tuple(_whole(path, line, row[chosen], chosen) for line, row in rows)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, Mapping[str, str]]]:
    text = read_text(path, _MOST_BYTES, hint="a trace is a CSV file")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip() and not line.startswith("#")]
    if len(lines) < 2:
        raise ScenarioError("holds no requests", place=Place(file=str(path)), hint=f"write a header, {', '.join(columns)}, and a line each")
    cells = csv.reader(line for _, line in lines)
    header = [cell.strip() for cell in next(cells)]
    for column in columns:
        if column not in header:
            place = Place(file=str(path), line=lines[0][0])
            raise ScenarioError(f"column {column} is missing", place=place, hint=f"its columns are {', '.join(header)}")
    rows: list[tuple[int, Mapping[str, str]]] = []
    for (number, _), row in zip(lines[1:], cells, strict=True):
        if len(row) < len(header):
            raise ScenarioError(f"has {len(row)} of {len(header)} columns", place=Place(file=str(path), line=number), hint="fill the line")
        rows.append((number, dict(zip(header, (cell.strip() for cell in row), strict=False))))
    return rows


def _number(path: Path, line: int, text: str, column: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < 1e9:
        place = Place(file=str(path), line=line)
        raise ScenarioError(f"{column} '{text}' is not a time", place=place, hint="write seconds from the first request, at least 0")
    return value


def _whole(path: Path, line: int, text: str, column: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value <= _MOST_TOKENS:
        place = Place(file=str(path), line=line)
        raise ScenarioError(f"{column} '{text}' is not a number of tokens", place=place, hint="write a whole number, at least 1")
    return value


def _ids(path: Path, line: int, text: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in text.split():
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            place = Place(file=str(path), line=line)
            raise ScenarioError(f"{_PREFIX} has '{part}'", place=place, hint="write ids and runs of ids, such as '0-13 27'")
        ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)
