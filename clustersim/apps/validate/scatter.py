"""Measured against predicted step times as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from clustersim.apps.validate.capabilities import EXPERTS, MANY_NODES, ONE_NODE
from clustersim.apps.validate.error_summary import summarise
from clustersim.apps.validate.rows import RowResult
from clustersim.apps.validate.validation_table import error_text, share_text
from clustersim.errors import ScenarioError
from clustersim.report.palette import DIMENSION_COLOURS, FORWARD
from clustersim.report.pictures import Panel, Picture, Points, ticks
from clustersim.report.plots.write import write_picture_as

if TYPE_CHECKING:
    from clustersim.apps.validate.published import Validation

SUFFIXES: Final = (".png", ".svg")
BAND_FRACTION: Final = 0.1


def picture_path(text: str) -> Path:
    """Return the file of a picture.

    Raises
    ------
    ScenarioError
        When its suffix is of no picture.
    """
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise ScenarioError(f"'{text}' is no picture", field="--plot", hint=f"end it with {' or '.join(SUFFIXES)}")
    return path


def scatter(validation: Validation) -> Picture:
    """Return a picture with a panel for runs on one node and one for those on many; rows with a hidden setting are left out."""
    rows = [row for source in validation.sources for row in source.stated] or [row for source in validation.sources for row in source.rows]
    times_s = [time_s for row in rows for time_s in (row.measured_s, row.predicted_s)]
    summary = summarise(rows)
    experts = "; red: with experts" if any(EXPERTS in row.capabilities for row in rows) else ""
    return Picture(
        finding=f"{summary.n_rows} published runs: mean absolute error {share_text(summary.mean_absolute_error_fraction)}",
        subtitle=f"step time; grey: {100 * BAND_FRACTION:.0f} % to either side of equal{experts}; ring: farthest off",
        ticks=ticks(times_s, "s") if max(times_s) > min(times_s) else (),
        panels=tuple(
            _panel(reach, some) for reach in (ONE_NODE, MANY_NODES) for some in [[row for row in rows if reach in row.capabilities]] if some
        ),
        band_fraction=BAND_FRACTION,
    )


def write_scatter(validation: Validation, file: Path) -> None:
    """Draw a validation into a file; equal validations give equal bytes.

    Raises
    ------
    ScenarioError
        When it cannot be written.
    """
    try:
        write_picture_as(scatter(validation), file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write '{file}': {reason}", field="--plot", hint="name a file in a folder that exists") from error


def _panel(reach: str, rows: list[RowResult]) -> Panel:
    summary = summarise(rows)
    worst = next(row for row in rows if row.id == summary.worst_row)
    experts = [row for row in rows if EXPERTS in row.capabilities]
    others = [row for row in rows if EXPERTS not in row.capabilities]
    groups = ((others, FORWARD, "others"), (experts, DIMENSION_COLOURS["ep"], EXPERTS))
    return Panel(
        title=f"{reach}, {len(rows)} rows",
        groups=tuple(
            Points(label=label, points=tuple((row.measured_s, row.predicted_s) for row in some), colour=colour)
            for some, colour, label in groups
            if some
        ),
        ring=(worst.measured_s, worst.predicted_s),
        remark=f"mean error {share_text(summary.mean_absolute_error_fraction)}\nfarthest {error_text(summary.worst_error_fraction)}",
    )
