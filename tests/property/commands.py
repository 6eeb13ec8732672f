"""A command as a user runs it, in a folder of its own, and how it must refuse."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.cli.app import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code of a command, its output and the files that it left."""

    code: int
    out: str
    err: str
    left: list[str]


@contextmanager
def folder_with(raw: bytes | None) -> Iterator[Path]:
    """Work in a new folder that holds at most the scenario."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        if raw is not None:
            Path("scenario.yaml").write_bytes(raw)
        yield Path(name)


def command(*arguments: str) -> Outcome:
    """Run a command in the working folder."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    left = sorted(path.relative_to(Path.cwd()).as_posix() for path in Path.cwd().rglob("*"))
    return Outcome(code=code, out=out.getvalue(), err=err.getvalue(), left=left)


MOST_MISTAKES: Final = 11
"""Ten that are told, and the number of the others."""


def run(raw: bytes | str, *arguments: str) -> Outcome:
    """Run a scenario of these bytes."""
    with folder_with(raw.encode() if isinstance(raw, str) else raw):
        return command("run", "scenario.yaml", "--no-plots", *arguments)


def is_one_clean_refusal(outcome: Outcome, left: list[str]) -> None:
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert "Traceback" not in outcome.err
    mistakes = outcome.err.removeprefix("error: ").split("\nerror: ")
    assert len(mistakes) <= MOST_MISTAKES
    for mistake in mistakes:
        assert "error: " not in mistake
        assert len(mistake.splitlines()) in {1, 3}, "one line, or that line and the source with its caret"
        assert len(mistake) < 2000
    assert outcome.left == left


def ends_well(outcome: Outcome) -> None:
    """The command was done, or refused what it was given; it did not break."""
    assert outcome.code in {0, 1, 2}, outcome.err
    assert "Traceback" not in outcome.err
    if outcome.code == 2:
        is_one_clean_refusal(outcome, left=["scenario.yaml"])
