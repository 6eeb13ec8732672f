"""Arguments and options of several commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from clustersim.documents.files import check_folder
from clustersim.errors import ScenarioError

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A path, the name of a shipped example, or - for stdin.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a value, such as strategy.tp=4. Repeatable.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", "--workers", min=1, metavar="N", help="Processes; default: one per processor. The result does not depend on it."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of all random draws.")]
NotesOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show all notes on prices and assumptions.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]


def refuse_given(options: Mapping[str, object], *, beside: str, hint: str = "leave it out") -> None:
    """Refuse the first option that was given though it does nothing beside another.

    Raises
    ------
    ScenarioError
        When one was given: it is neither None nor empty.
    """
    for name, value in options.items():
        if value:
            raise ScenarioError(f"does nothing with {beside}", field=name, hint=hint)


def named_file(name: str, suffixes: Sequence[str], option: str) -> Path:
    """Return a file to write, before anything is simulated for it.

    Raises
    ------
    ScenarioError
        When its name ends in none of some suffixes, or its folder does not exist.
    """
    path = Path(name)
    if path.suffix.lower() not in suffixes:
        raise ScenarioError(f"'{path}' does not say its format", field=option, hint=f"name a file that ends in {' or '.join(suffixes)}")
    check_folder(path, field=option, hint="choose another file")
    return path
