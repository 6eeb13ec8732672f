"""``clustersim plan``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clustersim.cli.terminal import notice, print_table, write_json, write_out
from clustersim.cli.watching import watched
from clustersim.documents.check import did_you_mean
from clustersim.errors import EXIT_NO, EXIT_OK, ScenarioError
from clustersim.scenario.yaml_text import yaml_text
from clustersim.studies.planning.answer import COLUMNS, RUNNERS_UP, Answer, certificate_lines, document, margin_lines, rows
from clustersim.studies.planning.asking import asked_of
from clustersim.studies.planning.flags import FRAMEWORKS
from clustersim.studies.planning.goal import Goal, GoalAnswer, goal_document, goal_lines, goal_of, reach
from clustersim.studies.planning.plan import plan_for


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of ``plan``."""

    nodes: int | None
    overrides: tuple[str, ...]
    only: tuple[str, ...]
    constraints: tuple[str, ...]
    most_replays: int | None
    write: str | None
    framework: str | None
    as_json: bool
    goal: Goal | None


def plan_command(model: str, cluster: str | None, options: PlanOptions) -> int:
    """Find the best layout, print it, and return the exit code."""
    if options.framework is not None and options.framework not in FRAMEWORKS:
        hint = did_you_mean(options.framework, FRAMEWORKS) or f"use {', '.join(FRAMEWORKS)}"
        raise ScenarioError(f"'{options.framework}' is no framework that plans are written for", field="--as", hint=hint)
    if options.goal is not None:
        return _goal(model, options.goal, options)
    with watched(profiles=False, shows=not options.as_json):
        asked = asked_of(model, cluster, nodes=options.nodes, overrides=options.overrides, limits=options.only)
        answer = plan_for(asked, constraints=options.constraints, most_replays=options.most_replays)
    if options.as_json:
        write_json(document(answer))
    else:
        _print(answer)
    _write(answer, options)
    return EXIT_OK if answer.search.winner else EXIT_NO


def _goal(model: str, goal: Goal, options: PlanOptions) -> int:
    with watched(profiles=False, shows=not options.as_json):
        found: GoalAnswer = reach(model, goal, overrides=options.overrides, limits=options.only)
    if options.as_json:
        write_json(goal_document(found))
    else:
        write_out("".join(f"{line}\n" for line in goal_lines(found)))
    if found.best is not None:
        _write(found.best.answer, options)
    return EXIT_OK if found.reached else EXIT_NO


def _print(answer: Answer) -> None:
    search = answer.search
    winner = search.winner
    if winner is None:
        write_out("No layout can run.\n")
    else:
        write_out(f"{winner.layout.words()}\n  {winner.result.bounds.sentence}\n\n")
        print_table(COLUMNS, rows(search.tried[: RUNNERS_UP + 1]))
    if len(answer.pareto) > 1:
        write_out("\nNone better in time, cost and energy at once\n")
        print_table(COLUMNS, rows(answer.pareto))
    sections = (("What 10 % more would buy", margin_lines(answer.margins)), ("Certificate", certificate_lines(search)))
    for heading, lines in sections:
        if lines:
            write_out("\n".join(["", heading, *lines, ""]))
    for line in answer.assumed:
        notice(f"assumed: {line}")


def _write(answer: Answer, options: PlanOptions) -> None:
    if answer.plan is None or answer.scenario is None:
        return
    if options.framework is not None:
        text = FRAMEWORKS[options.framework](answer.plan)
    elif options.write is not None:
        text = yaml_text(answer.scenario)
    else:
        return
    if options.write is None:
        write_out("\n" + text)
        return
    try:
        Path(options.write).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ScenarioError(f"cannot write {options.write}: {error.strerror or error}", hint="choose another file with --write") from error
    notice(f"wrote {options.write}")


__all__ = ["PlanOptions", "goal_of", "plan_command"]
