"""Report of a study: findings, each with a table; charts; and everything in full, for files."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.report.charts import Chart

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """One finding, and what it was read from."""

    finding: str
    columns: tuple[str, ...]
    """One that begins with ``>`` holds numbers."""
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """One file: SI units in the header; a cell that is None stays empty."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows as mappings from the names of their columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A whole study."""

    name: str
    title: str
    sections: tuple[ReportSection, ...]
    notes: tuple[str, ...]
    tables: tuple[ReportTable, ...]
    charts: tuple[Chart, ...]
