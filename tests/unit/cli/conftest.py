"""Run the command line in this process, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from clustersim.cli.app import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERSIM_TRACEBACK", raising=False)

    def call(*arguments: str | int | Path) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code=code, out=captured.out, err=captured.err)

    return call
