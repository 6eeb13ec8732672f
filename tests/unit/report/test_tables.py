"""The CSV files of a run."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustersim.report.tables import write_tables
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_numpy_floats_are_written_as_numbers(tmp_path: Path) -> None:
    breakdown = replace(METRICS.breakdown_s, bubble=np.float64(METRICS.breakdown_s.bubble))

    write_tables(replace(METRICS, breakdown_s=breakdown, step_time_s=np.float64(METRICS.step_time_s)), TIMELINE, tmp_path)

    assert "float64" not in (tmp_path / "breakdown.csv").read_text(encoding="utf-8")


def test_a_step_of_no_length_has_no_shares(tmp_path: Path) -> None:
    write_tables(replace(METRICS, step_time_s=0.0), replace(TIMELINE, step_time_s=0.0), tmp_path)

    assert {row["share_fraction"] for row in rows_of(tmp_path / "breakdown.csv")} == {"0.0"}
    assert {row["mean_utilisation_fraction"] for row in rows_of(tmp_path / "links.csv")} == {"0.0"}
