"""Rows among processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.progress import watched_by
from clustersim.studies.published import validate
from clustersim.studies.sweeps import pools
from tests.unit.studies.samples import TEXT, write


class Told:
    """Messages that a watcher receives."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.progress: list[tuple[int, int]] = []

    def begun(self, phase: str) -> None:
        self.phases.append(phase)

    def ended(self, phase: str, seconds: float) -> None:
        assert seconds >= 0.0

    def advanced(self, n_done: int, n_total: int) -> None:
        self.progress.append((n_done, n_total))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    path = write(tmp_path)

    assert validate([path], jobs=2) == validate([path])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_the_rows_of_all_sources_whoever_does_the_work(tmp_path: Path, jobs: int) -> None:
    other, told = write(tmp_path, TEXT.replace("source_id: small", "source_id: other"), "other.yaml"), Told()

    with watched_by(told):
        validate([write(tmp_path), other], jobs=jobs)

    assert told.phases[0] == "simulate published rows"
    assert [each for each in told.progress if each[1] == 4] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_source_that_was_edited_is_read_again(tmp_path: Path) -> None:
    before = validate([write(tmp_path)])

    after = validate([write(tmp_path, TEXT.replace("strategy: {tp: 4}", "strategy: {tp: 2}"))])

    assert before.sources[0].rows[1].predicted_s != after.sources[0].rows[1].predicted_s
