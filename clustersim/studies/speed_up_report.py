"""Published speed-ups against predicted ones as findings, tables and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from clustersim.report.palette import DIMENSION_COLOURS
from clustersim.report.pictures import Axis, Curve, Note, Panel, Picture
from clustersim.studies.parameter_server_rows import SpeedRow, mean_error_fraction, parameter_server_rows
from clustersim.studies.reported import Cell, Reported, Section, Table
from clustersim.studies.row_sources import ServedSpec, exchanges, read_speed_source
from clustersim.studies.validation_table import error_text, share_text

PROMISED_FRACTION: Final = 0.15
"""Mean error that these predictions are held to; the band of the picture."""
SPEED_UPS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Ticks."""
BETWEEN_PX: Final = 44
"""From panel to panel."""
PICTURE_PX: Final = 1384
"""Of all panels together, with what is between them."""
AROUND_PX: Final = 180
"""Above and below the panels."""
TALLEST_PX: Final = 640

HEADER: Final = ("id", "table", "model", "machine", "exchange", "gpus", "batch", "measured", "predicted", "error_fraction")


def reported_rows(source: str | Path) -> Reported:
    """Return what a source of speed-ups tells its reader, by its shipped name or from a file.

    Raises
    ------
    ScenarioError
        When there is no such source, or its file cannot be used.
    """
    spec = read_speed_source(source).spec
    rows = parameter_server_rows([source])
    finding = f"{_runs(rows)}: predicted speed-ups are off by {share_text(mean_error_fraction(rows))} on average"
    return Reported(
        name=spec.source_id,
        title=spec.title,
        sections=(_by_exchange(rows, finding), _all(rows)),
        notes=(*spec.notes, *spec.urls),
        tables=(Table(name="speed_ups", header=HEADER, rows=tuple(_cells(row) for row in rows)),),
        pictures=(_picture(rows, f"{spec.title}, {finding}"),),
    )


def _by_exchange(rows: Sequence[SpeedRow], finding: str) -> Section:
    cells: list[tuple[str, ...]] = []
    for exchange, some in _grouped(rows):
        worst = _worst(some)
        mean = share_text(mean_error_fraction(some))
        cells.append((exchange, f"{len(some)}", mean, error_text(worst.error_fraction), worst.id))
    return Section(finding=finding, columns=("gradients meet by", ">runs", ">mean error", ">farthest off", "which"), cells=tuple(cells))


def _all(rows: Sequence[SpeedRow]) -> Section:
    worst = _worst(rows)
    return Section(
        finding=f"Farthest off is {worst.id}: {worst.predicted:.2f} in place of {worst.measured:.2f}",
        columns=("model", "machine", "gradients meet by", ">GPUs", ">images a GPU", ">measured", ">predicted", ">error"),
        cells=tuple(
            (
                row.model,
                row.machine,
                row.exchange,
                f"{row.gpus}",
                f"{row.batch}",
                f"{row.measured:.2f}",
                f"{row.predicted:.2f}",
                error_text(row.error_fraction),
            )
            for row in rows
        ),
    )


def _picture(rows: Sequence[SpeedRow], finding: str) -> Picture:
    panels = tuple(_panel(exchange, some) for exchange, some in _grouped(rows))
    width_px = PICTURE_PX // len(panels) - BETWEEN_PX
    ticks = tuple((at, f"{at:g}") for at in SPEED_UPS)
    band = f"grey: {100 * PROMISED_FRACTION:.0f} % to either side of equal"
    return Picture(
        name="speed_ups",
        finding=finding,
        subtitle=f"speed-up over one accelerator, by how gradients meet; {band}; ring: farthest off",
        x=Axis(label="measured", ticks=ticks),
        y=Axis(label="predicted", ticks=ticks),
        panels=panels,
        height_px=min(AROUND_PX + width_px, TALLEST_PX),
        label_px=BETWEEN_PX,
        band_fraction=PROMISED_FRACTION,
    )


def _panel(exchange: str, rows: Sequence[SpeedRow]) -> Panel:
    served = isinstance(exchanges().exchanges[exchange], ServedSpec)
    worst = _worst(rows)
    return Panel(
        title=exchange.replace("_", " "),
        curves=(
            Curve(
                label=exchange,
                points=tuple((row.measured, row.predicted) for row in rows),
                colour=DIMENSION_COLOURS["ps" if served else "dp"],
                line="none",
            ),
        ),
        notes=(Note(x=worst.measured, y=worst.predicted),),
        remark=f"mean error {share_text(mean_error_fraction(rows))}\n{worst.model} {error_text(worst.error_fraction)}",
    )


def _cells(row: SpeedRow) -> tuple[Cell, ...]:
    return (
        row.id,
        row.table,
        row.model,
        row.machine,
        row.exchange,
        row.gpus,
        row.batch,
        row.measured,
        row.predicted,
        row.error_fraction,
    )


def _grouped(rows: Iterable[SpeedRow]) -> list[tuple[str, list[SpeedRow]]]:
    """Return rows by exchange, in the order in which these occur."""
    found: dict[str, list[SpeedRow]] = {}
    for row in rows:
        found.setdefault(row.exchange, []).append(row)
    return list(found.items())


def _worst(rows: Sequence[SpeedRow]) -> SpeedRow:
    return max(rows, key=lambda row: abs(row.error_fraction))


def _runs(rows: Sequence[SpeedRow]) -> str:
    return "1 run" if len(rows) == 1 else f"{len(rows)} runs"
