"""The command of the page."""

from __future__ import annotations

import sys

import pytest

from clustersim.apps.ui import local_server as serving
from tests.unit.cli.conftest import Cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "No such option: --host"),
        (("--port", "abc"), "it should be a valid integer\n"),
        (("--port", "70000"), "less than or equal to 65535"),
        (("startr",), "did you mean 'starter'"),
        (("../starter.yaml",), "to start from"),
    ],
)
def test_what_cannot_be_shown_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("ui", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert "making the page" not in outcome.err


def test_without_dash_the_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dash", None)

    outcome = cli("ui")

    assert outcome.code == 2
    assert outcome.err.endswith("\nerror: the page needs Dash; install it with: pip install 'clustersim[ui]'\n")


def test_what_is_made_and_then_the_address_are_told_on_stderr(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dash", reason="dash is not installed: the page is not tried")
    monkeypatch.setattr("clustersim.cli.ui.serve", lambda _server, port, told: told(f"http://{serving.HOST}:{port}/"))

    outcome = cli("ui", "starter", "--port", "8123")

    assert (outcome.code, outcome.out) == (0, "")
    told = ["making the page of starter; its address follows in a few seconds", "open http://127.0.0.1:8123/  (Ctrl-C ends)"]
    assert outcome.err.splitlines() == told
