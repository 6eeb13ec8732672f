"""Runs side by side: where they come from, what differs, and what is relative to the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import clustersim
from clustersim.apps.compare.compared_runs import load_run, side_by_side
from clustersim.apps.compare.side_by_side import ComparedFigure, ComparedRun, Difference
from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.documents.text import Data
from clustersim.errors import InfeasibleError, ScenarioError
from tests.unit.config.samples import small


def made(name: str = "a", digits: str = "00000001", resolved: dict[str, Data] | None = None, **results: Data) -> ComparedRun:
    return ComparedRun(source=name, name=name, scenario_hash=digits, resolved=resolved or {}, results=results)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run directory of a small scenario."""
    return write_run_directory(run(small(checks=["mfu > 0"])), tmp_path_factory.mktemp("runs"), plots=False)


def test_only_keys_that_differ_are_kept() -> None:
    first: dict[str, Data] = {"name": "a", "strategy": {"tp": 1, "pp": 2, "offload": []}, "model": {"layers": [1, 2]}}
    second: dict[str, Data] = {
        "name": "b",
        "strategy": {"tp": 4, "pp": 2, "offload": ["optimizer"]},
        "model": {"layers": [1, 2]},
        "steps": 3,
    }

    compared = side_by_side([made("a", resolved=first), made("b", resolved=second)])

    assert compared.differences == (
        Difference(key="strategy.tp", values=(1, 4)),
        Difference(key="strategy.offload", values=([], ["optimizer"])),
        Difference(key="steps", values=(None, 3)),
    )


def test_figures_are_relative_to_the_first() -> None:
    compared = side_by_side([made("a", step_time_s=2.0, memory={"fits": True, "peak_bytes": 0.0}), made("b", step_time_s=3, mfu=0.5)])

    assert compared.figures == (
        ComparedFigure(key="step_time_s", values=(2.0, 3.0)),
        ComparedFigure(key="memory.peak_bytes", values=(0.0, None)),
        ComparedFigure(key="mfu", values=(None, 0.5)),
    )
    assert [figure.relative for figure in compared.figures] == [(0.0, 0.5), (None, None), (None, None)]
    found = compared.figure("mfu")
    assert found is not None
    assert compared.figure("hfu") is None


def test_figures_of_the_simulator_itself_are_left_out() -> None:
    compared = side_by_side([made("a", schema_version=1, engine={"wall_s": 3.0, "ranks": 8})] * 2)

    assert [figure.key for figure in compared.figures] == ["engine.ranks"]


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([made("a"), made("b")], ("a", "b")),
        ([made("a", "1"), made("a", "2"), made("b", "3")], ("a 1", "a 2", "b")),
        ([made("a", "1"), made("a", "1"), made("a", "1")], ("a 1", "a 1 (2)", "a 1 (3)")),
    ],
)
def test_no_two_labels_are_alike(runs: list[ComparedRun], labels: tuple[str, ...]) -> None:
    assert side_by_side(runs).labels == labels


def test_a_run_directory_and_its_scenario_give_the_same_run(folder: Path) -> None:
    read, simulated = load_run(str(folder)), load_run(str(folder / "scenario.yaml"))

    assert read.results == simulated.results
    assert read.resolved == simulated.resolved
    assert side_by_side([read, simulated]).differences == ()


def test_the_folder_around_a_single_run_and_its_results_name_it_too(folder: Path) -> None:
    assert load_run(str(folder.parent)).scenario_hash == load_run(str(folder / "results.json")).scenario_hash == folder.name


def test_a_scenario_can_be_changed_and_a_run_directory_cannot(folder: Path) -> None:
    assert load_run(str(folder / "scenario.yaml"), ["strategy.tp=4"]).results["parallelism"] == {
        "dp": 2,
        "tp": 4,
        "pp": 2,
        "cp": 1,
        "ep": 1,
    }
    with pytest.raises(ScenarioError, match="nothing can be set"):
        load_run(str(folder), ["strategy.tp=4"])


def test_training_is_not_held_against_serving() -> None:
    with pytest.raises(ScenarioError, match="b serves requests, and a trains"):
        side_by_side([made("a"), made("b", resolved={"serving": {}})])


def test_a_folder_that_is_no_run_has_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    (tmp_path / "lama").mkdir()

    with pytest.raises(ScenarioError, match="is no run directory") as caught:
        load_run(str(tmp_path / "lama"))

    assert caught.value.hint == "did you mean 'llama'?"


def test_a_folder_of_several_runs_asks_for_one(folder: Path, tmp_path: Path) -> None:
    for digits in ("aaaaaaaa", "bbbbbbbb"):
        (tmp_path / digits).mkdir()
        (tmp_path / digits / "results.json").write_text("{}", encoding="utf-8")

    with pytest.raises(ScenarioError, match="holds 2 runs") as caught:
        load_run(str(tmp_path))

    assert "aaaaaaaa" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "is not the result of a run"), ("[1]", "is not the result of a run"), ("{", "is not JSON")],
)
def test_results_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "results.json").write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError, match=message):
        load_run(str(tmp_path))


def test_results_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 99, "scenario_hash": "0"}), encoding="utf-8")

    with pytest.raises(ScenarioError, match="is of schema version 99") as caught:
        load_run(str(tmp_path))

    assert (caught.value.hint or "").endswith("scenario.yaml again")


def test_a_name_that_means_nothing_offers_run_directories_too() -> None:
    with pytest.raises(ScenarioError, match="there is no file and no shipped example 'nope'") as caught:
        load_run("nope")

    assert (caught.value.hint or "").endswith("or name a run directory")


def test_a_scenario_that_cannot_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "never.yaml"
    load_run("1f1b")
    text = (
        "version: 1\nmodel: gpt2\ncluster: {node: dgx-h100, nodes: 1}\ntraining: {global_batch_size: 8}\nreliability: {node_mtbf: 1 min}\n"
    )
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InfeasibleError, match=r"never\.yaml: reliability: the job would train"):
        load_run(str(path))


def test_results_are_compared_in_python_and_shown_in_a_notebook() -> None:
    compared = clustersim.compare(clustersim.run("1f1b"), "zb-h1")

    assert compared.labels == ("1f1b", "zb-h1")
    assert "strategy.schedule" in str(compared)
    assert compared._repr_html_().startswith("<p><strong>zb-h1 against 1f1b: ")
