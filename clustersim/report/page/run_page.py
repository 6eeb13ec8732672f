"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.hardware.models import Source
from clustersim.measure.exposure import exposures
from clustersim.notices import Flag
from clustersim.report import serving_summary
from clustersim.report.facts import (
    STEP_TIME,
    TIER_LABELS,
    headline,
    hfu_line,
    interval_line,
    interval_note,
    layout_line,
    meeting_lines,
    memory_text,
    memory_verdict,
    neighbour_lines,
    percent_text,
    steps_lines,
)
from clustersim.report.page.content import HeadlineFigure, Image, Page, PageSection
from clustersim.report.page.interactive_charts import links_chart, timeline_chart
from clustersim.report.shares import find_bottleneck, share_text
from clustersim.report.subject import ServedSubject, Subject
from clustersim.report.summary import breakdown_table, collectives_table, memory_table
from clustersim.report.text_tables import TextTable
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity

MOST_LINKS: Final = 200
"""Rows of the table of links; all of them are in links.csv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOrigin:
    """Source of the figures of one part of the machine."""

    part: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """Content of a page beside the result."""

    verdicts: tuple[tuple[str, tuple[str, ...]], ...]
    """Headings and sentences: failures, cost, checks."""
    origins: tuple[FigureOrigin, ...]
    resolved_text: str
    scenario_text: str


def run_page(subject: Subject, background: PageContext, images: dict[str, Image], *, zooms: bool) -> Page:
    """Return the page of a run.

    Parameters
    ----------
    images
        Pictures that stand still, by kind; those that are not there are left out.
    zooms
        Whether the timeline and the links are drawn so that a reader can zoom into them.
    """
    metrics, found = subject.metrics, find_bottleneck(subject.metrics, subject.timeline)
    sections = [
        _summary(subject, background),
        PageSection(
            name="breakdown", heading="Where the step goes", images=_of(images, "breakdown", "roofline"), tables=(breakdown_table(metrics),)
        ),
        _timeline(subject, images, zooms=zooms),
        PageSection(name="communication", heading="Communication", images=_of(images, "communication"), tables=_communication(subject)),
        PageSection(
            name="memory",
            heading="Memory",
            paragraphs=(f"The layout {memory_verdict(metrics)}.",),
            images=_of(images, "memory", "memory_over_time"),
            tables=(replace(memory_table(metrics), heading="Memory of one GPU of each stage at its peak"),),
        ),
        _links(subject, images, zooms=zooms),
        *_money(images),
        *closing_sections(metrics.flags, background),
    ]
    return Page(
        title=f"{subject.label}: {format_quantity(metrics.step_time_s, 's')} a step", finding=found.sentence, sections=tuple(sections)
    )


def _of(images: dict[str, Image], *kinds: str) -> tuple[Image, ...]:
    return tuple(images[kind] for kind in kinds if kind in images)


def _money(images: dict[str, Image]) -> tuple[PageSection, ...]:
    shown = _of(images, "cost", "goodput")
    return (PageSection(name="cost", heading="Cost and failures", images=shown),) if shown else ()


def _summary(subject: Subject, background: PageContext) -> PageSection:
    metrics = subject.metrics
    notes = {STEP_TIME: interval_note(metrics)}
    figures = (
        *(HeadlineFigure(name=name, value=value, note=notes.get(name, "")) for name, value in headline(metrics)),
        HeadlineFigure(name="peak memory", value=memory_text(metrics.memory.peak_bytes)),
        HeadlineFigure(name="bubble", value=percent_text(metrics.bubble_fraction)),
    )
    interval = interval_line(metrics)
    lines = [line for line in (interval, hfu_line(metrics)) if line] + [*steps_lines(metrics), *neighbour_lines(metrics)]
    lines += [f"{heading}: {sentence}" for heading, sentences in background.verdicts for sentence in sentences]
    return PageSection(
        name="summary", heading="Summary", figures=figures, paragraphs=(f"{layout_line(metrics, subject.timeline)}.",), lines=tuple(lines)
    )


def _timeline(subject: Subject, images: dict[str, Image], *, zooms: bool) -> PageSection:
    charts = (timeline_chart(subject.timeline),) if zooms else ()
    return PageSection(
        name="timeline", heading="Timeline", charts=charts, images=_of(images, "pipeline", *(() if zooms else ("timeline",)))
    )


def _communication(subject: Subject) -> tuple[TextTable, ...]:
    step_s, found = subject.metrics.step_time_s, exposures(subject.metrics, subject.timeline)
    rows = tuple(
        (
            row.dimension.upper(),
            row.label,
            format_quantity(row.exposed_s, "s"),
            share_text(row.exposed_s / step_s),
            format_quantity(row.hidden_s, "s"),
        )
        for row in found
    )
    columns = ("dimension", "what", ">exposed", ">of the step", ">hidden")
    waiting = TextTable("What the step waits for, and what is hidden", columns, rows)
    return waiting, replace(collectives_table(subject.metrics), heading="How the largest collectives are performed")


def _links(subject: Subject, images: dict[str, Image], *, zooms: bool) -> PageSection:
    chart = links_chart(subject.timeline) if zooms else None
    step_s = subject.metrics.step_time_s
    busiest = sorted(subject.timeline.links, key=lambda link: (-link.bytes / link.bandwidth_bytes_per_s, link.name))
    used = [link for link in busiest if link.bytes > 0.0]
    rows = tuple(
        (
            TIER_LABELS.get(link.tier, link.tier),
            link.name,
            f"{link.n_links:,}",
            format_quantity(link.bytes, "B"),
            percent_text(link.bytes / link.bandwidth_bytes_per_s / step_s),
            percent_text(link.peak_utilisation),
            ", ".join(link.users),
        )
        for link in used[:MOST_LINKS]
    )
    left_out = f", the {MOST_LINKS} busiest of {len(used):,}" if len(used) > MOST_LINKS else ""
    columns = ("tier", "first link", ">links", ">each carries", ">mean", ">peak", "users")
    table = TextTable(f"Groups of equal links{left_out}", columns, rows)
    return PageSection(
        name="links",
        heading="Links",
        lines=meeting_lines(subject.metrics),
        charts=(chart,) if chart else (),
        images=_of(images, *(() if zooms else ("links",)), "topology"),
        tables=(table,),
    )


def closing_sections(flags: Sequence[Flag], background: PageContext) -> tuple[PageSection, ...]:
    """Return the end of every page of a run: flags, sources and scenarios."""
    return (
        _flags(flags),
        _sources(background),
        PageSection(name="scenario", heading="Scenario", text=background.scenario_text, text_name="scenario.yaml"),
        PageSection(
            name="resolved", heading="Scenario with all defaults", text=background.resolved_text, text_name="the scenario with all defaults"
        ),
    )


def _flags(flags: Sequence[Flag]) -> PageSection:
    rows = tuple((flag.code, flag.message) for flag in flags)
    table = TextTable("Assumed, extrapolated or not calibrated", ("code", "what"), rows)
    return PageSection(name="flags", heading="What is not certain", tables=(table,), paragraphs=() if rows else ("Nothing was assumed.",))


def _sources(background: PageContext) -> PageSection:
    """Return one row for each part and source, those that stand twice once."""
    rows = dict.fromkeys(
        (each.part, ", ".join(each.source.covers), each.source.title, each.source.url, each.source.accessed, each.source.note)
        for each in background.origins
    )
    table = TextTable("Constants, and where they are from", ("part", "constants", "source", "address", "seen", "note"), tuple(rows))
    return PageSection(name="sources", heading="Sources of every constant", tables=(table,))


_PICTURES: Final = {"Latency": "latency", "KV cache": "kv"}
"""Pictures of sections, by heading."""


def serving_page(subject: ServedSubject, background: PageContext, images: Mapping[str, Image]) -> Page:
    """Return the page of a serving run, with pictures by kind."""
    metrics = subject.metrics
    figures = tuple(HeadlineFigure(name=name, value=value) for name, value in serving_summary.headline(metrics))
    sections = [PageSection(name="summary", heading="Summary", figures=figures, paragraphs=(f"{serving_summary.layout_line(metrics)}.",))]
    for each in serving_summary.measured_sections(metrics):
        picture = _PICTURES.get(each.heading)
        sections.append(
            PageSection(
                name=each.heading.lower().replace(" ", "-"),
                heading=each.heading,
                lines=each.sentences,
                images=(images[picture],) if picture else (),
                tables=(each,),
            )
        )
    sections.insert(2, PageSection(name="timeline", heading="Batch and queue", images=(images["timeline"],)))
    rate = f"{metrics.output_tokens_per_s:,.4g} output tokens/s"
    first = (
        "" if metrics.ttft_s is None else f"; half of the requests have their first token within {format_quantity(metrics.ttft_s.p50, 's')}"
    )
    objectives = "" if metrics.slo is None else f"; the SLOs are {'met' if metrics.slo.met else 'NOT met'}"
    finding = f"{rate} on {count_text(metrics.gpus, 'GPU')}{first}{objectives}"
    return Page(title=f"{subject.label}: {rate}", finding=finding, sections=(*sections, *closing_sections(metrics.flags, background)))
