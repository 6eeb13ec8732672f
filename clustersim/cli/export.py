"""``clustersim export`` and ``clustersim import``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.compare.run_directories import load_result
from clustersim.apps.export.timeline_formats import FORMATS
from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.import_report import document, lines
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.apps.importing.opening import open_job
from clustersim.apps.plan.exports import WRITTEN, written
from clustersim.cli.options import JsonOption, OutOption, RunArgument, SeedOption, SetOption, other_than_stdout
from clustersim.cli.terminal import notice, write_files, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.documents.near_names import choices_hint
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase


def export_command(
    run_: RunArgument,
    *,
    as_: Annotated[
        str,
        typer.Option("--as", metavar="FORMAT", help="chrome (Perfetto), kineto, csv, parquet, chakra, simai; or of plan: megatron, ..."),
    ],
    set_: SetOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PATH", help="File, or folder for kineto and chakra; default by the format, or stdout."),
    ] = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> int:
    """Write a run for Perfetto, or a scenario for a framework.

    Other formats are for Holistic Trace Analysis, spreadsheets and network simulators.
    """
    if as_ in WRITTEN:
        return _scenario_as(run_, as_, tuple(set_ or ()), out, as_json=json)
    with watched(), phase("export"):
        path = export(run_, as_, out, tuple(set_ or ()), seed=seed)
    if json:
        write_json({"format": as_, "file": str(path)})
    notice(f"wrote {path}")
    return EXIT_OK


def _scenario_as(source: str, form: str, overrides: tuple[str, ...], out: str | None, *, as_json: bool) -> int:
    """Write a scenario in the format of a framework to a file, or alone to stdout."""
    out = other_than_stdout(out)
    if out is not None:
        check_folder(Path(out), hint="choose another name with --out")
    elif as_json:
        raise ScenarioError("--json and --as both write to stdout", field="--as", hint="add -o with a file")
    with watched():
        job = open_job(source, overrides)
    write_files(written(job, form), out)
    if as_json:
        write_json({"format": form, "file": out})
    return EXIT_OK


def export(source: str, form: str, out: str | None = None, overrides: Sequence[str] = (), *, seed: int = 0) -> Path:
    """Write the timeline of a run in some format, and return the file or folder.

    Raises
    ------
    ScenarioError
        When there is no such format or run, or it cannot be written there.
    """
    form = "chrome" if form.lower() == "perfetto" else form
    if form not in FORMATS:
        raise ScenarioError(f"there is no format '{form}'", field="--as", hint=choices_hint(form, (*FORMATS, *WRITTEN)))
    if out == "-":
        raise ScenarioError("a timeline does not go to stdout", field="--out", hint="name a file")
    path = Path(out or FORMATS[form].name)
    check_folder(path, hint="choose another name with --out")
    result = load_result(source, overrides, seed=seed)
    try:
        FORMATS[form].write(result, path)
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror or error}", hint="choose another name with --out") from error
    return path


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Configuration, script, command line or log of a job; - for stdin.")],
    *,
    out: OutOption = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="FRAMEWORK", help="Framework; recognised by content if left out.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped node or cluster.")] = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Number of nodes, if no file gives it.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped model, or hf:path/to/config.json.")] = None,
    set_: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse files with unknown keys.")] = False,
    json: JsonOption = False,
) -> int:
    """Convert files of a training framework into a scenario.

    Report what each key became. Nothing is executed.
    """
    asked = ImportOptions(framework=as_, cluster=cluster, nodes=nodes, model=model, overrides=tuple(set_ or ()), strict=strict)
    if out is not None:
        check_folder(Path(out))
    imported = import_files(tuple(files), asked)
    text = yaml_text(imported.data)
    if out is not None:
        write_text(Path(out), text)
    if json:
        write_json(document(imported))
    else:
        for line in lines(imported):
            notice(line)
        if out is None:
            notice("")
            write_out(text)
    if out is not None:
        notice(f"wrote {out}; {_use(out, imported)}")
    return EXIT_OK


def _use(out: str, imported: Imported) -> str:
    """Return the command that takes a written file."""
    if imported.scenario is not None:
        return f"run it with: clustersim run {out}"
    return f"give it to a job: clustersim import JOB {out}, or clustersim run SCENARIO -s cluster={out}"
