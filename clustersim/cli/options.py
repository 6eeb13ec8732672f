"""Arguments and options of several commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from clustersim.errors import ScenarioError

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A path, the name of a shipped example, or - for stdin.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a value, such as strategy.tp=4. Repeatable.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", "--workers", min=1, metavar="N", help="Processes; default: one for each processor. The result is the same."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of everything random.")]
NotesOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show all notes on prices and on what is assumed.")]
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
