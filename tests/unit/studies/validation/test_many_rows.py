"""Rows among processes."""

from __future__ import annotations

from pathlib import Path

from clustersim.studies.published import validate
from tests.unit.studies.samples import write


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    path = write(tmp_path)

    assert validate([path], n_processes=2) == validate([path])


def test_progress_is_told_in_order_whoever_does_the_work(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []

    validate([write(tmp_path)], n_processes=2, on_row=lambda *progress: told.append(progress))

    assert told == [(1, 2, "one"), (2, 2, "two")]
