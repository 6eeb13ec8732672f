"""``clustersim study``: the list, tables and findings, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.studies.shipped import run_study, study_names
from tests.unit.cli.conftest import Cli
from tests.unit.studies import test_row_sources
from tests.unit.studies.questions.sample import written


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "made-up.yaml"
    path.write_text(test_row_sources.TEXT, encoding="utf-8")
    return path


def test_without_a_name_the_studies_are_listed(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("study")

    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["name", *study_names()]
    assert list(tmp_path.iterdir()) == []


def test_the_list_is_data_too(cli: Cli) -> None:
    listed = json.loads(cli("study", "--json").out)

    assert [study["name"] for study in listed] == list(study_names())


def test_a_study_prints_findings_above_their_tables(cli: Cli, rows: Path) -> None:
    outcome = cli("study", rows)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "A table"
    assert lines[2].startswith("1 run: predicted speed-ups are off by ")
    assert lines[4].split()[:3] == ["gradients", "meet", "by"]
    assert lines[5].split()[:2] == ["horovod_mpi", "1"]
    assert lines[-1] == "https://example.org/table"


def test_results_are_kept_below_runs(cli: Cli, rows: Path, tmp_path: Path) -> None:
    outcome = cli("study", rows)

    assert outcome.err == f"wrote {Path('runs') / 'studies' / 'made-up'}\n"
    kept = sorted(path.name for path in (tmp_path / "runs" / "studies" / "made-up").iterdir())
    assert kept == ["speed_ups.csv", "speed_ups.png", "speed_ups.svg"]


def test_results_are_kept_where_one_says(cli: Cli, rows: Path, tmp_path: Path) -> None:
    outcome = cli("study", rows, "-o", "here")

    assert outcome.err == "wrote here\n"
    assert (tmp_path / "here" / "speed_ups.csv").is_file()
    assert not (tmp_path / "runs").exists()


def test_json_is_the_study_as_data(cli: Cli, rows: Path) -> None:
    outcome = cli("study", rows, "--json")

    document = json.loads(outcome.out)
    study = run_study(str(rows))
    assert outcome.code == 0
    assert document == {
        "schema_version": 1,
        "name": "made-up",
        "title": "A table",
        "findings": [section.finding for section in study.sections],
        "notes": list(study.notes),
        "speed_ups": study.tables[0].records(),
    }


def test_a_question_prints_its_answer_first_and_then_what_decides_each_claim(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("study", written(tmp_path), "-o", "here")

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "Is twice as much more?"
    assert lines[2].startswith("More, ")
    assert lines[4].split()[:2] == ["case", "accelerators"]
    assert [line.startswith("Introductions say: ") for line in lines].count(True) == 2
    assert sorted(path.name for path in Path("here").iterdir()) == ["claims.csv", "runs.csv", "small.png", "small.svg"]


def test_a_narrow_terminal_gets_narrow_paragraphs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    out = cli("study", "horovod-2017").out

    prose = [line for line in out.splitlines() if line.startswith(("18 runs", "on average", "Farthest", "Synthetic"))]
    assert len(prose) == 3
    assert max(len(line) for line in prose) <= 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["horovod-2071"], "error: unknown study 'horovod-2071'; did you mean 'horovod-2017'?\n"),
        (["nowhere.yaml"], "error: nowhere.yaml: no such file"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_written(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = cli("study", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_study_shows_its_line(cli: Cli, rows: Path) -> None:
    rows.write_text(test_row_sources.TEXT.replace("machine: box", "machine: bocks"), encoding="utf-8")

    outcome = cli("study", rows)

    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {rows}:9:48: rows.0.machine: unknown machine 'bocks'; use one of box\n")
