"""The results of a sweep as a table: a row for each point, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from clustersim.apps.study.axis import canonical
from clustersim.apps.study.point import ResultRow, figure_names
from clustersim.apps.study.store import cannot_write, replace_file
from clustersim.documents.csv_text import csv_text
from clustersim.documents.files import replacing
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.expressions.parse import metric_hint
from clustersim.measure.error_bars import BAR, BAR_COLUMNS

FORMATS: Final = ("csv", "parquet", "duckdb")
RESULTS: Final = "results"
ALL: Final = "all"
MAIN_METRICS: Final = (
    "gpus",
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "hfu",
    "bubble_fraction",
    "memory_fraction",
    "memory.peak_bytes",
    "time_to_train_s",
    "cost.training.usd",
    "cost.per_million_tokens.usd",
    "cost.per_million_tokens.energy_kwh",
    "goodput.goodput_fraction",
)
"""Default columns."""
SERVED_METRICS: Final = (
    "gpus",
    "requests_per_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "ttft_s.p50",
    "ttft_s.p99",
    "tpot_s.p50",
    "tpot_s.p99",
    "slo.goodput_requests_per_s",
    "kv.peak_fraction",
    "kv.preemptions",
    "cost.per_million_output_tokens.usd",
)
"""The same of a serving scenario."""
_BEFORE: Final = "point"
_AFTER: Final = ("status", "reason", "scenario_hash")

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumns:
    """Columns of a table of results."""

    keys: tuple[str, ...]
    """Keys of the axes."""
    metrics: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in order."""
        return (_BEFORE, *self.keys, *_AFTER, *self.metrics, *self._bar_names)

    @property
    def _bar_names(self) -> tuple[str, ...]:
        return tuple(name for name in BAR_COLUMNS if name not in self.metrics)

    def cells(self, row: ResultRow) -> tuple[Cell, ...]:
        """Return one row of the table; None where there is nothing."""
        outcome = row.outcome
        values = [_cell(row.point.values.get(key)) for key in self.keys]
        figures = [outcome.figures.get(name) for name in self.metrics]
        head = (row.point.number, *values, outcome.status, outcome.reason or None, outcome.scenario_hash or None)
        bar = {} if outcome.bar is None else {f"{BAR}{name}": value for name, value in asdict(outcome.bar).items()}
        return (*head, *figures, *(bar.get(name) for name in self._bar_names))

    def record(self, row: ResultRow) -> dict[str, Data]:
        """Return one row as a mapping, with values as they were written."""
        return {**dict(zip(self.names, self.cells(row), strict=True)), **row.point.values}


def chosen_metrics(names: Sequence[str], *, serves: bool = False) -> tuple[str, ...]:
    """Return the metrics that are shown: those that are named, all for ``all``, and the main ones if none is named.

    Parameters
    ----------
    serves
        Whether they are of a serving scenario.

    Raises
    ------
    ScenarioError
        When there is no such metric.
    """
    known = figure_names(serves=serves)
    if not names:
        return SERVED_METRICS if serves else MAIN_METRICS
    if tuple(names) == (ALL,):
        return tuple(known)
    for name in names:
        if name not in known:
            raise ScenarioError(f"there is no metric '{name}'", field="--metrics", hint=metric_hint(name, known))
    return tuple(dict.fromkeys(names))


def check_format(name: str) -> str:
    """Return the name of a format, if it can be written here.

    Raises
    ------
    ScenarioError
        When there is no such format, or what writes it is not installed.
    """
    if name not in FORMATS:
        raise ScenarioError(f"'{name}' is not a format", field="--format", hint=choices_hint(name, FORMATS))
    if name != "csv" and find_spec("duckdb") is None:
        raise ScenarioError(
            f"{name} is written by DuckDB, which is not installed", field="--format", hint="pip install 'clustersim[store]'"
        )
    return name


def results_path(folder: Path, file_format: str) -> Path:
    """Return where the table of a sweep is."""
    return folder / f"{RESULTS}.{file_format}"


def write_results(folder: Path, columns: ResultColumns, rows: Sequence[ResultRow], file_format: str) -> Path:
    """Write the table of all points, whole or not at all, and return its path; there is one as CSV whatever the format.

    Equal sweeps give equal bytes, except in a DuckDB database.

    Raises
    ------
    ScenarioError
        When it cannot be written.
    """
    table = results_path(folder, "csv")
    replace_file(table, csv_bytes(columns, rows))
    path = results_path(folder, file_format)
    if path == table:
        return path
    from clustersim.apps.study.duckdb_file import write_by_duckdb

    try:
        with replacing(path) as fresh:
            write_by_duckdb(table, fresh, _types(columns, rows), file_format)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def _types(columns: ResultColumns, rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return the SQL type of each column: that of all cells, or text where they differ."""
    kinds: dict[str, set[type]] = {name: set() for name in columns.names}
    for row in rows:
        for name, cell in zip(columns.names, columns.cells(row), strict=True):
            kinds[name] |= set() if cell is None else {type(cell)}
    found: dict[str, str] = {}
    for name, inside in kinds.items():
        number = "BIGINT" if inside == {int} and name not in columns.metrics else "DOUBLE"
        found[name] = "BOOLEAN" if inside == {bool} else number if inside and inside <= {int, float} else "VARCHAR"
        if not inside and name in columns.metrics:
            found[name] = "DOUBLE"
    return found


def csv_bytes(columns: ResultColumns, rows: Sequence[ResultRow]) -> bytes:
    """Return the table as CSV, numbers with all their digits."""
    return csv_text([columns.names, *(columns.cells(row) for row in rows)]).encode()


def _cell(value: Data) -> Cell:
    return canonical(value) if isinstance(value, list | dict) else value
