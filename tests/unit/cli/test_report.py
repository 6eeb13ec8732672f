"""The report command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli


def test_a_page_is_written(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("report", "starter", "--static", "--json")

    assert outcome.code == 0
    assert json.loads(outcome.out) == {"file": "report.html", "size_bytes": (tmp_path / "report.html").stat().st_size}
    assert outcome.err == "wrote report.html\n"


def test_a_run_directory_and_its_scenario_give_the_same_results(cli: Cli, tmp_path: Path) -> None:
    cli("run", "starter", "--no-plots", "-q")

    cli("report", "runs/starter", "-o", "one.html", "--static")
    cli("report", "starter", "-o", "two.html", "--static")

    one, two = ((tmp_path / name).read_text(encoding="utf-8").partition('<section id="scenario"')[0] for name in ("one.html", "two.html"))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("starter", "-o", "page.pdf"), "--out: 'page.pdf' does not say its format; name a file that ends in .html"),
        (("starter", "-o", "no/page.html"), "cannot write no/page.html: its folder does not exist"),
        (("startr",), "did you mean 'starter'"),
    ],
)
def test_what_cannot_be_written_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("report", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
