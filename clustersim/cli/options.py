"""Arguments and options of several commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from clustersim.documents.files import check_folder
from clustersim.errors import ScenarioError

MEMORY_MARGIN: Final = "8 %"
ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A path, the name of a shipped example, or - for stdin.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, a scenario file or a shipped example.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")]
ClusterArgument = Annotated[str | None, typer.Argument(metavar="CLUSTER", help="A shipped node or cluster.")]
NodesOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of nodes.")]
OnlyOption = Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")]
ConstraintOption = Annotated[list[str] | None, typer.Option(metavar="CONDITION", help="A condition, such as 'memory_fraction <= 0.9'.")]
ReplaysOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="End each search after N replays.")]
MarginOption = Annotated[str, typer.Option(metavar="SHARE", help="Share of the memory that stays free.")]
WhereOption = Annotated[
    list[str] | None, typer.Option(metavar="CONDITION", help="Condition on the best, such as 'memory_fraction <= 0.9'. Repeatable.")
]
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


def other_than_stdout(name: str | None) -> str | None:
    """Return the file of an option; None for - too, which is stdout."""
    return None if name == "-" else name


OutOption = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", callback=other_than_stdout, help="File to write; default: stdout.")
]


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
