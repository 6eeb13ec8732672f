"""``clustersim plan``, ``buy`` and ``advise``."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from clustersim.apps.buy.purchase import Request, check_options, read_nics, read_option
from clustersim.apps.plan.advice import advise
from clustersim.apps.plan.answer import BELOW_BOUND, PlanAnswer, plan_for
from clustersim.apps.plan.asking import asked_of, figure_of
from clustersim.apps.plan.goal import MOST_NODES, Asking, Goal, goal_of, reach
from clustersim.apps.plan.nearest import nearest_lines
from clustersim.apps.plan.search import Terms
from clustersim.cli.options import (
    MEMORY_MARGIN,
    ClusterArgument,
    ConstraintOption,
    JsonOption,
    MarginOption,
    ModelArgument,
    NodesOption,
    NotesOption,
    OnlyOption,
    ReplaysOption,
    SetOption,
    named_file,
    refuse_given,
)
from clustersim.cli.plan_serving import PlanOptions, plan_served
from clustersim.cli.terminal import assumed_notices, notice, notices, print_answer
from clustersim.cli.watching import watched
from clustersim.config.checks import parse_check
from clustersim.config.load import load_scenario
from clustersim.documents.files import write_text
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence


_OF_A_SERVICE: Final = "name a serving scenario, such as serve-llama3-70b-chat, with -s model=MODEL and -s cluster.node=NODE"
_SOONER: Final = "--time-limit '30 s' ends the search with the best so far, --only narrows it"


def plan_command(
    model: ModelArgument,
    cluster: ClusterArgument = None,
    *,
    nodes: NodesOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    constraint: ConstraintOption = None,
    most_replays: ReplaysOption = None,
    memory_margin: MarginOption = MEMORY_MARGIN,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="Longest time of the search, such as '30 s'.")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="COUNT", help="Tokens of the training that is the goal, such as 15T.")] = None,
    within: Annotated[str | None, typer.Option(metavar="TIME", help="With --tokens: the longest time, such as '60 days'.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="With --tokens: the highest cost, such as '12 MUSD'.")] = None,
    power: Annotated[str | None, typer.Option(metavar="POWER", help="With --tokens: the highest power, such as '5 MW'.")] = None,
    accelerators: Annotated[
        str, typer.Option(metavar="NODES", help="With --tokens: nodes to choose from, such as dgx-h100,dgx-b200.")
    ] = "",
    max_nodes: Annotated[int, typer.Option(min=1, metavar="N", help="With --tokens: largest number of nodes.")] = MOST_NODES,
    write: Annotated[
        str | None,
        typer.Option(
            "--write", "--out", "-o", metavar="FILE", help="Write the winner as a scenario, or in the format of --as; - for stdout."
        ),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="FRAMEWORK", help="megatron, torchtitan, deepspeed, sbatch, jobset; with --serving vllm, sglang, trtllm."
        ),
    ] = None,
    serving: Annotated[bool, typer.Option("--serving", help="Find the fewest GPUs that keep the slo of a serving scenario.")] = False,
    gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --serving: most GPUs; default 64.")] = None,
    verbose: NotesOption = False,
    json: JsonOption = False,
) -> int:
    """Find the fastest layout of a model on a cluster.

    Prove that no other is faster. With --tokens, find the machines that reach a goal; with --serving, those that keep an slo.
    """
    options = PlanOptions(overrides=tuple(set_ or ()), only=tuple(only or ()), write=write, framework=as_, as_json=json, verbose=verbose)
    options.check(serving=serving)
    of_goal = {"--within": within, "--budget": budget, "--power": power, "--accelerators": accelerators}
    of_goal |= {"--max-nodes": max_nodes != MOST_NODES}
    if serving:
        refuse_given({"CLUSTER": cluster}, beside="--serving", hint=_OF_A_SERVICE)
        given = {"--nodes": nodes, "--constraint": constraint, "--time-limit": time_limit, "--tokens": tokens}
        refuse_given({**given, **of_goal, "--memory-margin": memory_margin != MEMORY_MARGIN}, beside="--serving")
        return plan_served(model, options, most_gpus=gpus, most_replays=most_replays)
    refuse_given({"--gpus": gpus}, beside="a layout of training", hint="add --serving")
    if tokens is None:
        refuse_given(of_goal, beside="a search without a goal", hint="add --tokens, such as --tokens 15T")
        goal = None
    else:
        goal = goal_of(tokens, within=within, budget=budget, power=power, nodes=accelerators or cluster or "", most_nodes=max_nodes)
        refuse_given({"--nodes": nodes}, beside="--tokens", hint="write --max-nodes")
    limit_s = inf if time_limit is None else figure_of("--time-limit", time_limit, "s")
    terms = replace(terms_of(constraint, most_replays, memory_margin), time_limit_s=limit_s)
    return _layout(model, cluster, nodes, terms, options) if goal is None else _goal(model, goal, terms, options)


def terms_of(constraint: Sequence[str] | None, most_replays: int | None, memory_margin: str) -> Terms:
    """Return the conditions of a search from the options of commands that have them."""
    return Terms(
        constraints=tuple(map(parse_check, constraint or ())), most_replays=most_replays, memory_margin_fraction=margin_of(memory_margin)
    )


def margin_of(text: str) -> float:
    """Return the share of the memory that stays free.

    Raises
    ------
    ScenarioError
        When it is none, or all of it.

    Examples
    --------
    >>> margin_of("8 %"), margin_of("0.05")
    (0.08, 0.05)
    """
    number = text.strip().removesuffix("%").strip()
    try:
        found = float(number) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < 1.0:
        hint = "write what stays free of the memory, such as '8 %', or 0 for nothing"
        raise ScenarioError(f"'{text}' is no share of the memory", field="--memory-margin", hint=hint)
    return found


def _layout(model: str, cluster: str | None, nodes: int | None, terms: Terms, options: PlanOptions) -> int:
    with watched(hint=_SOONER):
        asked = asked_of(model, cluster, nodes=nodes, overrides=options.overrides, limits=options.only, framework=options.framework)
        answer = plan_for(asked, terms)
        if answer.search.winner is None:
            answer = replace(answer, nearest=tuple(nearest_lines(asked, options.only, terms.memory_margin_fraction)))
    with options.report():
        print_answer(answer, as_json=options.as_json)
    if not options.as_json:
        # The others stand in the report.
        wrong = [f"{flag.code}: {flag.message}" for flag in answer.flags if flag.code == BELOW_BOUND]
        assumed_notices(answer.assumed, verbose=options.verbose, cautions=(*wrong, *answer.cautions))
    _write(answer, options)
    return EXIT_OK if answer.search.winner else EXIT_NO


def _goal(model: str, goal: Goal, terms: Terms, options: PlanOptions) -> int:
    asking = Asking(overrides=options.overrides, limits=options.only, terms=terms, framework=options.framework)
    with watched(hint=_SOONER):
        found = reach(model, goal, asking)
    with options.report():
        print_answer(found, as_json=options.as_json)
    if not options.as_json:
        # The answer itself has the cautions.
        notices(found.notes(), verbose=options.verbose)
    _write(found.plan, options)
    return EXIT_OK if found.reached else EXIT_NO


def _write(answer: PlanAnswer | None, options: PlanOptions) -> None:
    if answer is not None and answer.scenario is not None:
        options.write_winner(load_scenario(answer.scenario))


def advise_command(
    model: ModelArgument,
    cluster: ClusterArgument = None,
    *,
    nodes: NodesOption = None,
    set_: SetOption = None,
    only: OnlyOption = None,
    verbose: NotesOption = False,
    json: JsonOption = False,
) -> int:
    """Recommend a family of parallel strategies for a model.

    Show the best layout of each family on a cluster.
    """
    with watched():
        advice = advise(asked_of(model, cluster, nodes=nodes, overrides=tuple(set_ or ()), limits=tuple(only or ())))
    print_answer(advice, as_json=json)
    if not json:
        assumed_notices(advice.assumed, verbose=verbose, cautions=advice.cautions)
    return EXIT_OK if any(each.layout for each in advice.families) else EXIT_NO


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
    from clustersim.apps.buy.offer_order import answered, offers_page, write_offers

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
