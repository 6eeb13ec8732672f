"""The result of a run as text: for a terminal of any width, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from clustersim.measure.metrics import Metrics, experts_lines
from clustersim.notices import Flag
from clustersim.report import facts
from clustersim.report.folded import folded, table_lines
from clustersim.report.palette import EXPOSED, FORWARD, HIDDEN
from clustersim.report.shares import OVERLAPPED_LABELS, PART_LABELS, find_bottleneck, hidden_communication, step_shares
from clustersim.report.text_tables import TextTable, html_answer, markdown_answer
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
_WITHOUT_BLOCKS: Final = dict.fromkeys(map(ord, "█▏▎▍▌▋▊▉"), "#")
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

    def figures(self, figures: Sequence[tuple[str, str]]) -> None:
        """Print names and values in two columns, after an empty line."""
        names, values = (max(len(figure[at]) for figure in figures) for at in (0, 1))
        self.line()
        half = -(-len(figures) // 2)
        for row in zip_longest(figures[:half], figures[half:]):
            cells = (((f"{name:<{names}}  ", ""), (f"{value:>{values}}      ", "bold")) for name, value in filter(None, row))
            self.line("  ", *chain.from_iterable(cells))

    def section(self, table: TextTable) -> None:
        """Print a heading, rows in columns, which do not break either, and sentences; nothing where there are neither."""
        if table.rows or table.sentences:
            self.heading(table.heading)
        for line, _ in table_lines(table.columns, table.rows, None) if table.rows else ():
            self.line(f"  {line}")
        for sentence in table.sentences:
            self.paragraph(sentence)

    def bar(self, fraction: float, width: int, *, idle: bool = False) -> str:
        """Return a bar padded to ``width``: hatched or in ASCII of whole characters, else of eighths; seen for any share above 0."""
        clipped = min(max(fraction, 0.0), 1.0)
        if self.ascii_only or idle:
            mark = ("-" if self.ascii_only else "▒") if idle else "#"
            return (mark * max(round(clipped * width), int(clipped > 0))).ljust(width)
        return bar_text(clipped, width).ljust(width)

    def _encodable(self, cell: str | tuple[str, str]) -> str | tuple[str, str]:
        if isinstance(cell, tuple):
            return str(self._encodable(cell[0])), cell[1]
        return cell.translate(_WITHOUT_BLOCKS).encode("ascii", "replace").decode("ascii") if self.ascii_only else cell

    def _print(self, line: Text) -> None:
        self.console.print(line, highlight=False, no_wrap=True, overflow="ignore", crop=False)


def terminal_report(metrics: Metrics, timeline: Timeline, console: Console, *, verbose: bool = False) -> None:
    """Print the result of a run: headline, breakdown, memory and, if requested, links, collectives and the bottleneck.

    Reads well from 80 columns on; without colour and in an ASCII-only encoding nothing is lost.
    """
    page = page_on(console)
    page.line((metrics.scenario, "bold"))
    page.paragraph(facts.layout_line(metrics, timeline))
    if not metrics.memory.fits:
        page.paragraph(facts.memory_verdict(metrics), f"bold {EXPOSED}")
        page.paragraph("a step would take so long if there were enough memory:")
    page.figures(facts.headline(metrics))
    if facts.interval_line(metrics):
        page.paragraph(facts.interval_line(metrics))
    _print_breakdown(page, metrics)
    _print_memory(page, metrics)
    for table in _further_tables(metrics, timeline):
        if verbose or not table.rows:
            page.section(table)


def print_section(console: Console, heading: str, lines: Sequence[str]) -> None:
    """Print sentences under a heading, folded to the width; nothing where there are none."""
    page_on(console).section(TextTable(heading, sentences=tuple(lines)))


def print_flags(console: Console, metrics: Metrics, *, verbose: bool = False) -> None:
    """Print assumptions, extrapolations and uncalibrated constants: light ones in one line, or in full if requested."""
    page = page_on(console)
    told = [flag for flag in metrics.flags if verbose or not facts.is_light(flag.code, metrics)]
    light = list(dict.fromkeys(flag.code for flag in metrics.flags if flag not in told))
    if not metrics.flags:
        return
    page.heading("Assumed, extrapolated or not calibrated")
    for flag in told:
        page.paragraph(f"{flag.code}: {flag.message}")
    if light:
        page.paragraph(f"of little effect on the step: {', '.join(light)} (in full with --verbose)")


def page_on(console: Console) -> _Page:
    """Return a console with the width and the signs that it can show."""
    return _Page(console=console, width=min(console.width, LARGEST_WIDTH), ascii_only=console.options.ascii_only)


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


def _bar_width(page: _Page, label_width: int, figures: Sequence[str]) -> int:
    """Return the width that remains for the bar beside its label and figures."""
    taken = label_width + max((len(text) for text in figures), default=0) + 8
    return max(page.width - taken, SMALLEST_BAR)


def breakdown_table(metrics: Metrics) -> TextTable:
    """Return the parts of the step, and what runs beside computation."""
    parts = [(share.label, share.percent_text, share.seconds) for share in step_shares(metrics)]
    parts += [(OVERLAPPED_LABELS[name], "beside", seconds) for name, seconds in hidden_communication(metrics)]
    times = format_alike([seconds for _, _, seconds in parts], "s")
    rows = tuple((label, share, time) for (label, share, _), time in zip(parts, times, strict=True))
    return TextTable("Where the step goes", ("mean over ranks", ">share", ">time"), rows)


def memory_table(metrics: Metrics) -> TextTable:
    """Return the memory of one GPU of each stage at its peak."""
    stages, _ = facts.shown_stages(metrics, most=len(metrics.memory.by_stage))
    sizes = ((label, *map(facts.memory_text, (*facts.memory_parts(stage).values(), stage.peak_bytes))) for label, stage in stages)
    columns = ("", *(f">{part}" for part in facts.MEMORY_PARTS), ">peak")
    return TextTable("Memory of one GPU", columns, tuple(sizes), (f"The layout {facts.memory_verdict(metrics)}.",))


def collectives_table(metrics: Metrics) -> TextTable:
    """Return the largest collectives and their algorithms."""
    return TextTable("Collectives", ("dimension", "operation", ">largest", "algorithm"), facts.choice_rows(metrics))


def flags_table(flags: Sequence[Flag]) -> TextTable:
    """Return what was assumed, extrapolated or not calibrated."""
    return TextTable("Assumed, extrapolated or not calibrated", sentences=tuple(f"{flag.code}: {flag.message}" for flag in flags))


def _further_tables(metrics: Metrics, timeline: Timeline) -> list[TextTable]:
    """Return what there is beside time and memory: several steps, experts, others on the cluster, links and collectives."""
    links = facts.link_rows(metrics, timeline)
    return [
        TextTable("Several steps, uneven ranks", sentences=facts.steps_lines(metrics)),
        TextTable("Experts", sentences=tuple(experts_lines(metrics.experts))),
        TextTable("Others on the cluster", sentences=facts.neighbour_lines(metrics)),
        TextTable("Busiest links", _LINKS, links, facts.meeting_lines(metrics) if links else ()),
        collectives_table(metrics),
    ]


def _all_tables(metrics: Metrics, timeline: Timeline, verdicts: Sequence[tuple[str, tuple[str, ...]]]) -> list[TextTable]:
    """Return the content of :func:`terminal_report` as tables and sentences."""
    found = [
        TextTable("", ("figure", ">value"), facts.headline(metrics)),
        replace(breakdown_table(metrics), sentences=(find_bottleneck(metrics, timeline).sentence,)),
        memory_table(metrics),
        *_further_tables(metrics, timeline),
        *(TextTable(heading, sentences=sentences) for heading, sentences in verdicts),
        flags_table(metrics.flags),
    ]
    return [table for table in found if table.rows or table.sentences]


def markdown_summary(metrics: Metrics, timeline: Timeline, verdicts: Sequence[tuple[str, tuple[str, ...]]] = ()) -> str:
    """Return the same content as :func:`terminal_report` as Markdown.

    Parameters
    ----------
    verdicts
        Further headings with their sentences.
    """
    opening = [f"{line}." for line in (facts.layout_line(metrics, timeline), facts.interval_line(metrics)) if line]
    return markdown_answer(metrics.scenario, opening, _all_tables(metrics, timeline, verdicts))


def html_summary(metrics: Metrics, timeline: Timeline, verdicts: Sequence[tuple[str, tuple[str, ...]]] = ()) -> str:
    """Return the same as HTML, which notebooks show."""
    opening = (facts.layout_line(metrics, timeline), facts.interval_line(metrics))
    return html_answer(metrics.scenario, opening, _all_tables(metrics, timeline, verdicts))
