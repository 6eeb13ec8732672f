"""Golden files and their renewal, for all tests."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"

if str(TESTS.parent) not in sys.path:  # so that tests can import `tests.golden.reference` also under a bare `pytest`
    sys.path.insert(0, str(TESTS.parent))

UNHURRIED = [HealthCheck.too_slow]
"""Drawing takes long on a busy machine, which says nothing of a test."""
settings.register_profile("same", derandomize=True, max_examples=50, suppress_health_check=UNHURRIED)
settings.register_profile("new", print_blob=True, suppress_health_check=UNHURRIED)
settings.load_profile("same")
"""Each run draws the same inputs, so that a failure is due to a change; ``make test-all`` draws new ones, and keeps failures."""

LARGE = {"deepseek-v3-2048-h800", "llama3-405b-16k-cost", "llama3-405b-4d", "resnet50-async-servers"}
"""Shipped scenarios of which a run takes seconds."""

collect_ignore = ["benchmarks/simgrid_flows.py"]
"""Runs under the interpreter that has SimGrid, not under this one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; review the diff")


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the collector away from what collecting made: it lives as long as the run, and looking through it was a quarter of the time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases of large scenarios to the tests that take long."""
    for item in items:
        values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        if any(isinstance(value, str) and LARGE & set(value.split()) for value in values):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def untimed() -> Iterator[None]:
    """Let commands print no progress, which on a busy machine would stand among what they say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clustersim.cli.watching.EVERY_S", inf)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with ``tests/golden/<name>``, or write it there under ``--update-golden``."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"there is no golden file {name}; run pytest --update-golden and review it"
        assert text == path.read_text(encoding="utf-8"), f"{name} has changed; run pytest --update-golden if that is meant"

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in colour, below all else, that pages were not looked at."""
    n_unseen = sum("are not tried in a browser" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if n_unseen:
        terminalreporter.write_sep("!", f"{n_unseen} tests of pages did not run: install Chromium and playwright", red=True, bold=True)
