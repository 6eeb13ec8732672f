"""Studies by name, and what they leave behind."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.studies.questions.question_file import question_names
from clustersim.studies.reported import Reported
from clustersim.studies.shipped import run_study, study_names, study_title, write_study
from tests.unit.studies import test_row_sources
from tests.unit.studies.comparison_sample import TEXT


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    path = tmp_path_factory.mktemp("study") / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return run_study(str(path))


def test_the_shipped_studies_have_titles() -> None:
    assert study_names() == ("parameter-server-or-ring", *question_names(), "horovod-2017", "tensorflow-ps-2017")
    assert study_title("interleaving") == "Does interleaving pay for its extra communication?"
    assert study_title("parameter-server-or-ring").endswith("?")
    assert study_title("horovod-2017") == "Horovod README of October 2017"


def test_a_path_is_read_as_what_it_holds(small: Reported, tmp_path: Path) -> None:
    rows = tmp_path / "made-up.yaml"
    rows.write_text(test_row_sources.TEXT, encoding="utf-8")

    assert small.title == "Who is faster?"
    assert run_study(str(rows)).title == "A table"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("parameter-server-or-rings", "unknown study 'parameter-server-or-rings'; did you mean 'parameter-server-or-ring'?"),
        ("zzz", "unknown study 'zzz'; use one of parameter-server-or-ring, bert-on-two-gpus, bubble-and-micro-batches, "),
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
    pictures = [f"{name}.{kind}" for name in ("oversubscription", "servers", "sizes", "workers") for kind in ("png", "svg")]
    assert files == sorted(["fewest_servers.csv", "times.csv", "times_by_size.csv", "winning_sizes.csv", *pictures])


def test_tables_read_back_as_they_are(small: Reported, tmp_path: Path) -> None:
    write_study(small, tmp_path)

    for table in small.tables:
        with (tmp_path / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert tuple(header) == table.header
        for written, row in zip(rows, table.rows, strict=True):
            for text, cell in zip(written, row, strict=True):
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
