"""A finished calibration in words and tables, for the terminal and for other programs."""

from __future__ import annotations

from clustersim.documents.spots import Data
from clustersim.scenario.plain import plain
from clustersim.studies.calibration.calibrate import Calibrated, PartResult
from clustersim.studies.calibration.document import SECONDS
from clustersim.units.quantity import format_quantity

SCHEMA_VERSION = 1
ERROR_COLUMNS = ("part", ">measurements", ">mean before", ">mean after", ">median before", ">median after", ">bias after", "worst after")
CONSTANT_COLUMNS = ("constant", ">before", ">after", ">change", "from")


def error_rows(found: Calibrated) -> list[tuple[str, ...]]:
    """Return a row for each part: errors of predicted times before and after."""
    return [_error_row(part) for part in found.parts]


def constant_rows(found: Calibrated) -> list[tuple[str, ...]]:
    """Return a row for each constant that was measured."""
    return [
        (
            change.name,
            _value(change.name, change.before),
            _value(change.name, change.after),
            f"{100 * (change.after / change.before - 1):+.1f} %" if change.before else "",
            change.part,
        )
        for change in found.changes
    ]


def headline(found: Calibrated) -> str:
    """Return what was calibrated, and from what."""
    n_files = sum(len(part.files) for part in found.parts)
    files = "one file" if n_files == 1 else f"{n_files} files"
    return f"{found.accelerator} ({found.generation}), fitted to {files} from the constants of {found.base}"


def document(found: Calibrated) -> dict[str, Data]:
    """Return the JSON document: errors and constants before and after, in SI units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": found.name,
        "accelerator": found.accelerator,
        "generation": found.generation,
        "base": found.base,
        "parts": plain(found.parts),
        "constants": plain(found.changes),
        "kept": list(found.kept),
        "notices": list(found.notices),
    }


def _error_row(part: PartResult) -> tuple[str, ...]:
    before, after = part.before, part.after
    worst = f"{part.worst}: {_percent(part.worst_error_fraction, signed=True)}"
    return (
        part.name,
        str(after.n_measurements),
        _percent(before.mean_absolute_error_fraction),
        _percent(after.mean_absolute_error_fraction),
        _percent(before.median_absolute_error_fraction),
        _percent(after.median_absolute_error_fraction),
        _percent(after.mean_error_fraction, signed=True),
        worst,
    )


def _percent(fraction: float, *, signed: bool = False) -> str:
    return f"{100 * fraction:+.1f} %" if signed else f"{100 * fraction:.1f} %"


def _value(name: str, value: float) -> str:
    return format_quantity(value, "s", 4) if name.startswith(SECONDS) else f"{value:.4g}"
