"""``clustersim export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.apps.compare.run_directories import load_result
from clustersim.apps.importing.opening import open_job
from clustersim.apps.plan.exports import WRITTEN, written
from clustersim.apps.serve.result import ServingResult
from clustersim.cli.terminal import notice, write_files, write_json
from clustersim.cli.watching import watched
from clustersim.documents.check import choices_hint
from clustersim.documents.csv_text import csv_cell
from clustersim.documents.files import check_folder, replacing
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase
from clustersim.report.chrome import write_trace
from clustersim.report.kineto import write_kineto
from clustersim.report.serving_tables import write_steps
from clustersim.report.serving_trace import write_serving_trace
from clustersim.trace.timeline import Timeline


def export_command(source: str, form: str, *, overrides: tuple[str, ...], out: str | None, seed: int, as_json: bool) -> int:
    """Write the timeline of a run for another tool, or its scenario for a framework, and return the exit code."""
    if form in WRITTEN:
        return _scenario_as(source, form, overrides, out, as_json=as_json)
    with watched(), phase("export"):
        path = export(source, form, out, overrides, seed=seed)
    if as_json:
        write_json({"format": form, "file": str(path)})
    notice(f"wrote {path}")
    return EXIT_OK


def _scenario_as(source: str, form: str, overrides: tuple[str, ...], out: str | None, *, as_json: bool) -> int:
    """Write a scenario in the words of a framework to a file, or alone to stdout."""
    if out is not None:
        check_folder(Path(out), hint="choose another name with --out")
    elif as_json:
        raise ScenarioError("--json and --as both write to stdout", field="--as", hint="add -o with a file")
    write_files(written(open_job(source, overrides), form), out)
    if as_json:
        write_json({"format": form, "file": out})
    return EXIT_OK


def _chrome(timeline: Timeline, path: Path) -> None:
    write_trace(timeline, path)


def _csv(timeline: Timeline, path: Path) -> None:
    from pandas.api.types import is_numeric_dtype

    frame = timeline.to_frame()
    for column in frame.columns:
        if not is_numeric_dtype(frame[column]):
            # Few names stand in many rows.
            frame[column] = frame[column].map({name: csv_cell(name) for name in frame[column].unique()})
    with replacing(path) as fresh:
        frame.to_csv(fresh, index=False, lineterminator="\n")


def _kineto(timeline: Timeline, path: Path) -> None:
    path.mkdir(exist_ok=True)
    write_kineto(timeline, path)


EXPORTS: Final[Mapping[str, tuple[str, Callable[[Timeline, Path], None]]]] = MappingProxyType(
    {"chrome": ("trace.json.gz", _chrome), "kineto": ("kineto", _kineto), "csv": ("timeline.csv", _csv)}
)
"""Default file name and writer of each format; kineto fills a folder."""


def _served_trace(result: ServingResult, path: Path) -> None:
    write_serving_trace((result.run.steps, result.run.decode_steps), len(result.run.replicas), path)


def _served_steps(result: ServingResult, path: Path) -> None:
    write_steps((result.run.steps, result.run.decode_steps), path)


_SERVED: Final[Mapping[str, Callable[[ServingResult, Path], None]]] = MappingProxyType({"chrome": _served_trace, "csv": _served_steps})


def _served(form: str) -> Callable[[ServingResult, Path], None]:
    if form not in _SERVED:
        raise ScenarioError(f"a serving run has no operators for {form}", field="--as", hint=f"use {' or '.join(_SERVED)}")
    return _SERVED[form]


def export(source: str, form: str, out: str | None = None, overrides: Sequence[str] = (), *, seed: int = 0) -> Path:
    """Write the timeline of a run in some format, and return the file or folder.

    Raises
    ------
    ScenarioError
        When there is no such format or run, or it cannot be written there.
    """
    if form not in EXPORTS:
        raise ScenarioError(f"there is no format '{form}'", field="--as", hint=choices_hint(form, (*EXPORTS, *WRITTEN)))
    name, write = EXPORTS[form]
    path = Path(out or name)
    check_folder(path, hint="choose another name with --out")
    result = load_result(source, overrides, seed=seed)
    try:
        if isinstance(result, ServingResult):
            _served(form)(result, path)
        else:
            write(result.spans, path)
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror or error}", hint="choose another name with --out") from error
    return path
