"""Measurements in tables: CSV files whose columns have one of several names, read with the place of every mistake."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from clustersim.documents.files import MB, read_bytes, text_of
from clustersim.documents.near_names import choices_hint, did_you_mean
from clustersim.documents.text import source_place
from clustersim.errors import Place, ScenarioError

MOST_BYTES: Final = 50 * MB
"""Largest table or text of measurements, in bytes."""
_MOST_OF_ANY: Final = 256 * 2**20
"""Largest trace, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFile:
    """A file that constants are fitted to, by its name and its content."""

    name: str
    """Without its folder."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table."""

    file: str
    number: int
    """Counted from one, the header included."""
    text: str
    cells: Mapping[str, str]
    """By the reader's name of the column; empty cells are left out."""
    columns: Mapping[str, int]
    """Column of the text at which each cell begins, from one; nothing where quotes hide it."""

    def error(self, column: str, message: str, hint: str | None = None) -> ScenarioError:
        """Return an error at a cell."""
        at = self.columns.get(column)
        known = source_place(self.file, [""] * (self.number - 1) + [self.text], self.number, at) if at else None
        place = known or Place(file=self.file, line=self.number)
        return ScenarioError(message, field=column, hint=hint, place=place)

    def choice(self, column: str, choices: Mapping[str, str], default: str | None = None) -> str:
        """Return the meaning of a cell, among some words."""
        given = self.cells.get(column, default)
        if given is None:
            raise self.error(column, "is empty", f"write one of {', '.join(choices)}")
        word = given.lower()
        if word not in choices:
            raise self.error(column, f"'{given}' is not known", choices_hint(word, choices))
        return choices[word]

    def whole(self, column: str, default: int | None = None) -> int:
        """Return a whole number above zero; sizes may be printed as 4096.0."""
        value = self.number_of(column) if column in self.cells or default is None else float(default)
        if value != int(value) or value < 1:
            raise self.error(column, f"'{self.cells[column]}' is not a whole number above zero")
        return int(value)

    def number_of(self, column: str) -> float:
        """Return a number above zero."""
        given = self.cells.get(column)
        if given is None:
            raise self.error(column, "is empty", "write a number above zero")
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value <= 0.0:
            raise self.error(column, f"'{given}' is not a number above zero")
        return value

    def seconds(self, work: float) -> float:
        """Return the measured time, from a time or from a rate of some work."""
        for column, unit_s in TIMES.items():
            if column in self.cells:
                return self.number_of(column) * unit_s
        for column, unit in RATES.items():
            if column in self.cells:
                return work / (self.number_of(column) * unit)
        raise self.error(next(iter(TIMES)), "nothing says how long it took", f"fill one of {', '.join((*TIMES, *RATES))}")


TIMES: Final = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}
RATES: Final = {"flops_per_s": 1.0, "tflops": 1e12}
PRECISIONS: Final = {
    **{name: name for name in ("fp32", "tf32", "fp16", "bf16", "fp8")},
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp16/bf16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    **{f"torch.{name}": short for name, short in (("float32", "fp32"), ("float16", "fp16"), ("bfloat16", "bf16"))},
}
"""Names of precisions in measurement files."""
FLAGS: Final = {"true": "true", "false": "false", "1": "true", "0": "false", "yes": "true", "no": "false"}


def measured_file(path: str) -> MeasuredFile:
    """Return the name and the hash of a file."""
    return MeasuredFile(name=Path(path).name, sha256=sha256(read_bytes(Path(path), _MOST_OF_ANY)).hexdigest())


def read_text(path: str) -> str:
    """Return the text of a file."""
    return text_of(read_bytes(Path(path), MOST_BYTES), path)


def read_table(path: str, columns: Mapping[str, Sequence[str]], needed: Sequence[str]) -> list[Line]:
    """Return the lines of a CSV file.

    Parameters
    ----------
    columns
        For each column that is read, other names that it may have. Further columns are not read.
    needed
        Columns that must be there.

    Raises
    ------
    ScenarioError
        When the file cannot be read, or lacks a column.
    """
    lines = read_text(path).splitlines()
    reader = csv.reader(lines)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ScenarioError(f"is not CSV: {error}", place=Place(file=path, line=reader.line_num)) from error
    if len(rows) < 2:
        raise ScenarioError("holds no measurement", hint="write a header and a line for each measurement", place=Place(file=path))
    (number, header), *rest = rows
    names = {alias: name for name, aliases in columns.items() for alias in (name, *aliases)}
    found = [names.get(cell.lower()) for cell in header]
    for name in needed:
        if name not in found:
            near = did_you_mean(name, header)
            hint = near or f"its header is {','.join(header)}"[:200]
            raise ScenarioError(f"there is no column '{name}'", hint=hint, place=source_place(path, lines, number, 1))
    return [_line(path, at, lines[at - 1], found, row) for at, row in rest]


def _line(path: str, number: int, text: str, names: Sequence[str | None], row: Sequence[str]) -> Line:
    if len(row) > len(names):
        place = source_place(path, [""] * (number - 1) + [text], number, 1)
        raise ScenarioError(f"has {len(row)} cells, and the header {len(names)}", place=place)
    cells: dict[str, str] = {}
    starts: dict[str, int] = {}
    raw = text.split(",")
    at = 1
    for place, (name, cell) in enumerate(zip(names, row, strict=False)):
        if name is not None and name not in cells:
            if cell:
                cells[name] = cell
            if '"' not in text:
                starts[name] = at + len(raw[place]) - len(raw[place].lstrip())
        at += len(raw[place]) + 1 if place < len(raw) else 0
    return Line(file=path, number=number, text=text, cells=cells, columns=starts)
