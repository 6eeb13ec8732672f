"""The tornado of a what-if, and its table."""

from __future__ import annotations

from clustersim.report.plots.tornado import Tornado, TornadoBar
from clustersim.studies.side_by_side_text import shown
from clustersim.studies.what_if.answer import Answer
from clustersim.studies.what_if.sensitivity import Bar, Sensitivity


def tornado_rows(answer: Answer, found: Sensitivity) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows: a figure, its ends, the number at each, how far that moves, and who is best there."""
    metric = answer.matter.number.quantity.text
    decides = len(answer.outcomes) > 1
    who_columns = ("best at low", "best at high") if decides else ()
    columns = (
        "figure",
        ">from",
        ">to",
        f">{metric} at low",
        f">{metric} at high",
        ">swing",
        *who_columns,
    )
    rows: list[tuple[str, ...]] = []
    for bar in found.bars:
        low, high, span = bar.low[found.case], bar.high[found.case], bar.input.span
        swing = "-" if low is None or high is None else f"{100 * abs(high - low) / abs(found.number):.1f} %"
        ends = (bar.input.text(span.low), bar.input.text(span.high))
        who = (bar.best_at_low or "none", bar.best_at_high or "none") if decides else ()
        rows.append((bar.input.name, *ends, shown(metric, low), shown(metric, high), swing, *who))
    return columns, rows


def tornado_of(answer: Answer, found: Sensitivity) -> Tornado:
    """Return the picture of what each figure does to the number of the best case."""
    metric = answer.matter.number.quantity.text
    largest = next((bar for bar in found.bars if bar.swing(found.case) < float("inf")), None)
    finding = f"{metric} of {found.case} does not depend on any of these figures"
    if largest is not None and largest.swing(found.case) > 0:
        share = 100 * largest.swing(found.case) / abs(found.number)
        finding = f"{metric} of {found.case} depends most on {largest.input.name}: {share:.1f} % from end to end"
    turns = f"; the choice turns on {found.deciding[0].input.name}" if found.deciding else ""
    return Tornado(
        finding=finding,
        subtitle=f"{answer.matter.base.scenario({}).name}: one figure varied at a time; blue: low, orange: high; the line: as it is{turns}",
        axis=metric,
        base=found.number,
        bars=[_bar(bar, found) for bar in found.bars],
    )


def _bar(bar: Bar, found: Sensitivity) -> TornadoBar:
    span = bar.input.span
    changes = [best or "no case" for best in (bar.best_at_low, bar.best_at_high) if best != found.best]
    return TornadoBar(
        name=bar.input.name,
        low_text=bar.input.text(span.low),
        high_text=bar.input.text(span.high),
        low=bar.low[found.case],
        high=bar.high[found.case],
        note=f"{' or '.join(dict.fromkeys(changes))} becomes best" if changes else "",
    )
