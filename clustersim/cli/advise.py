"""``clustersim advise``."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.apps.plan.advice import advise
from clustersim.apps.plan.asking import asked_of
from clustersim.cli.options import JsonOption, NotesOption, SetOption
from clustersim.cli.terminal import assumed_notices, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.yaml_text import plain
from clustersim.errors import EXIT_NO, EXIT_OK


def advise_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model; without a cluster, a scenario whose layout is open.")],
    cluster: Annotated[str | None, typer.Argument(metavar="CLUSTER", help="A shipped node or cluster.")] = None,
    *,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of nodes.")] = None,
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")] = None,
    verbose: NotesOption = False,
    json: JsonOption = False,
) -> int:
    """Recommend a family of parallel strategies for a model.

    Show the best layout of each family on a cluster.
    """
    with watched():
        advice = advise(asked_of(model, cluster, nodes=nodes, overrides=tuple(set_ or ()), limits=tuple(only or ())))
    if json:
        write_json(plain(advice))
    else:
        write_out(f"{advice.sentence}\n\n")
        write_out("".join(f"- {each.sentence}\n" for each in advice.families))
        assumed_notices(advice.assumed, verbose=verbose, cautions=advice.cautions)
    return EXIT_OK if any(each.layout for each in advice.families) else EXIT_NO
