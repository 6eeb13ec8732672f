"""``clustersim study``: the list, tables and findings, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.apps.study.claims import answered_question, question_titles, read_question
from tests.unit.apps.study.factories import written
from tests.unit.cli.conftest import Cli


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    return written(tmp_path / "given")


def test_without_a_name_the_studies_are_listed(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("study")

    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["name", *question_titles()]
    assert list(tmp_path.iterdir()) == []


def test_the_list_is_data_too(cli: Cli) -> None:
    listed = json.loads(cli("study", "--json").out)

    assert [study["name"] for study in listed] == list(question_titles())


def test_json_is_the_study_as_data(cli: Cli, study: Path) -> None:
    outcome = cli("study", study, "--json")

    document = json.loads(outcome.out)
    told = answered_question(read_question(study))
    assert outcome.code == 0
    assert document == {
        "schema_version": 1,
        "name": "small",
        "title": "Is twice as much more?",
        "findings": [told.answer],
        "notes": list(told.remarks()),
        **told.records(),
    }


def test_a_question_prints_its_answer_first_and_then_what_decides_each_claim(cli: Cli, study: Path, tmp_path: Path) -> None:
    outcome, kept = cli("study", study, "-o", "here"), cli("study", study)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert outcome.err == "wrote here\n"
    assert lines[0] == "Is twice as much more?"
    assert lines[2].startswith("More, ")
    assert lines[3].split()[:2] == ["case", "accelerators"]
    assert [line.startswith("Introductions say: ") for line in lines].count(True) == 2
    assert kept.err == f"wrote {Path('runs') / 'studies' / 'small'}\n"
    for folder in (Path("here"), tmp_path / "runs" / "studies" / "small"):
        assert sorted(path.name for path in folder.iterdir()) == ["claims.csv", "runs.csv", "small.png", "small.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["interleavings"], "error: unknown study 'interleavings'; did you mean 'interleaving'?\n"),
        (["nowhere.yaml"], "error: nowhere.yaml: no such file"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_written(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = cli("study", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_study_shows_its_line(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path, ("ratio > 1.99", "ration > 1.99"))

    outcome = cli("study", path)

    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {path}:")
    assert "ration" in outcome.err
