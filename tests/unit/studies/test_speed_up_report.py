"""What is told of published speed-ups."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from clustersim.report.palette import DIMENSION_COLOURS
from clustersim.studies.parameter_server_rows import SpeedRow, mean_error_fraction, parameter_server_rows
from clustersim.studies.reported import Reported
from clustersim.studies.speed_up_report import TALLEST_PX, reported_rows
from clustersim.studies.validation_table import error_text, share_text
from tests.unit.studies.test_row_sources import TEXT


@cache
def rows() -> tuple[SpeedRow, ...]:
    return parameter_server_rows(["horovod-2017"])


@cache
def horovod() -> Reported:
    return reported_rows("horovod-2017")


def test_the_finding_is_the_mean_error() -> None:
    mean = share_text(mean_error_fraction(rows()))

    assert horovod().sections[0].finding == f"18 runs: predicted speed-ups are off by {mean} on average"
    assert horovod().pictures[0].finding == f"Horovod README of October 2017, {horovod().sections[0].finding}"


def test_each_exchange_has_a_line_with_the_run_that_is_farthest_off() -> None:
    mpi = [row for row in rows() if row.exchange == "horovod_mpi"]
    worst = max(mpi, key=lambda row: abs(row.error_fraction))

    cells = {line[0]: line[1:] for line in horovod().sections[0].cells}

    assert [*cells] == ["distributed_ps_accelerator", "distributed_ps_host", "horovod_mpi", "horovod_nccl_tcp", "horovod_nccl_rdma"]
    assert cells["horovod_mpi"] == ("6", share_text(mean_error_fraction(mpi)), error_text(worst.error_fraction), worst.id)


def test_each_run_has_a_line() -> None:
    first = rows()[0]

    lines = horovod().sections[1].cells

    assert len(lines) == 18
    assert lines[0] == (
        "inception-v3", "uber-25g", "distributed_ps_accelerator", "16", "64",
        f"{first.measured:.2f}", f"{first.predicted:.2f}", error_text(first.error_fraction),
    )  # fmt: skip


def test_the_file_has_every_digit() -> None:
    (table,) = horovod().tables

    record = table.records()[0]
    assert (record["id"], record["gpus"], record["exchange"]) == (rows()[0].id, 16, "distributed_ps_accelerator")
    assert (record["measured"], record["predicted"], record["error_fraction"]) == (
        rows()[0].measured,
        rows()[0].predicted,
        rows()[0].error_fraction,
    )


def test_the_picture_has_a_panel_for_each_exchange_in_the_colour_of_its_kind() -> None:
    (picture,) = horovod().pictures

    colours = {panel.title: panel.curves[0].colour for panel in picture.panels}
    assert colours == {
        "distributed ps accelerator": DIMENSION_COLOURS["ps"],
        "distributed ps host": DIMENSION_COLOURS["ps"],
        "horovod mpi": DIMENSION_COLOURS["dp"],
        "horovod nccl tcp": DIMENSION_COLOURS["dp"],
        "horovod nccl rdma": DIMENSION_COLOURS["dp"],
    }
    assert picture.band_fraction == 0.15
    mpi = picture.panels[2]
    assert mpi.curves[0].points == tuple((row.measured, row.predicted) for row in rows() if row.exchange == "horovod_mpi")
    worst = max((row for row in rows() if row.exchange == "horovod_mpi"), key=lambda row: abs(row.error_fraction))
    assert [(note.x, note.y) for note in mpi.notes] == [(worst.measured, worst.predicted)]


def test_sources_and_notes_are_named() -> None:
    notes = horovod().notes

    assert any(note.startswith("Synthetic images") for note in notes)
    assert "https://github.com/horovod/horovod/issues/246" in notes


def test_a_file_with_one_row_is_reported_too(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(TEXT, encoding="utf-8")

    study = reported_rows(path)

    assert study.name == "made-up"
    assert study.sections[0].finding.startswith("1 run: predicted speed-ups are off by ")
    assert study.pictures[0].height_px == TALLEST_PX


@pytest.mark.parametrize("section", [0, 1])
def test_lines_are_as_wide_as_their_header(section: int) -> None:
    found = horovod().sections[section]

    assert {len(line) for line in found.cells} == {len(found.columns)}
