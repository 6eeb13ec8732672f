"""The page as people use it: the command, in headless Chromium."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interrupts import hear_interrupts
from tests.unit.apps.browsing import IN_CHROMIUM, PATIENCE_S, Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytest.importorskip("dash", reason="dash is not installed: the page is not tried")
pytestmark = IN_CHROMIUM
TP = "#control-strategy-tp"
STEP = "#figures strong >> nth=0"


class Shown(Opened):
    """The page, and what is read off it."""

    def step(self) -> str:
        return self.page.inner_text(STEP)

    def becomes(self, selector: str, pattern: str) -> None:
        """Wait until a text is as it should be."""
        self._until(_read(selector, "textContent"), re.compile(pattern).search)

    def holds(self, selector: str, value: str) -> None:
        """Wait until an input holds something."""
        self._until(_read(selector, "value"), lambda held: held == value)

    def waits_for(self, condition: str) -> None:
        """Wait until something holds in the page."""
        self._until(condition, bool)

    def _until(self, expression: str, is_right: Callable[[str], object]) -> None:
        # In turns: the policy of the page lets no text be evaluated by what waits inside it.
        last_s = time.monotonic() + PATIENCE_S
        while not is_right(found := self.page.evaluate(expression)):
            if time.monotonic() > last_s:
                pytest.fail(f"{expression} is {found!r}")
            self.page.wait_for_timeout(100)


def _read(selector: str, name: str) -> str:
    return f"(document.querySelector({json.dumps(selector)}) || {{}}).{name} || ''"


Open = Callable[..., Shown]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [sys.executable, "-m", "clustersim", "ui", "llama3-8b-8xh100", "--port", "0", "--runs", str(tmp_path_factory.mktemp("runs"))]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - no threads here
    ) as serving:
        assert serving.stderr is not None
        assert serving.stderr.readline().startswith("making the page of ")
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/)  \(Ctrl-C ends\)\n", serving.stderr.readline())
        assert found is not None
        yield found[1]
        serving.send_signal(signal.SIGINT)
        try:
            _, rest = serving.communicate(timeout=20)
        finally:
            serving.kill()
    assert (serving.returncode, rest) == (0, "")


@pytest.fixture
def show(browser: Browser, address: str) -> Iterator[Open]:
    contexts: list[BrowserContext] = []
    every: list[Shown] = []

    def open_page(url: str | None = None) -> Shown:
        context, opened = Shown.by(browser)
        contexts.append(context)
        every.append(opened)
        opened.page.goto(url or address)
        opened.page.wait_for_selector("#figures strong")
        opened.page.wait_for_selector("#busy", state="hidden")
        return opened

    yield open_page
    for context in contexts:
        context.close()
    # Whatever a test has done.
    assert [complaint for opened in every for complaint in opened.complaints] == []
    assert [url for opened in every for url in opened.asked_for(address)] == []


def test_the_page_opens_with_the_result_of_what_it_starts_from(show: Open) -> None:
    opened = show()

    opened.page.wait_for_selector("#timeline-picture .scatterlayer path.js-line", state="attached")
    assert opened.page.input_value("#control-model") == "llama3-8b"
    assert opened.page.locator("#breakdown-picture .bar > div").count() >= 2
    assert opened.page.locator("#memory-picture .limit").count() == 1
    assert "fits" in opened.page.inner_text("#memory-said")


def test_another_tp_changes_the_result(show: Open) -> None:
    opened = show()
    before = opened.step()

    opened.page.fill(TP, "2")

    opened.becomes("#verdict", "tp 2")
    assert opened.step() != before


def test_a_mistake_is_told_at_its_input_and_the_result_turns_pale(show: Open) -> None:
    opened = show()
    before = opened.step()

    opened.page.fill(TP, "3")

    opened.becomes(f"{TP}-error", "3 does not divide 32 attention heads")
    opened.page.wait_for_selector("#answer.stale")
    opened.page.wait_for_selector(f"{TP}[aria-invalid=true]")
    assert opened.page.get_attribute(TP, "aria-describedby") == "control-strategy-tp-error"
    assert opened.step() == before
    opened.page.fill(TP, "4")
    opened.page.wait_for_selector("#answer:not(.stale)")
    assert opened.page.inner_text(f"{TP}-error") == ""
    opened.page.wait_for_selector(f"{TP}:not([aria-invalid])")


def test_a_choice_is_made_with_the_keyboard(show: Open) -> None:
    opened = show()

    opened.page.locator("#control-strategy-recompute").focus()
    opened.page.keyboard.press("Enter")
    opened.page.get_by_role("option", name="full").press("Enter")

    opened.becomes("#yaml", "recompute: full")


def test_the_address_is_the_scenario_and_opens_the_same_page(show: Open) -> None:
    first = show()
    first.page.fill(TP, "2")
    first.becomes("#verdict", "tp 2")
    first.waits_for("location.hash === document.querySelector('#link').getAttribute('href')")

    second = show(first.page.url)

    assert second.page.input_value(TP) == "2"
    assert second.step() == first.step()
    assert second.page.text_content("#yaml") == first.page.text_content("#yaml")


def test_a_link_with_a_mistake_shows_it_at_its_input(show: Open, address: str) -> None:
    from clustersim.apps.ui.link import link_of

    document = {
        "model": "llama3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "training": {"global_batch_size": 16},
        "strategy": {"zero_stage": 1},
    }
    opened = show(address + link_of(document))

    opened.page.goto(address + link_of({**document, "strategy": {"tp": 5}}))
    opened.page.reload()

    opened.becomes(f"{TP}-error", "5 does not divide")


def test_a_click_on_a_layout_loads_it(show: Open) -> None:
    opened = show()
    opened.page.get_by_role("button", name="Look for layouts").click()
    # The first row may be the present layout.
    row = opened.page.locator("#plan-table tr", has=opened.page.locator("button")).nth(1)
    row.wait_for()
    promised = row.locator("td").nth(1).inner_text().removesuffix(" *")

    row.get_by_role("button").click()

    opened.becomes("#figures strong", f"^{re.escape(promised)}$")


def test_a_layout_leaves_what_was_changed_since_and_goes_with_another_scenario(show: Open) -> None:
    opened = show()
    opened.page.get_by_role("button", name="Look for layouts").click()
    opened.page.wait_for_selector(".load")
    opened.page.fill("#control-training-seq-length", "4096")
    opened.becomes("#yaml", "seq_length: 4096")

    opened.page.locator(".load").nth(1).click()

    opened.becomes("#yaml", "seq_length: 4096(.|\\n)*placement:")
    opened.page.fill("#start", "starter")
    opened.page.press("#start", "Enter")
    opened.waits_for("document.querySelectorAll('.load').length === 0")


def test_two_scenarios_stand_side_by_side_and_the_first_comes_back(show: Open) -> None:
    opened = show()
    opened.page.get_by_role("button", name="Keep this result").click()

    opened.page.fill(TP, "8")

    opened.becomes("#comparison", "now against kept: .*instead of .*What differs.*strategy.tp")
    opened.page.wait_for_selector("#comparison .limit >> nth=1", state="attached")
    opened.page.get_by_role("button", name="Load kept").click()
    opened.becomes("#comparison", "now against kept: as fast")
    opened.page.get_by_role("button", name="Forget kept").click()
    opened.waits_for("document.querySelector('#comparison').textContent === ''")


def test_every_input_has_a_label_and_the_first_tab_leads_to_the_result(show: Open) -> None:
    opened = show()

    unlabelled = opened.page.eval_on_selector_all(
        ".inputs input:not([aria-hidden]), .inputs button",
        "all => all.filter(each => !(each.labels && each.labels.length) && !each.ariaLabel).map(each => each.outerHTML)",
    )
    opened.page.keyboard.press("Tab")

    assert unlabelled == []
    assert opened.page.evaluate("document.activeElement.textContent") == "To the result"


def test_a_narrow_window_has_no_scroll_bar_to_the_side(show: Open) -> None:
    opened = show()

    opened.page.set_viewport_size({"width": 400, "height": 800})
    opened.page.get_by_role("button", name="Look for layouts").click()

    opened.page.get_by_role("button", name="Look again").wait_for()
    opened.waits_for("document.documentElement.scrollWidth <= 400")
    opened.waits_for("document.querySelector('#plan-table .wide-table').scrollWidth <= 360")


def test_a_newer_change_ends_an_older_one_and_the_page_says_that_it_is_at_work(show: Open, address: str) -> None:
    opened = show()
    opened.page.fill("#start", "llama3-405b-4d")
    opened.page.press("#start", "Enter")
    opened.holds("#control-cluster-nodes", "2048")

    opened.page.fill("#control-training-global-batch-size", "4096")
    opened.page.wait_for_selector("#busy", state="visible")
    opened.page.fill("#start", "starter")
    opened.page.press("#start", "Enter")

    opened.becomes("#verdict", "16 GPUs")
    opened.page.wait_for_selector("#busy", state="hidden")


def test_a_picture_can_be_saved(show: Open) -> None:
    opened = show()
    opened.page.hover("#timeline .main-svg >> nth=0")

    with opened.page.expect_download() as saved:
        opened.page.click("#timeline .modebar-btn >> nth=0")

    assert saved.value.suggested_filename.endswith(".png")
