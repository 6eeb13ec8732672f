"""``clustersim buy``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from clustersim.apps.buy.offer_order import Answer, answered, offers_page, write_offers
from clustersim.apps.buy.purchase import Request, check_options, read_nics, read_option
from clustersim.apps.plan.goal import figure_of
from clustersim.apps.plan.search import Terms
from clustersim.cli.options import JsonOption, NotesOption, SetOption
from clustersim.cli.plan import margin_of
from clustersim.cli.terminal import notice, notices, print_table, write_json, write_lines, write_out
from clustersim.cli.watching import watched
from clustersim.config.checks import parse_check
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyOptions:
    """The options of ``buy``."""

    tokens: str
    options: tuple[str, ...]
    nics: str
    overrides: tuple[str, ...]
    only: tuple[str, ...]
    constraints: tuple[str, ...]
    most_replays: int | None
    memory_margin: str
    plot: str | None
    page: str | None
    as_json: bool
    verbose: bool


def buy_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model, such as llama3-70b.")],
    *,
    tokens: Annotated[str, typer.Option(metavar="COUNT", help="How much is trained on, such as 15T.")],
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Nodes to choose from, such as '64 dgx-h100' or '64 dgx-h100 at 2.10 USD/h'. Repeatable."),
    ] = None,
    nic: Annotated[str, typer.Option(metavar="RATES", help="Try each with these adapters, such as 200Gbit/s,400Gbit/s.")] = "",
    set_: SetOption = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="KEY=VALUES", help="Search these values, such as tp=4,8.")] = None,
    constraint: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="A condition, such as 'memory_fraction <= 0.9'.")
    ] = None,
    most_replays: Annotated[int | None, typer.Option(min=1, metavar="N", help="End each search after so many.")] = None,
    memory_margin: Annotated[str, typer.Option(metavar="SHARE", help="Of the memory, that stays free.")] = "8 %",
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw days and cost, such as offers.png.")] = None,
    page: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page, such as offers.html.")] = None,
    verbose: NotesOption = False,
    json: JsonOption = False,
) -> int:
    """Choose among clusters for a training.

    Days, cost and best layout of each, and what the order turns on.
    """
    options = BuyOptions(
        tokens=tokens,
        options=tuple(option or ()),
        nics=nic,
        overrides=tuple(set_ or ()),
        only=tuple(only or ()),
        constraints=tuple(constraint or ()),
        most_replays=most_replays,
        memory_margin=memory_margin,
        plot=plot,
        page=page,
        as_json=json,
        verbose=verbose,
    )
    _check_file("--plot", options.plot, (".png", ".svg"))
    _check_file("--page", options.page, (".html", ".htm"))
    request = _request(model, options)
    with watched(shows=not options.as_json, hint="--most-replays 4 ends each search sooner, --only tp=4,8 narrows it"):
        answer = answered(request)
    if options.as_json:
        write_json(answer.to_dict())
    else:
        _print(answer, verbose=options.verbose)
    if answer.best is None:
        return EXIT_NO
    if options.plot is not None:
        write_offers(answer, Path(options.plot))
        notice(f"wrote {options.plot}")
    if options.page is not None:
        write_text(Path(options.page), offers_page(answer), hint="choose another file with --page")
        notice(f"wrote {options.page}")
    return EXIT_OK


def _request(model: str, options: BuyOptions) -> Request:
    clusters = tuple(read_option(text) for text in options.options)
    check_options(clusters)
    terms = Terms(
        constraints=tuple(map(parse_check, options.constraints)),
        most_replays=options.most_replays,
        memory_margin_fraction=margin_of(options.memory_margin),
    )
    return Request(
        model=model,
        tokens=figure_of("--tokens", options.tokens, "count"),
        options=clusters,
        nics=read_nics(options.nics),
        overrides=options.overrides,
        limits=options.only,
        terms=terms,
    )


def _check_file(option: str, name: str | None, suffixes: tuple[str, ...]) -> None:
    if name is None:
        return
    path = Path(name)
    if path.suffix.lower() not in suffixes:
        raise ScenarioError(f"'{path}' does not say its format", field=option, hint=f"name a file that ends in {' or '.join(suffixes)}")
    check_folder(path, field=option, hint="choose another file")


def _print(answer: Answer, *, verbose: bool) -> None:
    write_lines(*answer.lines())
    if answer.found:
        offers = answer.table()
        write_out("\n")
        print_table(offers.columns[:-2], [row[:-2] for row in offers.rows])
        write_lines("", "Layouts", *(f"  {name}: {layout}; {memory}" for name, *_, memory, layout in offers.rows))
    notices(answer.assumed(), verbose=verbose)
    for line in answer.cautions():
        notice(line)
