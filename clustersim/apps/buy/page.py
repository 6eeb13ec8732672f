"""Offers as a picture and as a page."""

from __future__ import annotations

from pathlib import Path

from clustersim.apps.buy.answer import DAY_S, Answer, interval
from clustersim.apps.run.page import image_of
from clustersim.config.yaml_text import yaml_text
from clustersim.report.page.content import Image, Page, PageSection, PageTable
from clustersim.report.page.render import render
from clustersim.report.plots.offers import OfferBar, OffersPicture, draw_offers, write_offers_picture


def write_offers(answer: Answer, path: Path) -> None:
    """Write days and cost of all offers, with their intervals, as a PNG or SVG file."""
    write_offers_picture(_picture(answer), path)


def offers_page(answer: Answer) -> str:
    """Return the answer as one HTML file: four lines, a picture, a table, what was assumed, and the best layout as a scenario."""
    from clustersim.report.plots.canvas import style

    with style():
        image: Image = image_of(draw_offers(_picture(answer)), svg=True)
    columns, rows = answer.table()
    first, *others = answer.lines()
    table = PageTable(caption="All offers", columns=tuple(name.removeprefix(">") for name in columns), rows=tuple(rows))
    sections = [
        PageSection(name="answer", heading="Answer", lines=tuple(others), images=(image,)),
        PageSection(name="offers", heading="Offers", tables=(table,)),
        PageSection(name="assumed", heading="Prices, and what was assumed", lines=tuple(answer.notes())),
    ]
    if answer.best is not None:
        text = yaml_text(dict(answer.best.scenario))
        sections.append(PageSection(name="scenario", heading="The best layout as a scenario", text=text, text_name="best.yaml"))
    return render(Page(title=f"{answer.request.model}: which cluster?", finding=first, sections=tuple(sections)))


def _picture(answer: Answer) -> OffersPicture:
    bars: list[OfferBar] = []
    for each in answer.ranked:
        least, most = interval(each)
        bars.append(
            OfferBar(
                name=each.name,
                days=each.figures.time_s / DAY_S,
                usd=each.figures.usd,
                least_fraction=least,
                most_fraction=most,
            )
        )
    first, _, decided, *_ = answer.lines()
    return OffersPicture(finding=first, subtitle=decided, bars=tuple(bars))
