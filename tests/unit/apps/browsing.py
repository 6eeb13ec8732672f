"""Pages in headless Chromium, for tests that look at them as people do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
IN_CHROMIUM = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: pages are not tried in a browser"),
    pytest.mark.xdist_group("chromium"),
    pytest.mark.slow,
]
PATIENCE_S = 180.0
"""Longest wait for a page to be as a test needs it; long enough that a busy machine fails no test."""


@dataclass
class Opened:
    """A page in a browser, and what it complained of and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def by(cls, browser: Browser, *, offline: bool = False) -> tuple[BrowserContext, Self]:
        """Return a page without an address in a window of its own, which is to be closed, and listen to it."""
        context = browser.new_context(offline=offline, viewport={"width": 1200, "height": 900})
        opened = cls(context.new_page())
        opened.page.set_default_timeout(1e3 * PATIENCE_S)
        opened.page.on("console", lambda message: opened.complaints.append(message.text) if message.type in {"error", "warning"} else None)
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        return context, opened

    def asked_for(self, *known: str) -> list[str]:
        """Return the addresses it asked for that do not begin with any of these, nor are part of the page itself."""
        return [url for url in self.requests if not url.startswith((*known, "data:", "blob:"))]
