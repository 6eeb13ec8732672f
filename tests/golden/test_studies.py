"""What the shipped studies without a page print; ``pytest --update-golden`` writes it anew, and draws the pictures beside the studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import pytest

from clustersim.cli.app import main
from clustersim.studies.shipped import study_names

PLOTS = Path(__file__).parents[2] / "scenarios" / "studies" / "plots"

PAGES = Path(__file__).parents[2] / "docs" / "studies"
"""Of studies that are a question: test_study_pages holds what they say."""


@pytest.mark.parametrize("name", [name for name in study_names() if not (PAGES / f"{name}.md").exists()])
def test_a_study_prints_what_it_printed(
    name: str,
    golden: Callable[[str, str], None],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")

    assert main(["study", name, "--out", str(tmp_path)]) == 0

    golden(f"study_{name}.txt", "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines()))
    drawn = sorted(tmp_path.glob("*.png"))
    if request.config.getoption("--update-golden"):
        (PLOTS / name).mkdir(parents=True, exist_ok=True)
        for path in drawn:
            copyfile(path, PLOTS / name / path.name)
    assert sorted(path.name for path in (PLOTS / name).iterdir()) == [path.name for path in drawn]
