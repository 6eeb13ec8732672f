"""Studies by name, and what they leave behind."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from clustersim.apps.study.reported import Reported
from clustersim.apps.study.shipped import run_study, write_study
from clustersim.errors import ScenarioError
from tests.unit.apps.study.sample import written


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return run_study(str(written(tmp_path_factory.mktemp("study"))))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one-server-or-rings", "unknown study 'one-server-or-rings'; did you mean 'one-server-or-ring'?"),
        ("zzz", "unknown study 'zzz'; use one of bert-on-two-gpus, bubble-and-micro-batches, "),
        ("nowhere/zzz.yaml", "no such file"),
    ],
)
def test_an_unknown_study_is_refused(name: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run_study(name)

    assert message in str(caught.value)


def test_tables_and_pictures_are_written(small: Reported, tmp_path: Path) -> None:
    write_study(small, tmp_path / "new" / "folder")

    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["claims.csv", "runs.csv", "small.png", "small.svg"]


def test_tables_read_back_as_they_are(small: Reported, tmp_path: Path) -> None:
    write_study(small, tmp_path)

    for table in small.tables:
        with (tmp_path / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert tuple(header) == table.header
        for line, row in zip(rows, table.rows, strict=True):
            for text, cell in zip(line, row, strict=True):
                assert (float(text) if isinstance(cell, float) else text) == (
                    "" if cell is None else cell if isinstance(cell, float) else str(cell)
                )


def test_equal_studies_give_equal_bytes_over_those_of_an_earlier_run(small: Reported, tmp_path: Path) -> None:
    write_study(small, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    write_study(small, tmp_path)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_one_error(small: Reported, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(ScenarioError, match=r"cannot write the study into .*file") as caught:
        write_study(small, tmp_path / "file")

    assert caught.value.hint == "choose another folder with --out"
