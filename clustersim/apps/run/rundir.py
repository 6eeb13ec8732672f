"""The run directory: all output of a run, complete or absent."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import machine, python_version, system
from typing import Final

from clustersim import __version__
from clustersim.apps.run.result import Result, verdict_sections
from clustersim.apps.serve.deployment_run import files_of_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.resolve import HASH_DIGITS, files_of
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import beside, sweep_stale, write_text
from clustersim.documents.json_text import json_text
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError

LIBRARIES: Final = ("jinja2", "matplotlib", "numpy", "pandas", "pillow", "pydantic", "quantiphy", "rich", "ruamel.yaml", "simpy", "typer")
"""Whose versions the manifest records: all that the package depends on."""
OPTIONAL: Final = ("numba", "plotly")
"""Recorded where they are installed: one works out rates, the other draws in ``report.html``."""

TAGS: Final = "tags.txt"
"""Tags that a user gave a run, one in a line."""
_ANY_HASH: Final = rf"[0-9a-f]{{{HASH_DIGITS}}}"
ENGINE_TIMES: Final = ("wall_s", "events_per_s")
"""Figures of the engine that no two runs have in common."""


def run_directory(result: Result | ServingResult, out: Path) -> Path:
    """Return the directory of a result: ``<out>/<name>/<hash>``."""
    return out / result.metrics.scenario / result.scenario_hash


def write_run_directory(result: Result | ServingResult, out: Path, *, plots: bool = True) -> Path:
    """Write the run directory and return its path; one of an equal earlier run is replaced, and its tags are kept.

    ``manifest.json`` alone holds times and versions, so equal runs write equal bytes everywhere else (:func:`write_page` adds to the
    page what is measured afterwards); that is why
    ``engine.wall_s`` and ``engine.events_per_s`` stand there and not in ``results.json``. The files are written beside
    their final place and renamed, so that an error or an interruption leaves nothing half-written.

    Parameters
    ----------
    plots
        False leaves out ``plots/``, and ``report.html``, which shows them.

    Raises
    ------
    ScenarioError
        When the folder cannot be written.
    """
    target = run_directory(result, out)
    try:
        with _replacing(target) as folder:
            serves = isinstance(result, ServingResult)
            texts = {
                "scenario.yaml": result.built.scenario.text,
                "resolved.yaml": yaml_text(result.resolved),
                **(files_of_serving(result.built) if serves else files_of(result.built)),
                "results.json": json_text(results_document(result)),
            }
            for name, text in texts.items():
                _write_text(folder / name, text)
            if isinstance(result, ServingResult):
                _write_serving(result, folder)
            else:
                _write_training(result, folder)
            if plots:
                from clustersim.apps.run.page import folder_kinds
                from clustersim.report.plots.write import write_plots

                (folder / "plots").mkdir()
                write_plots(result.plot, folder_kinds(result), folder / "plots")
                write_page(result, folder)
            if (target / TAGS).is_file():
                shutil.copyfile(target / TAGS, folder / TAGS)
            # Last: a folder with a manifest is complete.
            _write_text(folder / "manifest.json", json_text(_manifest(result, folder)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write the run directory {target}: {reason}", hint="choose another folder with --out") from error
    return target


def results_document(result: Result | ServingResult) -> dict[str, Data]:
    """Return ``results.json``: the document of ``run --json`` without the figures that differ between equal runs."""
    document = result.to_dict()
    engine = document["engine"]
    if isinstance(engine, dict):
        document["engine"] = {key: value for key, value in engine.items() if key not in ENGINE_TIMES}
    return document


def _write_training(result: Result, folder: Path) -> None:
    from clustersim.report.chrome import write_trace
    from clustersim.report.summary import markdown_summary
    from clustersim.report.tables import write_tables

    _write_text(folder / "summary.md", markdown_summary(result.metrics, result.spans, verdict_sections(result)))
    write_tables(result.metrics, result.spans, folder)
    write_trace(result.spans, folder / "trace.json.gz")


def write_page(result: Result | ServingResult, folder: Path, changes: Sequence[str] | None = None) -> None:
    """Write ``report.html`` beside the plots, with the measured changes that shorten the step, where they were measured."""
    from clustersim.apps.run.page import page_of

    write_text(folder / "report.html", page_of(result, changes=changes, plots=folder / "plots"))


def _write_serving(result: ServingResult, folder: Path) -> None:
    from clustersim.report.serving_summary import markdown_serving, write_serving_tables, write_serving_trace

    run = result.run
    _write_text(folder / "summary.md", markdown_serving(result.metrics))
    write_serving_tables(run.requests, run.log, (run.steps, run.decode_steps), folder)
    write_serving_trace((run.steps, run.decode_steps), len(run.replicas), folder / "trace.json.gz")


def _manifest(result: Result | ServingResult, folder: Path) -> dict[str, Data]:
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {
        "scenario": result.metrics.scenario,
        "scenario_hash": result.scenario_hash,
        "overrides": [override.text for override in result.built.scenario.overrides],
        "seed": result.seed,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine_wall_s": result.metrics.engine.wall_s,
        "engine_events_per_s": result.metrics.engine.events_per_s,
        "versions": {"clustersim": __version__, "python": python_version(), **_versions()},
        "platform": f"{system()} {machine()}",
        "files": [*files, "manifest.json"],
    }


def _versions() -> dict[str, Data]:
    optional = {name: found for name in OPTIONAL if (found := _version(name)) is not None}
    return {**{name: _version(name) for name in LIBRARIES}, **optional}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@contextmanager
def _replacing(target: Path) -> Generator[Path]:
    """Yield a new folder beside ``target`` that replaces it at the end; on any error remove it, and created parents."""
    made = _make_parents(target.parent)
    fresh, old = beside(target, "new"), beside(target, "old")
    sweep_stale(target.parent, _ANY_HASH)
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        yield fresh
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException:
        # Also when interrupted.
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
        for parent in reversed(made):
            with suppress(OSError):  # somebody else has put something there meanwhile
                parent.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _make_parents(folder: Path) -> list[Path]:
    """Make a folder and return those that were not there before, outermost first."""
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    for parent in missing:
        parent.mkdir(exist_ok=True)
    return missing


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
