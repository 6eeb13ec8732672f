"""``clustersim buy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.buy.offer_order import answered, offers_page, write_offers
from clustersim.apps.buy.purchase import Request, check_options, read_nics, read_option
from clustersim.apps.plan.asking import figure_of
from clustersim.cli.options import (
    MEMORY_MARGIN,
    ConstraintOption,
    JsonOption,
    MarginOption,
    NotesOption,
    OnlyOption,
    ReplaysOption,
    SetOption,
    named_file,
)
from clustersim.cli.plan import terms_of
from clustersim.cli.terminal import notice, notices, print_answer
from clustersim.cli.watching import watched
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_NO, EXIT_OK


def buy_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model, such as llama3-70b.")],
    *,
    tokens: Annotated[str, typer.Option(metavar="COUNT", help="Tokens of the training, such as 15T.")],
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Nodes to choose from, such as '64 dgx-h100' or '64 dgx-h100 at 2.10 USD/h'. Repeatable."),
    ] = None,
    nic: Annotated[str, typer.Option(metavar="RATES", help="Also vary the bandwidth of adapters, such as 200Gbit/s,400Gbit/s.")] = "",
    set_: SetOption = None,
    only: OnlyOption = None,
    constraint: ConstraintOption = None,
    most_replays: ReplaysOption = None,
    memory_margin: MarginOption = MEMORY_MARGIN,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw days and cost, such as offers.png.")] = None,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page, such as offers.html.")] = None,
    verbose: NotesOption = False,
    json: JsonOption = False,
) -> int:
    """Choose among clusters for a training.

    Show days, cost and best layout of each, and what the order depends on.
    """
    if plot is not None:
        named_file(plot, (".png", ".svg"), "--plot")
    if page is not None:
        named_file(page, (".html", ".htm"), "--page")
    clusters = tuple(map(read_option, option or ()))
    total, nics = figure_of("--tokens", tokens, "count"), read_nics(nic)
    check_options(clusters)
    request = Request(
        model=model,
        tokens=total,
        options=clusters,
        nics=nics,
        overrides=tuple(set_ or ()),
        limits=tuple(only or ()),
        terms=terms_of(constraint, most_replays, memory_margin),
    )
    with watched(hint="--most-replays 4 ends each search sooner, --only narrows it"):
        answer = answered(request)
    print_answer(answer, as_json=json)
    if not json:
        notices(answer.assumed(), verbose=verbose)
        for line in answer.cautions():
            notice(line)
    if answer.best is None:
        return EXIT_NO
    if plot is not None:
        write_offers(answer, Path(plot))
        notice(f"wrote {plot}")
    if page is not None:
        write_text(Path(page), offers_page(answer), hint="choose another file with --page")
        notice(f"wrote {page}")
    return EXIT_OK
