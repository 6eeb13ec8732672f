"""What a report on a step does not say: the whole training, failures, cost, and the checks."""

from __future__ import annotations

from clustersim.report.bounds import bound_lines
from clustersim.report.cost import cost_lines
from clustersim.report.goodput import goodput_lines
from clustersim.scenario.result import Result
from clustersim.units.quantity import format_quantity


def verdict_lines(result: Result) -> list[str]:
    """Return time to train and checks as lines of text; none where the scenario asked for neither."""
    lines: list[str] = []
    if result.time_to_train_s is not None:
        tokens = format_quantity(result.built.tokens or 0.0, "count")
        lines += ["", "Whole training", f"  {tokens} tokens take {format_quantity(result.time_to_train_s, 's')} without failures"]
    for heading, sentences in _sections(result):
        lines += ["", heading, *(f"  {sentence}" for sentence in sentences)]
    if result.checks:
        lines += ["", "Checks"]
    lines += [f"  {'holds' if check.holds else 'FALSE'}  {check.check}  ({check.shown()})" for check in result.checks]
    return lines


def markdown_verdict(result: Result) -> str:
    """Return the same for ``summary.md``; empty where there is nothing to say."""
    sections: list[str] = []
    if result.time_to_train_s is not None:
        tokens = format_quantity(result.built.tokens or 0.0, "count")
        sections.append(f"\n## Whole training\n\n{tokens} tokens take {format_quantity(result.time_to_train_s, 's')} without failures.\n")
    for heading, sentences in _sections(result):
        sections.append("\n".join([f"\n## {heading}\n", *(f"- {sentence}" for sentence in sentences)]) + "\n")
    if result.checks:
        rows = [f"| `{check.check}` | {check.shown()} | {'holds' if check.holds else 'false'} |" for check in result.checks]
        sections.append("\n".join(["\n## Checks\n", "| check | found | |", "|---|---|---|", *rows]) + "\n")
    return "".join(sections)


def verdict_sections(result: Result) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the whole training, failures, cost and checks, each a heading with its sentences, as far as the scenario asks for them."""
    found = [*_sections(result)]
    if result.time_to_train_s is not None:
        tokens = format_quantity(result.built.tokens or 0.0, "count")
        found.insert(0, ("Whole training", (f"{tokens} tokens take {format_quantity(result.time_to_train_s, 's')} without failures",)))
    if result.checks:
        found.append(
            ("Checks", tuple(f"{check.check} {'holds' if check.holds else 'is false'} ({check.shown()})" for check in result.checks))
        )
    return tuple(found)


def _sections(result: Result) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return failures and cost, each with its sentences, as far as the scenario asks for them."""
    unit = "samples" if result.metrics.tokens_per_s == result.metrics.samples_per_s else "tokens"
    found = (
        ("Least time", bound_lines(result.bounds)),
        ("With failures", goodput_lines(result.goodput)),
        ("Power and cost", cost_lines(result.cost, unit=unit)),
    )
    return tuple((heading, sentences) for heading, sentences in found if sentences)
