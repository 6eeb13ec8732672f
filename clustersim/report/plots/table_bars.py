"""Error bars of the points of a sweep, from the columns of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clustersim.report.deciding import bar_of

if TYPE_CHECKING:
    import pandas

    from clustersim.report.error_bars import ErrorBar

PREFIX: Final = "error_bar."
MACHINE: Final = f"{PREFIX}machine"
FIGURES: Final = tuple(f"{PREFIX}{name}" for name in ("least_fraction", "most_fraction", "ratio_most_fraction"))
COLUMNS: Final = (MACHINE, *FIGURES)


def table_bars(frame: pandas.DataFrame) -> list[ErrorBar | None]:
    """Return the error bar of each row; None for all of a table of an earlier version, and for rows without a run."""
    if not all(name in frame.columns for name in COLUMNS):
        return [None] * len(frame)
    found: list[ErrorBar | None] = []
    for row in frame[list(COLUMNS)].to_dict("records"):
        figures = {name.removeprefix(PREFIX): float(row[name]) for name in FIGURES}
        known = all(value == value for value in figures.values())  # noqa: PLR0124 - what is not a number does not equal itself
        found.append(bar_of({**figures, "machine": str(row[MACHINE])}) if known else None)
    return found
