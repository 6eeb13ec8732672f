"""A result as tables of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from clustersim.report.facts import headline, layout_line, memory_verdict
from clustersim.report.shares import hidden_communication, step_shares
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from clustersim.measure.metrics import Metrics
    from clustersim.trace.timeline import Timeline


def html_tables(metrics: Metrics, timeline: Timeline) -> str:
    """Return the figures that people look for first, and where the step goes, as HTML tables."""
    parts = [(share.label, format_quantity(share.seconds, "s"), f"{share.percent:.1f} %") for share in step_shares(metrics)]
    parts += [(f"hidden {dimension.upper()}", format_quantity(seconds, "s"), "") for dimension, seconds in hidden_communication(metrics)]
    return "".join(
        (
            f"<p><strong>{escape(metrics.scenario)}</strong>, {escape(layout_line(metrics, timeline))}; "
            f"{escape(memory_verdict(metrics))}</p>",
            _table(("", ""), headline(metrics)),
            _table(("where the step goes", "time", "share"), parts),
            _table(("what is not certain", ""), [(flag.code, flag.message) for flag in metrics.flags]),
        )
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(f'<td style="text-align: left">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
