"""What a report on a step does not say: the whole training, failures, cost, and the checks."""

from __future__ import annotations

import textwrap
from io import StringIO
from typing import Final

from clustersim.report.cost import cost_lines
from clustersim.report.goodput import goodput_lines
from clustersim.report.summary import LARGEST_WIDTH, terminal_report
from clustersim.scenario.result import Result
from clustersim.units.quantity import format_quantity

_WIDTH: Final = 100
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


def result_text(result: Result, width: int = _WIDTH) -> str:
    """Return all that ``run`` prints of a result, as plain text of so many columns."""
    from rich.console import Console

    console = Console(file=StringIO(), width=width, highlight=False, color_system=None)
    with console.capture() as printed:
        terminal_report(result.metrics, result.spans, console)
    return (printed.get() + folded_verdict(result, width)).rstrip("\n")


def folded_verdict(result: Result, width: int) -> str:
    """Return :func:`verdict_lines` folded to so many columns."""
    most = min(width, LARGEST_WIDTH) - 1
    return "".join(f"{_folded(line, most)}\n" for line in verdict_lines(result))


def _folded(line: str, width: int) -> str:
    # A percent sign stays with its number.
    kept = line.replace(" %", f"{_NO_BREAK}%")
    folded = textwrap.fill(kept, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return folded.replace(_NO_BREAK, " ")


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
        ("Least time", (result.bounds.sentence,)),
        ("With failures", goodput_lines(result.goodput)),
        ("Power and cost", cost_lines(result.cost, unit=unit)),
    )
    return tuple((heading, sentences) for heading, sentences in found if sentences)
