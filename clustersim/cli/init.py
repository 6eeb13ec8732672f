"""``clustersim init`` and ``clustersim schema``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.cli.terminal import notice, write_json
from clustersim.config.load import example_path
from clustersim.config.scenario_schema import NAME_PATTERN, scenario_json_schema
from clustersim.config.serving_scenario import serving_json_schema
from clustersim.errors import EXIT_OK, ScenarioError

_MODELINE: Final = """\
# yaml-language-server: $schema=clustersim.schema.json
# Editors complete and check the keys after: clustersim schema{option} > clustersim.schema.json
"""


def init_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new scenario.")] = "my-scenario",
    example: Annotated[str, typer.Option("--from", metavar="EXAMPLE", help="Shipped example to start from.")] = "starter",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; default NAME.yaml.")] = None,
) -> int:
    """Write a commented scenario to start from."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ScenarioError(f"'{name}' is not a name", hint="use letters, digits, '-', '_' and '.', such as my-scenario")
    text = example_path(example).read_text(encoding="utf-8")
    named = re.sub(r"^name: \S+( +(?=#))?", lambda found: _name_line(name, found), text, count=1, flags=re.MULTILINE)
    path = Path(out or f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(_MODELINE.format(option=" --serving" if "\nserving:" in named else "") + named)
    except FileExistsError as error:
        raise ScenarioError(f"{path} exists already", hint="choose another name, or another file with --out") from error
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror or error}", hint="choose another file with --out") from error
    notice(f"wrote {path}; run it with: clustersim run {path}")
    return EXIT_OK


def _name_line(name: str, found: re.Match[str]) -> str:
    """Return the line that names a scenario, as far as a comment, which stays in its column if there is room."""
    return f"name: {name} ".ljust(len(found[0])) if found[1] else f"name: {name}"


def schema_command(*, serving: Annotated[bool, typer.Option("--serving", help="Schema of a serving scenario.")] = False) -> int:
    """Print the JSON Schema of a scenario."""
    write_json(serving_json_schema() if serving else scenario_json_schema())
    return EXIT_OK
