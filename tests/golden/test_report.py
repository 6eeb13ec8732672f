"""Output of a run on the reference timeline; ``pytest --update-golden`` writes it anew."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from clustersim.report.chrome import write_trace
from clustersim.report.summary import markdown_summary, print_flags, terminal_report
from clustersim.report.tables import HEADERS, write_tables
from tests.golden.reference import reference_metrics, reference_timeline

Golden = Callable[[str, str], None]


def test_the_terminal_report_is_unchanged(golden: Golden) -> None:
    timeline = reference_timeline()
    file = io.StringIO()

    console = Console(file=file, width=120)
    terminal_report(reference_metrics(timeline), timeline, console, verbose=True)
    print_flags(console, reference_metrics(timeline), verbose=True)

    golden("report_120.txt", file.getvalue())


def test_the_report_fits_a_narrow_terminal_that_knows_ascii_alone(golden: Golden) -> None:
    timeline = reference_timeline()
    file = io.TextIOWrapper(raw := io.BytesIO(), encoding="ascii", newline="\n")

    terminal_report(reference_metrics(timeline), timeline, Console(file=file, width=80))

    file.flush()
    golden("report_ascii.txt", raw.getvalue().decode("ascii"))


def test_the_report_of_a_plan_that_does_not_fit_is_unchanged(golden: Golden) -> None:
    timeline = reference_timeline(16, 64, 2)
    file = io.StringIO()

    terminal_report(reference_metrics(timeline), timeline, Console(file=file, width=80))

    golden("report_16_stages.txt", file.getvalue())


def test_the_summary_is_unchanged(golden: Golden) -> None:
    timeline = reference_timeline()

    golden("summary.md", markdown_summary(reference_metrics(timeline), timeline))


@pytest.mark.parametrize("name", HEADERS)
def test_tables_are_unchanged(golden: Golden, tmp_path: Path, name: str) -> None:
    timeline = reference_timeline()

    write_tables(reference_metrics(timeline), timeline, tmp_path)

    golden(name, (tmp_path / name).read_text(encoding="utf-8"))


def test_the_trace_is_unchanged(golden: Golden, tmp_path: Path) -> None:
    write_trace(reference_timeline(2, 2), tmp_path / "trace.json")

    golden("trace.json", (tmp_path / "trace.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["summary.md", "never_written.txt"])
def test_a_changed_or_missing_golden_file_is_noticed(golden: Golden, request: pytest.FixtureRequest, name: str) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("golden files are being written")

    with pytest.raises(AssertionError, match="--update-golden"):
        golden(name, "something else")
