"""Arguments and options of several commands."""

from __future__ import annotations

from typing import Annotated

import typer

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A path, the name of a shipped example, or - for stdin.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a value, such as strategy.tp=4. Repeatable.")
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", "--workers", min=1, help="Processes; default: one for each processor. The result is the same.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")]
