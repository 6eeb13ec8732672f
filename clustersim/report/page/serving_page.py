"""The page of one serving run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clustersim.report.page.content import HeadlineFigure, Image, Page, PageSection, PageTable
from clustersim.report.page.run_page import PageContext, closing_sections
from clustersim.report.serving_summary import headline, layout_line, measured_sections
from clustersim.report.subject import ServedSubject
from clustersim.units.quantity import format_quantity

_PICTURES: Final = {"Latency": "latency", "KV cache": "kv"}
"""Pictures of sections, by heading."""


def serving_page(subject: ServedSubject, background: PageContext, images: Mapping[str, Image]) -> Page:
    """Return the page of a serving run, with pictures by kind."""
    metrics = subject.metrics
    figures = tuple(HeadlineFigure(name=name, value=value) for name, value in headline(metrics))
    sections = [PageSection(name="summary", heading="Summary", figures=figures, paragraphs=(f"{layout_line(metrics)}.",))]
    for heading, header, rows, sentences in measured_sections(metrics):
        picture = _PICTURES.get(heading)
        table = PageTable(caption=heading, columns=header, rows=rows)
        sections.append(
            PageSection(
                name=heading.lower().replace(" ", "-"),
                heading=heading,
                lines=sentences,
                images=(images[picture],) if picture else (),
                tables=(table,) if rows else (),
            )
        )
    sections.insert(2, PageSection(name="timeline", heading="Batch and queue", images=(images["timeline"],)))
    rate = f"{metrics.output_tokens_per_s:,.4g} output tokens/s"
    first = (
        "" if metrics.ttft_s is None else f"; half of the requests have their first token within {format_quantity(metrics.ttft_s.p50, 's')}"
    )
    promises = "" if metrics.slo is None else f"; every promise {'holds' if metrics.slo.met else 'does NOT hold'}"
    finding = f"{rate} on {metrics.gpus} GPUs{first}{promises}"
    return Page(title=f"{subject.label}: {rate}", finding=finding, sections=(*sections, *closing_sections(metrics.flags, background)))
