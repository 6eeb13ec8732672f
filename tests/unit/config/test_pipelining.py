"""Schedules from files, through a whole scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim import run
from clustersim.apps.run.rundir import write_run_directory
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.resolve import resolved_scenario
from clustersim.errors import ScenarioError
from tests.unit.config.samples import TEXT

ONE = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
SPLIT = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1B1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "mine.csv").write_text(ONE, encoding="utf-8")
    (tmp_path / "split.csv").write_text(SPLIT, encoding="utf-8")
    # Paths of overrides count from the current folder.
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(folder: Path, *overrides: str) -> Built:
    fixed = ("strategy.schedule=mine.csv", "training.global_batch_size=8")
    return build(load_scenario(folder / "small.yaml", [*fixed, *overrides]))


def test_a_file_is_found_beside_the_scenario_that_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    text = TEXT.replace("strategy:\n", "strategy:\n  schedule: mine.csv\n")
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    strategy = build(load_scenario(folder / "small.yaml", ["training.global_batch_size=8"])).plan.strategy

    assert strategy.written is not None
    assert strategy.written.n_micro_batches == 2
    assert (strategy.virtual_stages, strategy.overlap_p2p, strategy.optimizer_post_validation) == (1, True, False)


def test_a_file_runs_as_the_schedule_that_it_writes_out(folder: Path) -> None:
    source, fixed = folder / "small.yaml", ["training.global_batch_size=8", "strategy.overlap_p2p=true"]

    named = run(source, set=[*fixed, "strategy.schedule=1f1b"])
    written = run(source, set=[*fixed, "strategy.schedule=mine.csv"])

    assert written.step_time_s == named.step_time_s


def test_a_file_is_called_after_its_content(folder: Path) -> None:
    name = built(folder).plan.strategy.schedule
    (folder / "copies").mkdir()
    (folder / "copies" / name).write_text(ONE, encoding="utf-8")
    (folder / "other.csv").write_text(ONE.replace("1B0,1F1", "1F1,1B0"), encoding="utf-8")

    assert name.startswith("mine-")
    assert built(folder, f"strategy.schedule=copies/{name}").plan.strategy.schedule == name
    assert built(folder, "strategy.schedule=other.csv").plan.strategy.schedule.split("-")[-1] != name.split("-")[-1]


def test_a_run_directory_can_be_run_again(folder: Path, tmp_path: Path) -> None:
    first = run(folder / "small.yaml", set=["strategy.schedule=split.csv", "training.global_batch_size=8"])
    written = write_run_directory(first, tmp_path / "runs", plots=False)

    again = run(written / "resolved.yaml")

    assert (again.scenario_hash, again.step_time_s) == (first.scenario_hash, first.step_time_s)


def test_a_resolved_scenario_says_how_layers_are_dealt_out_and_whether_norms_are_checked_later(folder: Path) -> None:
    source = folder / "small.yaml"
    balanced = resolved_scenario(build(load_scenario(source, ["strategy.stage_layers=[5, 3]", "strategy.schedule=zb_h1"])))
    plain = resolved_scenario(build(load_scenario(source)))

    assert isinstance(balanced["strategy"], dict)
    assert isinstance(plain["strategy"], dict)
    assert balanced["strategy"]["stage_layers"] == [5, 3]
    assert balanced["strategy"]["optimizer_post_validation"] is True
    assert not {"stage_layers", "optimizer_post_validation"} & set(plain["strategy"])


@pytest.mark.parametrize(
    ("overrides", "field", "message"),
    [
        (["strategy.schedule=none.csv"], "schedule", "no such file"),
        (["strategy.virtual_stages=2"], "virtual_stages", "mine.csv has 1 per stage, not 2"),
        (["strategy.pp=4", "strategy.tp=1"], "pp", "mine.csv has 2 rows, one for each rank of a pipeline, and pp is 4"),
        (["strategy.pp=1", "strategy.tp=1"], "pp", "a schedule is for at least 2 stages"),
        (["training.global_batch_size=16"], "global_batch_size", "mine.csv is for 2 micro-batches, and 16 / (4 * 1) is 4"),
    ],
)
def test_a_file_that_does_not_go_with_the_scenario_is_refused(folder: Path, overrides: list[str], field: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        built(folder, *overrides)

    assert str(caught.value.field).endswith(field)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_mistake_in_a_file_names_the_file_the_rank_and_the_cell(folder: Path) -> None:
    (folder / "mine.csv").write_text(ONE.replace("1B0", "1Q0"), encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        built(folder)

    assert str(caught.value).startswith("mine.csv: strategy.schedule: rank 1, cell 2: '1Q0' is not a pass; write such as 0F0")
