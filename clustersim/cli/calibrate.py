"""``clustersim calibrate``."""

from __future__ import annotations

from pathlib import Path

from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.studies.calibration.calibrate import Calibrated, CalibrationRequest, calibrate, write_calibration
from clustersim.studies.calibration.calibration_text import (
    CONSTANT_COLUMNS,
    ERROR_COLUMNS,
    constant_rows,
    document,
    error_rows,
    headline,
    kept_line,
)


def calibrate_command(request: CalibrationRequest, *, out: str, as_json: bool) -> int:
    """Fit a calibration to measurements, write it, print the errors before and after, and return the exit code."""
    path = Path(out)
    if path.suffix != ".yaml":
        raise ScenarioError(f"'{out}' is not the name of a calibration", field="--out", hint="write such as -o mine.yaml")
    check_folder(path)
    with watched():
        found = calibrate(request, path.stem)
    write_calibration(found, path)
    if as_json:
        write_json(document(found))
    else:
        _print(found)
    for line in found.notices:
        notice(f"note: {line}")
    for line in found.doubts:
        notice(f"warning: {line}")
    notice(f"wrote {path}; use it with cluster.calibration: {path.name}")
    return EXIT_OK


def _print(found: Calibrated) -> None:
    write_out(f"{headline(found)}\n")
    if found.parts:
        write_out("\nErrors of predicted times\n")
        print_table(ERROR_COLUMNS, error_rows(found))
    write_out("\nConstants\n")
    print_table(CONSTANT_COLUMNS, constant_rows(found))
    write_out(f"\n{kept_line(found)}\n")
