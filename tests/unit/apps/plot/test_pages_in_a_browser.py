"""Pages as people see them: in headless Chromium, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustersim.apps.plot.plots import report_page
from tests.unit.apps.browsing import IN_CHROMIUM, Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytestmark = IN_CHROMIUM


@cache
def text_of(*sources: str, zooms: bool = True) -> str:
    return report_page(sources, zooms=zooms)


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[object]:
    contexts: list[BrowserContext] = []

    def open_page(text: str) -> Opened:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        context, opened = Opened.by(browser, offline=True)
        contexts.append(context)
        opened.page.goto(file.as_uri(), wait_until="load")
        return opened

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("source", ["llama3-8b-8xh100", "llama3-70b-h100-512", "resnet50-async-servers"])
def test_charts_are_drawn_without_complaint_and_without_a_network(show, source: str) -> None:
    opened = show(text_of(source))

    opened.page.wait_for_selector("#chart-timeline .plot-container")
    opened.page.wait_for_selector("#chart-links .plot-container")

    assert opened.complaints == []
    assert opened.asked_for("file:") == []
    # Each kind of span is one path that is as wide as the picture.
    assert opened.page.locator("#chart-timeline .scatterlayer path.js-line").count() >= 3
    assert opened.page.locator("#chart-timeline").bounding_box()["width"] > 1000


def test_a_page_without_charts_has_its_pictures(show) -> None:
    opened = show(text_of("llama3-8b-8xh100", zooms=False))

    widths = opened.page.eval_on_selector_all("img", "all => all.map(each => each.naturalWidth)")

    assert opened.complaints == []
    assert len(widths) >= 7
    assert min(widths) > 500
    assert all(opened.page.eval_on_selector_all("img", "all => all.map(each => each.alt.length > 20)"))


def test_a_table_is_sorted_by_the_number_and_not_by_its_text(show) -> None:
    opened = show(text_of("llama3-70b-h100-512", zooms=False))
    head = opened.page.locator("#breakdown th", has_text="time").first
    column = "all => all.map(each => Number(each.cells[2].dataset.sort.replace('inf', 'Infinity')))"

    head.locator("button").click()
    rising = opened.page.eval_on_selector_all("#breakdown tbody tr", column)
    head.locator("button").click()
    falling = opened.page.eval_on_selector_all("#breakdown tbody tr", column)

    assert rising == sorted(rising)
    assert falling == sorted(rising, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"


def test_a_table_can_be_sorted_with_the_keyboard(show) -> None:
    opened = show(text_of("llama3-8b-8xh100", zooms=False))

    opened.page.locator("#flags th button").first.focus()
    opened.page.keyboard.press("Enter")

    codes = opened.page.eval_on_selector_all("#flags tbody tr", "all => all.map(each => each.cells[0].textContent)")
    assert len(codes) > 1
    assert codes == sorted(codes)


def test_the_first_tab_leads_past_the_links_to_the_content(show) -> None:
    opened = show(text_of("llama3-8b-8xh100", zooms=False))

    opened.page.keyboard.press("Tab")

    assert opened.page.evaluate("document.activeElement.textContent") == "To the content"


def test_the_scenario_can_be_copied(show) -> None:
    opened = show(text_of("llama3-8b-8xh100", zooms=False))

    opened.page.get_by_role("button", name="Copy scenario.yaml").click()

    opened.page.wait_for_selector("#scenario-text-status:not(:empty)", state="attached")
    assert "name: llama3-8b-8xh100" in opened.page.locator("#scenario-text").inner_text()


def test_runs_stand_side_by_side(show) -> None:
    opened = show(text_of("1f1b", "zb-h1"))

    assert opened.complaints == []
    assert opened.page.title() == "2 runs side by side"
    assert opened.page.locator("h2").all_inner_texts()[0] == "Summary"
    assert {"1f1b", "zb-h1"} <= set(opened.page.locator("h2").all_inner_texts())
