"""``clustersim init``: a commented scenario that runs, and no file lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli


def test_the_scenario_that_is_written_runs(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("init")

    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "wrote my-scenario.yaml; run it with: clustersim run my-scenario.yaml\n"
    assert cli("run", "my-scenario.yaml", "--no-plots").code == 0
    assert (tmp_path / "runs" / "my-scenario").is_dir()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mine", "name: mine                   # names"),
        ("a-name-that-is-longer-than-most", "name: a-name-that-is-longer-than-most # names"),
    ],
)
def test_the_comment_behind_the_name_stays_in_its_column(cli: Cli, tmp_path: Path, name: str, line: str) -> None:
    cli("init", name)

    assert f"\n{line}" in (tmp_path / f"{name}.yaml").read_text(encoding="utf-8")


def test_an_editor_finds_the_schema(cli: Cli, tmp_path: Path) -> None:
    cli("init", "mine")
    cli("init", "chat", "--from", "serve-llama3-70b-chat")

    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=clustersim.schema.json\n")
    assert "clustersim schema --serving >" in (tmp_path / "chat.yaml").read_text(encoding="utf-8")


def test_a_shipped_example_can_be_the_start(cli: Cli, tmp_path: Path) -> None:
    cli("init", "mine", "--from", "gpipe", "-o", "other.yml")

    assert [path.name for path in tmp_path.iterdir()] == ["other.yml"]
    text = (tmp_path / "other.yml").read_text(encoding="utf-8")
    assert "\nname: mine\n" in text
    assert "schedule: gpipe" in text


def test_a_file_is_never_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("precious", encoding="utf-8")

    outcome = cli("init", "mine")

    assert outcome.code == 2
    assert outcome.err == "error: mine.yaml exists already; choose another name, or another file with --out\n"
    assert (tmp_path / "mine.yaml").read_text(encoding="utf-8") == "precious"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/b"], "error: 'a/b' is not a name; use letters, digits, '-', '_' and '.', such as my-scenario\n"),
        (["mine", "--from", "gpip"], "error: unknown example 'gpip'; did you mean 'gpipe'?\n"),
        (
            ["mine", "-o", "no/such/folder.yaml"],
            "error: cannot write no/such/folder.yaml: No such file or directory; choose another file with --out\n",
        ),
    ],
)
def test_what_cannot_be_written_is_an_input_error(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = cli("init", *arguments)

    assert (outcome.code, outcome.err) == (2, message)
    assert list(tmp_path.iterdir()) == []
