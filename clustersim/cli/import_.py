"""``clustersim import``."""

from __future__ import annotations

from pathlib import Path

from clustersim.apps.importing.asked import ImportOptions
from clustersim.apps.importing.import_report import document, lines
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.cli.terminal import notice, write_json, write_out
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_OK


def import_command(files: tuple[str, ...], asked: ImportOptions, *, out: str | None, as_json: bool) -> int:
    """Write the scenario of a framework's files, report every key, and return the exit code."""
    if out is not None:
        check_folder(Path(out))
    imported = import_files(files, asked)
    text = yaml_text(imported.data)
    if out is not None:
        write_text(Path(out), text)
    if as_json:
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
