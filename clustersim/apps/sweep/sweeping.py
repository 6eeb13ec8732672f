"""A sweep from end to end: points, workers, store, table."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.apps.sweep.point import STATUSES, PointOutcome
from clustersim.apps.sweep.pools import WorkerPool
from clustersim.apps.sweep.question import SweepQuestion
from clustersim.apps.sweep.results import GrowingTable, ResultRow, results_path, write_results
from clustersim.apps.sweep.running import run_points
from clustersim.apps.sweep.store import header_of, opened
from clustersim.documents.spots import Data
from clustersim.progress import advanced, phase

if TYPE_CHECKING:
    import pandas

FOLDER: Final = Path("runs/sweeps")
"""Folder of sweeps unless something else is said, with a folder of its own for each."""
HASH_DIGITS: Final = 8

MakePool = Callable[[int], AbstractContextManager[WorkerPool]]
"""Gives workers for so many points at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """All points of a sweep and what came of them."""

    question: SweepQuestion
    rows: tuple[ResultRow, ...]
    """In the order of the points."""
    path: Path | None = None
    """Path of the table, where one was written."""
    n_kept: int = 0
    """Points that an earlier sweep had finished."""

    @property
    def answers(self) -> list[ResultRow]:
        """Points that run and meet every condition, the best first."""
        return self.question.answers(self.rows)

    @property
    def best(self) -> ResultRow | None:
        """The best point; None where none is good enough."""
        return next(iter(self.answers), None)

    @property
    def undecided(self) -> list[ResultRow]:
        """Points that the best cannot be told apart from within the error bars, the best first."""
        return self.question.undecided(self.rows)

    def count(self, status: str) -> int:
        """Return how many points ended in one of ``ok``, ``unmet``, ``infeasible`` and ``failed``."""
        return sum(row.outcome.status == status for row in self.rows)

    def __repr__(self) -> str:
        """Return the result in one line; all of it is in ``print(result)`` and :meth:`to_dict`."""
        from clustersim.apps.sweep.sweep_report import headline

        return f"<SweepResult {self.question.name}: {headline(self)}>"

    def __str__(self) -> str:
        """Return what ``sweep`` prints."""
        from clustersim.apps.sweep.sweep_report import text_of

        return text_of(self)

    def records(self) -> list[dict[str, Data]]:
        """Return a mapping for each point: its number, values, status, reason, and metrics."""
        return [self.question.columns.record(row) for row in self.rows]

    def to_dict(self) -> dict[str, Data]:
        """Return the document that ``sweep --json`` prints."""
        best = self.best
        answers: list[Data] = [row.point.number for row in self.answers]
        points: list[Data] = [dict(record) for record in self.records()]
        return {
            "schema_version": 1,
            "name": self.question.name,
            "keys": list(self.question.design.keys),
            "where": [each.text for each in self.question.where],
            "sort": self.question.sort.text,
            "counts": {status: self.count(status) for status in STATUSES},
            "best": None if best is None else dict(self.question.columns.record(best)),
            "undecided": [row.point.number for row in self.undecided],
            "answers": answers,
            "points": points,
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return a row for each point, with the columns of the table."""
        import pandas as pd

        return pd.DataFrame.from_records(self.records(), columns=list(self.question.columns.names))


def default_folder(question: SweepQuestion) -> Path:
    """Return where a sweep is kept: the same sweep always in the same folder, others elsewhere."""
    import hashlib

    from clustersim.apps.sweep.axis import canonical

    whole = {"base": header_of(question.base)["scenario"], "points": [point.key for point in question.points]}
    digest = hashlib.sha256(canonical(whole).encode()).hexdigest()
    return FOLDER / question.name / digest[:HASH_DIGITS]


def run_sweep(question: SweepQuestion, make_pool: MakePool, *, folder: Path | None, file_format: str = "csv") -> SweepResult:
    """Run all points that have not been run yet.

    Parameters
    ----------
    make_pool
        Gives the workers.
    folder
        Where everything is kept, and looked for; None keeps nothing.
    file_format
        Of the table at the end: ``csv``, ``parquet`` or ``duckdb``.

    Raises
    ------
    ScenarioError
        When another sweep is at work in the folder, it belongs to something else, cannot be written, or those who should run the
        points are gone. What has finished is kept.
    """
    with phase("sweep"):
        if folder is None:
            found = dict(_finished(question, {}, make_pool))
            return SweepResult(question=question, rows=_rows(question, found))
        with opened(folder, question.base) as store:
            kept = {key: outcome for key, outcome in store.found.items() if outcome.status != "failed"}
            rows = [ResultRow(point=point, outcome=kept[point.key]) for point in question.points if point.key in kept]
            table = GrowingTable(results_path(folder, "csv"), question.columns, rows)
            by_key = {point.key: point for point in question.points}
            # Closed at once where a line cannot be written: nobody works on.
            with closing(_finished(question, kept, make_pool)) as finished:
                for key, outcome in finished:
                    store.keep(key, outcome)
                    table.add(ResultRow(point=by_key[key], outcome=outcome))
            everything = _rows(question, store.found)
            store.arrange(by_key)
            path = write_results(folder, question.columns, everything, file_format)
        return SweepResult(question=question, rows=everything, path=path, n_kept=len(rows))


def _finished(question: SweepQuestion, kept: dict[str, PointOutcome], make_pool: MakePool) -> Generator[tuple[str, PointOutcome]]:
    todo = [point for point in question.points if point.key not in kept]
    if not todo:
        return
    n_total = len(question.points)
    advanced(n_total - len(todo), n_total)
    with make_pool(len(todo)) as pool:
        for number, (point, outcome) in enumerate(run_points(question.base, todo, pool), 1):
            yield point.key, outcome
            advanced(n_total - len(todo) + number, n_total)


def _rows(question: SweepQuestion, found: dict[str, PointOutcome]) -> tuple[ResultRow, ...]:
    return tuple(ResultRow(point=point, outcome=found[point.key]) for point in question.points)
