"""The result of a run as text: for a terminal of any width, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clustersim.measure.metrics import Metrics, experts_lines
from clustersim.report import facts
from clustersim.report.folded import folded, table_lines
from clustersim.report.palette import EXPOSED, FORWARD, HIDDEN
from clustersim.report.shares import OVERLAPPED_LABELS, PART_LABELS, find_bottleneck, hidden_communication, step_shares
from clustersim.trace.timeline import Timeline
from clustersim.units.quantity import format_alike, format_quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LARGEST_WIDTH: Final = 120
"""Longer bars carry no more information."""

SMALLEST_BAR: Final = 10
_LINKS: Final = ("tier", ">mean", ">peak", ">bytes", "busiest link")

_EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_LABEL_WIDTH: Final = max(len(label) for label in PART_LABELS.values())


def bar_text(fraction: float, width: int) -> str:
    """Return a bar in eighths of a character, seen for any share above 0."""
    eighths = max(round(fraction * width * 8), int(fraction > 0))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A console and what it can show."""

    console: Console
    width: int
    ascii_only: bool

    def line(self, *cells: str | tuple[str, str]) -> None:
        """Print one line of text, or of (text, style) pairs, and never break it."""
        from rich.text import Text

        line = Text.assemble(*[self._encodable(cell) for cell in cells])
        line.rstrip()
        self._print(line)

    def paragraph(self, text: str, style: str = "") -> None:
        """Print text folded to the width, further lines indented."""
        for part in folded(f"  {text}", self.width).splitlines():
            self.line((part, style))

    def heading(self, text: str) -> None:
        """Print a heading after an empty line."""
        self.line()
        self.line((text, "bold"))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows in columns, which do not break either."""
        for line, _ in table_lines(columns, rows, None):
            self.line(f"  {line}")

    def bar(self, fraction: float, width: int, *, idle: bool = False) -> str:
        """Return a bar padded to ``width``: hatched or in ASCII of whole characters, else of eighths; seen for any share above 0."""
        clipped = min(max(fraction, 0.0), 1.0)
        if self.ascii_only or idle:
            mark = ("-" if self.ascii_only else "▒") if idle else "#"
            return (mark * max(round(clipped * width), int(clipped > 0))).ljust(width)
        return bar_text(clipped, width).ljust(width)

    def _encodable(self, cell: str | tuple[str, str]) -> str | tuple[str, str]:
        if not self.ascii_only:
            return cell
        if isinstance(cell, tuple):
            return cell[0].encode("ascii", "replace").decode("ascii"), cell[1]
        return cell.encode("ascii", "replace").decode("ascii")

    def _print(self, line: Text) -> None:
        self.console.print(line, highlight=False, no_wrap=True, overflow="ignore", crop=False)


def terminal_report(metrics: Metrics, timeline: Timeline, console: Console, *, verbose: bool = False) -> None:
    """Print the result of a run: headline, breakdown, memory and, if requested, links, collectives and the bottleneck.

    Reads well from 80 columns on; without colour and in an ASCII-only encoding nothing is lost.
    """
    page = _page(console)
    page.line((metrics.scenario, "bold"))
    page.paragraph(facts.layout_line(metrics, timeline))
    if not metrics.memory.fits:
        page.paragraph(facts.memory_verdict(metrics), f"bold {EXPOSED}")
        page.paragraph("a step would take so long if there were enough memory:")
    _print_headline(page, metrics)
    _print_breakdown(page, metrics)
    _print_memory(page, metrics)
    _print_lines(page, "Several steps, uneven ranks", facts.steps_lines(metrics))
    _print_lines(page, "Experts", experts_lines(metrics.experts))
    _print_lines(page, "Others on the cluster", facts.neighbour_lines(metrics))
    if verbose:
        _print_links(page, metrics, timeline)
        _print_collectives(page, metrics)


def print_section(console: Console, heading: str, lines: Sequence[str]) -> None:
    """Print sentences under a heading, folded to the width; nothing where there are none."""
    _print_lines(_page(console), heading, lines)


def print_flags(console: Console, metrics: Metrics, *, verbose: bool = False) -> None:
    """Print assumptions, extrapolations and uncalibrated constants: light ones in one line, or in full if requested."""
    page = _page(console)
    told = [flag for flag in metrics.flags if verbose or not facts.is_light(flag.code, metrics)]
    light = list(dict.fromkeys(flag.code for flag in metrics.flags if flag not in told))
    if not metrics.flags:
        return
    page.heading("Assumed, extrapolated or not calibrated")
    for flag in told:
        page.paragraph(f"{flag.code}: {flag.message}")
    if light:
        page.paragraph(f"of little effect on the step: {', '.join(light)} (in full with --verbose)")


def _page(console: Console) -> _Page:
    return _Page(console=console, width=min(console.width, LARGEST_WIDTH), ascii_only=console.options.ascii_only)


def _print_headline(page: _Page, metrics: Metrics) -> None:
    figures = facts.headline(metrics)
    names = max(len(name) for name, _ in figures)
    values = max(len(value) for _, value in figures)
    page.line()
    half = len(figures) // 2
    for left, right in zip(figures[:half], figures[half:], strict=True):
        page.line(
            f"  {left[0]:<{names}}  ", (f"{left[1]:>{values}}", "bold"), f"      {right[0]:<{names}}  ", (f"{right[1]:>{values}}", "bold")
        )
    if facts.interval_line(metrics):
        page.paragraph(facts.interval_line(metrics))


def _print_breakdown(page: _Page, metrics: Metrics) -> None:
    page.heading("Where the step goes (mean over ranks)")
    shares = step_shares(metrics)
    times = format_alike([share.seconds for share in shares], "s")
    rows = [(share, f"{share.percent_text:>7}  {time:>9}") for share, time in zip(shares, times, strict=True)]
    width = _bar_width(page, _LABEL_WIDTH, [figures for _, figures in rows])
    largest = max((share.fraction for share, _ in rows), default=1.0)
    for share, figures in rows:
        # The idle grey of the plots cannot be seen on a white terminal; a hatched bar in the terminal's own colour can.
        style = "" if share.is_idle else share.colour
        bar = page.bar(share.fraction / largest, width, idle=share.is_idle)
        page.line(f"  {share.label:<{_LABEL_WIDTH}}  ", (bar, style), f"  {figures}")
    hidden = hidden_communication(metrics)
    if hidden:
        listed = ", ".join(
            f"{OVERLAPPED_LABELS[name].removeprefix('overlapped ')} {format_quantity(seconds, 's')}" for name, seconds in hidden
        )
        page.paragraph(f"overlapped with computation, not in the sum: {listed}", HIDDEN)


def _print_memory(page: _Page, metrics: Metrics) -> None:
    page.heading("Memory of one GPU, by stage")
    page.paragraph(facts.memory_verdict(metrics), "bold" if metrics.memory.fits else f"bold {EXPOSED}")
    stages, rest = facts.shown_stages(metrics)
    capacity = metrics.memory.capacity_bytes
    label_width = max((len(label) for label, _ in stages), default=0)
    figures = [_memory_figures(page, facts.memory_parts(stage), stage.peak_bytes, capacity) for _, stage in stages]
    width = _bar_width(page, label_width, [text for text, _ in figures])
    for (label, stage), (text, style) in zip(stages, figures, strict=True):
        bar = page.bar(stage.peak_bytes / capacity, width)
        page.line(f"  {label:<{label_width}}  ", (bar, style or FORWARD), "|  ", (text, style))
    if rest:
        page.line(f"  {rest}")


def _memory_figures(page: _Page, parts: dict[str, float], peak_bytes: float, capacity_bytes: float) -> tuple[str, str]:
    """Return the figures beside a memory bar, and their style."""
    over = peak_bytes > capacity_bytes
    text = f"{facts.memory_text(peak_bytes):>8}  {100 * peak_bytes / capacity_bytes:4.0f} %"
    if page.width >= 110:
        largest = sorted(parts.items(), key=lambda part: -part[1])[:2]
        text += "  " + ", ".join(f"{name} {facts.memory_text(size)}" for name, size in largest)
    return text, EXPOSED if over else ""


def _print_links(page: _Page, metrics: Metrics, timeline: Timeline) -> None:
    rows = facts.link_rows(metrics, timeline)
    if not rows:
        return
    page.heading("Busiest links")
    page.table(_LINKS, [(row.tier, row.mean, row.peak, row.size, row.busiest) for row in rows])
    for line in facts.meeting_lines(metrics):
        page.paragraph(line)


def _print_collectives(page: _Page, metrics: Metrics) -> None:
    rows = facts.choice_rows(metrics)
    if not rows:
        return
    page.heading("Collectives")
    page.table(("", "operation", ">largest", "algorithm"), rows)


def _print_lines(page: _Page, heading: str, lines: Sequence[str]) -> None:
    if lines:
        page.heading(heading)
    for line in lines:
        page.paragraph(line)


def _bar_width(page: _Page, label_width: int, figures: Sequence[str]) -> int:
    """Return the width that remains for the bar beside its label and figures."""
    taken = label_width + max((len(text) for text in figures), default=0) + 8
    return max(page.width - taken, SMALLEST_BAR)


def markdown_summary(metrics: Metrics, timeline: Timeline) -> str:
    """Return the same content as :func:`terminal_report` as Markdown tables; equal runs give equal text."""
    parts = [(share.label, share.percent_text, share.seconds) for share in step_shares(metrics)]
    parts += [(OVERLAPPED_LABELS[name], "beside", seconds) for name, seconds in hidden_communication(metrics)]
    times = format_alike([seconds for _, _, seconds in parts], "s")
    stages = [
        (f"{stage.stage}", *(facts.memory_text(size) for size in (*facts.memory_parts(stage).values(), stage.peak_bytes)))
        for stage in metrics.memory.by_stage
    ]
    links = [(row.tier, row.mean, row.peak, row.size, row.busiest) for row in facts.link_rows(metrics, timeline)]
    interval = facts.interval_line(metrics)
    blocks = [
        f"# {_escaped(metrics.scenario)}",
        f"{facts.layout_line(metrics, timeline)}.",
        markdown_table(("figure", "value"), facts.headline(metrics)),
        *([f"{interval}."] if interval else []),
        find_bottleneck(metrics, timeline).sentence,
        "## Where the step goes",
        "Mean over ranks. Communication that is overlapped with computation stands beside the sum.",
        markdown_table(("part", "share", "time"), [(label, share, time) for (label, share, _), time in zip(parts, times, strict=True)]),
        "## Memory of one GPU",
        f"The plan {facts.memory_verdict(metrics)}.",
        markdown_table(("stage", *facts.MEMORY_PARTS, "peak"), stages),
    ]
    if links:
        blocks += ["## Busiest links", markdown_table(_LINKS, links)]
    if facts.meeting_lines(metrics):
        blocks.append("\n".join(f"- {_escaped(line)}" for line in facts.meeting_lines(metrics)))
    if facts.choice_rows(metrics):
        blocks += ["## Collectives", markdown_table(("dimension", "operation", "largest", "algorithm"), facts.choice_rows(metrics))]
    for heading, lines in (
        ("Several steps, uneven ranks", facts.steps_lines(metrics)),
        ("Experts", experts_lines(metrics.experts)),
        ("Others on the cluster", facts.neighbour_lines(metrics)),
    ):
        if lines:
            blocks += [f"## {heading}", "\n".join(f"- {_escaped(line)}" for line in lines)]
    if metrics.flags:
        flags = "\n".join(f"- `{flag.code}`: {_escaped(flag.message)}" for flag in metrics.flags)
        blocks += ["## Assumed, extrapolated or not calibrated", flags]
    return "\n\n".join(blocks) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, padded so that it reads well as plain text too; figures to the right."""
    cells = [[name.removeprefix(">") for name in header], *([_escaped(cell) for cell in row] for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]
    lines = ["| " + " | ".join(_padded(row, widths)) + " |" for row in cells]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths, strict=True))]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
