"""Rows with hidden settings, explained rows, and what a row makes use of."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.apps.study import pools
from clustersim.apps.validate.capabilities import CAPABILITIES
from clustersim.apps.validate.published import check_complete, validate
from clustersim.apps.validate.rows import run_rows
from clustersim.apps.validate.sources import read_source
from clustersim.documents.check import value_at
from clustersim.errors import ScenarioError
from clustersim.progress import Watcher, watched_by
from tests.unit.apps.samples import TEXT, refusal, write

HIDDEN = "    quality: A\n    hidden: {strategy.recompute: [none, full], training.micro_batch_size: [1, 2]}\n"
TIMES = "measured: {step_time: 100 ms}"


def hidden(measured: str = TIMES) -> str:
    return TEXT.replace("    quality: A\n", HIDDEN).replace(TIMES, measured)


def test_each_combination_of_what_is_hidden_is_a_scenario(tmp_path: Path) -> None:
    scenarios = read_source(write(tmp_path, hidden())).alternatives(0)

    chosen = [(value_at(each, ["strategy", "recompute"]), value_at(each, ["training", "micro_batch_size"])) for each in scenarios]
    assert chosen == [("none", 1), ("none", 2), ("full", 1), ("full", 2)]


def test_a_row_with_nothing_hidden_is_one_scenario(tmp_path: Path) -> None:
    source = read_source(write(tmp_path))

    assert source.alternatives(0) == [source.scenario(0)]


def test_a_hidden_row_has_the_range_of_what_it_may_be(tmp_path: Path) -> None:
    path = write(tmp_path, hidden())
    times = [run(each).step_time_s for each in read_source(path).alternatives(0)]

    row = validate([path]).sources[0].rows[0]

    assert row.predicted_range_s == (min(times), max(times))


@pytest.mark.parametrize(("measured", "inside"), [("100 ns", False), ("100 s", False), (None, True)])
def test_the_error_of_a_hidden_row_is_how_far_it_is_from_its_range(tmp_path: Path, measured: str | None, inside: bool) -> None:
    least, most = validate([write(tmp_path, hidden())]).sources[0].rows[0].predicted_range_s or (0.0, 0.0)
    text = measured or f"{(least + most) / 2:.9f} s"

    row = validate([write(tmp_path, hidden(f"measured: {{step_time: {text}}}"))]).sources[0].rows[0]

    assert (row.error_fraction == 0.0) is inside
    assert row.predicted_s in (least, most, row.measured_s)


def test_hidden_rows_count_apart_and_have_no_interval(tmp_path: Path) -> None:
    validation = validate([write(tmp_path, hidden())])

    assert validation.summary.n_rows == 1
    assert validation.hidden is not None
    assert validation.hidden.n_rows == 1
    assert [row.interval_s is None for row in validation.sources[0].rows] == [True, False]


def test_a_row_that_is_explained_says_why(tmp_path: Path) -> None:
    validation = validate([write(tmp_path, f"{TEXT}explained:\n  two: the clock was slow\n")])

    assert [row.explained for row in validation.sources[0].rows] == [None, "the clock was slow"]


def test_only_rows_that_exist_can_be_explained(tmp_path: Path) -> None:
    error = refusal(tmp_path, f"{TEXT}explained:\n  tow: the clock was slow\n")

    assert error.message == "no row has the id 'tow'"
    assert error.hint is not None
    assert "two" in error.hint


def test_a_row_says_what_it_makes_use_of(tmp_path: Path) -> None:
    one = validate([write(tmp_path)]).sources[0].rows[0]

    assert {"dense", "many nodes", "tensor parallel", "pipeline", "data parallel", "fp16 or bf16"} <= set(one.capabilities)
    *used, generation = one.capabilities
    assert used == [name for name in CAPABILITIES if name in used]
    assert generation == "Ampere"


def test_each_capability_has_its_rows(tmp_path: Path) -> None:
    validation = validate([write(tmp_path)])

    found = {each.capability: each.summary.n_rows for each in validation.capabilities}
    assert found["pipeline"] == 2
    assert "fp8" not in found


def test_error_bars_of_a_part_are_refused() -> None:
    with pytest.raises(ScenarioError, match="all rows of all shipped sources"):
        check_complete(["megatron-sc21"], "B")
    with pytest.raises(ScenarioError, match="all rows of all shipped sources"):
        check_complete([], "A")


def test_a_source_that_a_constant_was_fitted_to_is_named_with_it() -> None:
    ((_, fitted),) = run_rows([(read_source("torchtitan-h100"), 0)])

    assert fitted == ("hopper.gemm.power_exponent",)


class Told(Watcher):
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
    other = write(tmp_path, TEXT.replace("source_id: small", "source_id: other").replace("bf16", "fp16"), "other.yaml")
    told = Told()

    with watched_by(told):
        validate([write(tmp_path), other], jobs=jobs)

    assert told.phases[0] == "simulate published rows"
    assert [each for each in told.progress if each[1] == 4] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_rows_that_differ_in_their_measurements_alone_are_simulated_once(tmp_path: Path) -> None:
    text = TEXT.replace("source_id: small", "source_id: other").replace("100 ms", "200 ms")
    other, told = write(tmp_path, text, "other.yaml"), Told()

    with watched_by(told):
        one, two = validate([write(tmp_path), other]).sources

    assert (2, 2) in told.progress
    assert [row.predicted_s for row in two.rows] == [row.predicted_s for row in one.rows]
    assert [row.measured_s for row in two.rows] == [0.2, 0.2]


def test_a_source_that_was_edited_is_read_again(tmp_path: Path) -> None:
    before = validate([write(tmp_path)])

    after = validate([write(tmp_path, TEXT.replace("strategy: {tp: 4}", "strategy: {tp: 2}"))])

    assert before.sources[0].rows[1].predicted_s != after.sources[0].rows[1].predicted_s
