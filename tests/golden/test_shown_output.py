"""README and documentation show the output of the commands, or its beginning; ``pytest --update-golden`` writes it anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from clustersim.cli.app import main
from tests.unit.test_shown_code import lay_out_what_is_given

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"^<!-- (?P<part>output|first lines): (?P<command>[^\n]+) -->\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRESS = re.compile(r"\d+ s: ")
PAGES = [ROOT / "README.md", *(page for part in ("tutorial", "how-to") for page in sorted((ROOT / "docs" / part).glob("*.md")))]
CASES = [(page, match["command"]) for page in PAGES for match in SHOWN.finditer(page.read_text(encoding="utf-8"))]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], page: Path, command: str) -> str:
    """Run a command as in a terminal without colours, 80 wide; an error is all that it prints to stderr."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    lay_out_what_is_given(page.relative_to(ROOT).as_posix())
    capsys.readouterr()
    arguments = shlex.split(command)
    code = main([*arguments, "--no-plots"] if arguments[0] == "run" else arguments)
    output = capsys.readouterr()
    return to_show(code, output.out, output.err)


def to_show(code: int, out: str, err: str) -> str:
    """Return the output of a command, or its error without progress; one that did not come to its end has none to show."""
    assert code in {0, 1, 2}, f"ends with {code}: {err}"
    lines = out.splitlines() or [line for line in err.splitlines() if not PROGRESS.match(line)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(*case, id=f"{case[0].stem}: {case[1]}", marks=[pytest.mark.slow] if case[0].name != "README.md" else [])
        for case in CASES
    ],
)
def test_what_is_shown_is_what_is_printed(page: Path, command: str, printed: str, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    shown = next(match for match in SHOWN.finditer(text) if match["command"] == command)

    if shown["part"] == "first lines":
        printed = "".join(printed.splitlines(keepends=True)[: shown["text"].count("\n")])
    if request.config.getoption("--update-golden"):
        page.write_text(f"{text[: shown.start('text')]}{printed}{text[shown.end('text') :]}", encoding="utf-8", newline="\n")
        return

    assert shown["text"] == printed
