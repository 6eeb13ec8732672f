"""A sweep from end to end: points, workers, store, table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.apps.run.intervals import shipped_memory_band
from clustersim.apps.study.axis import canonical, value_text
from clustersim.apps.study.point import STATUSES, PointOutcome, ResultRow, run_points, software_lines
from clustersim.apps.study.pools import WorkerPool
from clustersim.apps.study.results import ALL, chosen_metrics, write_results
from clustersim.apps.study.store import header_of, opened
from clustersim.apps.study.sweep_question import SweepQuestion
from clustersim.documents.text import Data
from clustersim.measure.deciding import undecided_text
from clustersim.measure.error_bars import TIGHT, memory_verdict_of
from clustersim.progress import advanced, phase
from clustersim.report.facts import memory_text
from clustersim.report.text_tables import TextAnswer, TextTable, shown, shown_alike
from clustersim.units.divisors import count_text

if TYPE_CHECKING:
    import pandas

    from clustersim.report.plots.kinds import Plots

FOLDER: Final = Path("runs/sweeps")
"""Folder of sweeps unless something else is said, with a folder of its own for each."""
HASH_DIGITS: Final = 8
N_SHOWN: Final = 20
"""Points of the table."""
N_REASONS: Final = 5
_TOO_LARGE: Final = "does not fit in memory"

MakePool = Callable[[int], AbstractContextManager[WorkerPool]]
"""Gives workers for so many points at most."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult(TextAnswer):
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
        return self.question.objective.ranked(self.rows)

    @property
    def best(self) -> ResultRow | None:
        """The best point; None where none is good enough."""
        return next(iter(self.answers), None)

    @property
    def undecided(self) -> list[ResultRow]:
        """Points that the best cannot be told apart from within the error bars, the best first."""
        return self.question.objective.undecided(self.answers)

    def count(self, status: str) -> int:
        """Return how many points ended in one of ``ok``, ``unmet``, ``infeasible`` and ``failed``."""
        return sum(row.outcome.status == status for row in self.rows)

    def lines(self) -> tuple[str, ...]:
        """Return how many points ended how."""
        counts = [f"{self.count(status):,} {status}" for status in STATUSES if self.count(status)]
        where = self.question.objective.where
        meets = f"; {len(self.answers):,} meet {' and '.join(each.text for each in where)}" if where else ""
        kept = f"; {self.n_kept:,} were kept from before" if self.n_kept else ""
        return (f"{', '.join(counts)}{meets}{kept}",)

    def tables(self) -> tuple[TextTable, ...]:
        """Return the best points with the main metrics alone, and why some did not end well."""
        main = self.table(tuple(name for name in self._usual if name in self.question.columns.metrics))
        return main, TextTable("", sentences=tuple(self.reason_lines()))

    @property
    def _usual(self) -> tuple[str, ...]:
        return chosen_metrics((), serves=self.question.base.serves)

    def _telling(self, metrics: Sequence[str], rows: Sequence[ResultRow]) -> tuple[str, ...]:
        """Return the metrics that some row has; where nobody named them, those that are not the same in all rows, or that are sorted by."""
        of_all, kept = self.question.columns.metrics, self.question.objective.quantity.names
        named = of_all not in (self._usual, chosen_metrics((ALL,), serves=self.question.base.serves))
        values = {name: {row.outcome.figures[name] for row in rows if name in row.outcome.figures} for name in metrics}
        least = 0 if named or len(rows) == 1 else 1
        return tuple(name for name in metrics if len(values[name]) > (0 if name in kept else least))

    @property
    def plot(self) -> Plots:
        """Pictures, by name: ``found.plot.lines(figure="mfu")``, ``heatmap`` and ``pareto`` return the axes that they drew on."""
        from clustersim.report.plots.kinds import TABLE_PLOTS, Plots

        return Plots({name: plot.draw for name, plot in TABLE_PLOTS.items() if not plot.of_sources}, lambda: self.to_frame(ALL))

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
            "keys": list(self.question.columns.keys),
            "where": [each.text for each in self.question.objective.where],
            "sort": self.question.objective.quantity.text,
            "counts": {status: self.count(status) for status in STATUSES},
            "best": None if best is None else dict(self.question.columns.record(best)),
            "undecided": [row.point.number for row in self.undecided],
            "answers": answers,
            "points": points,
        }

    def to_frame(self, *metrics: str) -> pandas.DataFrame:
        """Return a row for each point: its number, its values, and the usual metrics that differ between points.

        Parameters
        ----------
        metrics
            Columns in the place of the usual metrics; ``"all"`` for everything that is known.
        """
        import pandas as pd

        columns = self.question.columns
        if metrics == (ALL,):
            return pd.DataFrame.from_records(self.records(), columns=list(columns.names))
        told = chosen_metrics(metrics, serves=self.question.base.serves) if metrics else self._telling(self._usual, self.rows)
        status = ("status", "reason") if self.count("ok") < len(self.rows) else ()
        return pd.DataFrame.from_records(self.records(), columns=list(columns.names))[["point", *columns.keys, *status, *told]]

    def headline(self) -> str:
        """Return the answer: the best point, or that there is none."""
        objective, best = self.question.objective, self.best
        points = count_text(len(self.rows), "point")
        if best is None:
            asked = " and ".join(each.text for each in objective.where)
            return f"None of {points} {f'meets {asked}' if asked and self.count('ok') else 'can run'}"
        found = best.outcome.figures
        figures = ", ".join(f"{name} {shown(name, float(found[name]))}" for name in objective.quantity.names if name in found)
        near = [f"point {row.point.number}" for row in self.undecided]
        answer = f"{'First' if near else 'Best'} of {points}: {point_text(best)}" + (f" ({figures})" if figures else "")
        return "; ".join(part for part in (answer, _tight_text(best), undecided_text(near)) if part)

    def table(self, metrics: tuple[str, ...] | None = None, most: int = N_SHOWN) -> TextTable:
        """Return the best points; metrics that none of them has, or that nobody named and that do not vary, are left out."""
        columns, rows = self.question.columns, self.answers[:most]
        asked = columns.metrics if metrics is None else metrics
        told = self._telling(asked, rows)
        figures = zip(*(_figures(rows, name) for name in told), strict=True) if told else [()] * len(rows)
        cells = [
            (f"{row.point.number}", *(value_text(row.point.values.get(key, "")) for key in columns.keys), *shown_figures)
            for row, shown_figures in zip(rows, figures, strict=True)
        ]
        return TextTable("", ("point", *columns.keys, *(f">{name}" for name in told)), tuple(cells))

    def reason_lines(self) -> list[str]:
        """Return which software points are of, where they differ, and why some did not end well, the most frequent reasons first."""
        lines = software_lines(self.rows)
        for status in STATUSES[1:]:
            reasons = Counter(_kind(row.outcome.reason) for row in self.rows if row.outcome.status == status)
            ordered = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
            lines += [f"{count_text(number, 'point')} {status}: {reason}" for reason, number in ordered[:N_REASONS]]
            more = sum(number for _, number in ordered[N_REASONS:])
            if more:
                lines.append(f"{more:,} more {status}, for {count_text(len(ordered) - N_REASONS, 'other reason')}")
        return lines


def _tight_text(row: ResultRow) -> str:
    """Return that a point leaves less memory than the error of predicted peaks; empty where it does not, or an engine takes its share."""
    peak, capacity = (row.outcome.figures.get(f"memory.{name}_bytes") for name in ("peak", "capacity"))
    served = "rate_binds" in row.outcome.figures
    if served or peak is None or capacity is None or memory_verdict_of(peak, capacity, shipped_memory_band()) != TIGHT:
        return ""
    return f"tight: {memory_text(peak)} of {memory_text(capacity)}"


def default_folder(question: SweepQuestion) -> Path:
    """Return where a sweep is kept: the same sweep always in the same folder, others elsewhere."""
    import hashlib

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
    """
    with phase("sweep"):
        if folder is None:
            found = dict(_finished(question, {}, make_pool))
            return SweepResult(question=question, rows=_rows(question, found))
        with opened(folder, question.base) as store:
            kept = {key: outcome for key, outcome in store.found.items() if outcome.status != "failed"}
            try:
                # Closed at once where a line cannot be written: nobody works on.
                with closing(_finished(question, kept, make_pool)) as finished:
                    for key, outcome in finished:
                        store.keep(key, outcome)
            finally:
                # A sweep that is stopped has a table too.
                rows = _rows(question, store.found)
                path = write_results(folder, question.columns, rows, file_format)
            store.arrange(point.key for point in question.points)
        n_kept = sum(point.key in kept for point in question.points)
        return SweepResult(question=question, rows=rows, path=path, n_kept=n_kept)


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
    return tuple(ResultRow(point=point, outcome=found[point.key]) for point in question.points if point.key in found)


def point_text(row: ResultRow) -> str:
    """Return the name and the values of a point, such as ``strategy.tp=4 strategy.pp=2``."""
    values = [f"{key}={value_text(value)}" for key, value in row.point.values.items()]
    return " ".join([*([row.point.name] if row.point.name else []), *values])


def _figures(rows: Sequence[ResultRow], name: str) -> list[str]:
    values = [row.outcome.figures.get(name) for row in rows]
    if any(isinstance(value, bool) for value in values):
        return ["" if value is None else str(value).lower() for value in values]
    return shown_alike(name, values)


def _kind(reason: str) -> str:
    return _TOO_LARGE if reason.startswith(_TOO_LARGE) else reason
