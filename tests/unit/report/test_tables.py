"""The CSV files of a run."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustersim.report.tables import HEADERS, write_tables
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(METRICS, TIMELINE, tmp_path)
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_all_tables_are_written_with_their_headers(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(HEADERS)
    for name, header in HEADERS.items():
        assert (folder / name).read_text(encoding="utf-8").splitlines()[0] == ",".join(header)


def test_the_breakdown_reads_back_exactly(folder: Path) -> None:
    rows = rows_of(folder / "breakdown.csv")

    in_step = [float(row["time_s"]) for row in rows if row["in_step_time"] == "1"]
    assert math.fsum(in_step) == pytest.approx(METRICS.step_time_s, rel=1e-9)
    by_part = {(row["part"], row["dimension"]): float(row["time_s"]) for row in rows}
    assert by_part["bubble", ""] == METRICS.breakdown_s.bubble
    assert by_part["exposed_communication", "tp"] == METRICS.breakdown_s.exposed_communication.tp
    assert by_part["overlapped_communication", "dp"] == METRICS.overlapped_communication_s.dp


def test_parts_of_no_length_have_a_row_too(folder: Path) -> None:
    rows = rows_of(folder / "breakdown.csv")

    # Five parts, and seven dimensions of communication, exposed and hidden.
    assert len(rows) == 5 + 2 * 7
    assert next(row for row in rows if row["part"] == "stall")["time_s"] == "0.0"


def test_shares_of_the_step_sum_to_one(folder: Path) -> None:
    shares = [float(row["share_fraction"]) for row in rows_of(folder / "breakdown.csv") if row["in_step_time"] == "1"]

    assert math.fsum(shares) == pytest.approx(1.0, rel=1e-9)


def test_categories_of_memory_sum_to_the_peak(folder: Path) -> None:
    rows = rows_of(folder / "memory.csv")

    for stage in METRICS.memory.by_stage:
        sizes = {row["category"]: float(row["size_bytes"]) for row in rows if int(row["stage"]) == stage.stage}
        assert sizes.pop("peak") == stage.peak_bytes == sum(sizes.values())


def test_memory_over_time_reads_back_exactly(folder: Path) -> None:
    rows = rows_of(folder / "memory_over_time.csv")

    for curve, rank_class in zip(TIMELINE.memory, TIMELINE.rank_classes, strict=True):
        mine = [row for row in rows if row["rank_class"] == rank_class.name]
        assert [float(row["time_s"]) for row in mine] == list(curve.time_s)
        assert [float(row["activations_bytes"]) for row in mine] == list(curve.activations_bytes)
        assert [float(row["total_bytes"]) for row in mine] == list(curve.total_bytes)
        assert {int(row["stage"]) for row in mine} == {rank_class.stage}


def test_parts_of_memory_sum_to_the_total_at_every_moment(folder: Path) -> None:
    parts = ("parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "buffers_bytes")

    for row in rows_of(folder / "memory_over_time.csv"):
        assert math.fsum(float(row[part]) for part in parts) == pytest.approx(float(row["total_bytes"]), rel=1e-12)


def test_links_have_their_mean_utilisation(folder: Path) -> None:
    rows = rows_of(folder / "links.csv")

    # The reference links are loaded to these shares of their bandwidth.
    assert [float(row["mean_utilisation_fraction"]) for row in rows] == pytest.approx([0.25, 0.0625, 0.03125], rel=1e-12)
    assert [float(row["bytes_all_links"]) for row in rows] == [link.bytes * link.n_links for link in TIMELINE.links]


def test_links_have_their_users_and_what_met_on_them(folder: Path) -> None:
    rows = {row["tier"]: row for row in rows_of(folder / "links.csv")}

    assert (rows["nvlink"]["users"], rows["nvlink"]["meetings"], float(rows["nvlink"]["contended_s"])) == ("tp all-reduce", "", 0.0)
    assert rows["nic"]["users"] == "pp F 0->1; dp all-reduce"
    assert rows["nic"]["meetings"] == "dp all-reduce + pp F 0->1; dp all-reduce"
    assert float(rows["nic"]["contended_s"]) == pytest.approx(1.5e-3 + 0.25e-3, rel=1e-12)


def test_numpy_floats_are_written_as_numbers(tmp_path: Path) -> None:
    breakdown = replace(METRICS.breakdown_s, bubble=np.float64(METRICS.breakdown_s.bubble))

    write_tables(replace(METRICS, breakdown_s=breakdown, step_time_s=np.float64(METRICS.step_time_s)), TIMELINE, tmp_path)

    assert "float64" not in (tmp_path / "breakdown.csv").read_text(encoding="utf-8")


def test_a_step_of_no_length_has_no_shares(tmp_path: Path) -> None:
    write_tables(replace(METRICS, step_time_s=0.0), replace(TIMELINE, step_time_s=0.0), tmp_path)

    assert {row["share_fraction"] for row in rows_of(tmp_path / "breakdown.csv")} == {"0.0"}
    assert {row["mean_utilisation_fraction"] for row in rows_of(tmp_path / "links.csv")} == {"0.0"}
