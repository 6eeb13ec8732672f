"""``clustersim plan``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from clustersim.apps.plan.answer import (
    COLUMNS,
    PlanAnswer,
    bound_line,
    certificate_lines,
    document,
    margin_lines,
    plan_for,
    rows,
    turn_lines,
)
from clustersim.apps.plan.asking import asked_of
from clustersim.apps.plan.exports import check_written, written
from clustersim.apps.plan.findings import MARGIN
from clustersim.apps.plan.goal import Asking, Goal, GoalAnswer, figure_of, goal_document, goal_lines, goal_of, reach
from clustersim.apps.plan.search import Terms
from clustersim.cli.terminal import notice, print_table, write_files, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.config.checks import parse_check
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.files import check_folder, write_text
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import TextIO


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of ``plan``."""

    nodes: int | None
    overrides: tuple[str, ...]
    only: tuple[str, ...]
    constraints: tuple[str, ...]
    most_replays: int | None
    memory_margin: str
    time_limit: str | None
    write: str | None
    framework: str | None
    as_json: bool
    goal: Goal | None

    @property
    def alone(self) -> bool:
        """Whether stdout is the file of a framework, so that all else goes to stderr."""
        return self.framework is not None and self.write is None

    def report(self) -> AbstractContextManager[TextIO | None]:
        """Return the context in which what stdout holds for a person is written."""
        return redirect_stdout(sys.stderr) if self.alone else nullcontext()


def plan_command(model: str, cluster: str | None, options: PlanOptions) -> int:
    """Find the best layout, print it, and return the exit code."""
    if options.framework is not None:
        check_written(options.framework, serving=False)
    if options.alone and options.as_json:
        raise ScenarioError("--json and --as both write to stdout", field="--as", hint="add -o with a file for the framework")
    if options.write is not None:
        check_folder(Path(options.write), field="--write", hint="choose another file")
    terms = Terms(
        constraints=tuple(map(parse_check, options.constraints)),
        most_replays=options.most_replays,
        memory_margin_fraction=margin_of(options.memory_margin),
        time_limit_s=inf if options.time_limit is None else figure_of("--time-limit", options.time_limit, "s"),
    )
    if options.goal is not None:
        return _goal(model, options.goal, options, terms)
    with watched(profiles=False, shows=not options.as_json):
        asked = asked_of(model, cluster, nodes=options.nodes, overrides=options.overrides, limits=options.only)
        answer = plan_for(asked, terms)
    if options.as_json:
        write_json(document(answer))
    else:
        with options.report():
            _print(answer)
    _write(answer, options)
    return EXIT_OK if answer.search.winner else EXIT_NO


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


def _goal(model: str, goal: Goal, options: PlanOptions, terms: Terms) -> int:
    asking = Asking(overrides=options.overrides, limits=options.only, terms=terms)
    with watched(profiles=False, shows=not options.as_json):
        found: GoalAnswer = reach(model, goal, asking)
    if options.as_json:
        write_json(goal_document(found))
    else:
        with options.report():
            write_out("".join(f"{line}\n" for line in goal_lines(found)))
    if found.best is not None:
        _write(found.best.answer, options)
    return EXIT_OK if found.reached else EXIT_NO


def _print(answer: PlanAnswer) -> None:
    search = answer.search
    winner = search.winner
    if winner is None:
        write_out(f"{_why_none(answer)}\n")
    else:
        write_out(f"{winner.layout.words()}\n  {bound_line(winner)}\n\n")
        print_table(COLUMNS, rows(answer.families))
    if len(answer.pareto) > 1 and not set(answer.pareto) <= set(answer.families):
        write_out("\nNone better in time, cost and energy at once\n")
        print_table(COLUMNS, rows(answer.pareto))
    sections = (
        ("What the choice turns on", turn_lines(answer)),
        ("What 10 % more would buy", margin_lines(answer.margins)),
        ("Certificate", certificate_lines(search, answer.memory_margin_fraction)),
    )
    for heading, lines in sections:
        if lines:
            write_out("\n".join(["", heading, *lines, ""]))
    for flag in answer.flags:
        notice(f"{flag.code}: {flag.message}")
    for line in answer.assumed:
        notice(f"assumed: {line}")


def _why_none(answer: PlanAnswer) -> str:
    """Return why most layouts cannot run, or how many of them the margin alone rules out."""
    n_without = answer.search.counts.get(MARGIN)
    if not n_without:
        return f"No layout can run: {answer.search.commonest}."
    return (
        f"No layout leaves {100 * answer.memory_margin_fraction:g} % of the memory free; {n_without:,} may fit with less (--memory-margin)."
    )


def _write(answer: PlanAnswer, options: PlanOptions) -> None:
    if answer.plan is None or answer.scenario is None:
        return
    if options.framework is not None:
        write_files(written(load_scenario(answer.scenario), options.framework), options.write)
    elif options.write is not None:
        write_text(Path(options.write), yaml_text(answer.scenario), hint="choose another file with --write")
        notice(f"wrote {options.write}")


__all__ = ["PlanOptions", "goal_of", "plan_command"]
