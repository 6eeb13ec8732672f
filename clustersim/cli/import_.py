"""``clustersim import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.import_report import document, lines
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.cli.options import JsonOption, SetOption
from clustersim.cli.terminal import notice, write_json, write_out
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK


def import_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Configuration, script, command line or log of a job; - for stdin.")],
    *,
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Scenario to write; stdout if left out.")] = None,
    as_: Annotated[str | None, typer.Option("--as", metavar="FRAMEWORK", help="Framework; recognised by content if left out.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped node or cluster.")] = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="How many nodes, where no file says it.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="A shipped model, or hf:path/to/config.json.")] = None,
    set_: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse files with unknown keys.")] = False,
    json: JsonOption = False,
) -> int:
    """Turn files of a training framework into a scenario.

    Say for each key what became of it. Nothing is executed.
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
