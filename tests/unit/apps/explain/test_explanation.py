"""Explanation of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from clustersim.apps.explain.constants import explained
from clustersim.apps.explain.explanation import Explanation, explain
from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.errors import ScenarioError


def trained(source: str, overrides: Sequence[str] = (), *, seed: int = 0, changes: bool = True) -> Explanation:
    found = explain(source, overrides, seed=seed, changes=changes)
    assert isinstance(found, Explanation)
    return found


@pytest.fixture(scope="module")
def slow() -> Explanation:
    """Return a small pipeline that could do with less recomputation and fused attention."""
    return trained("1f1b", ["strategy.recompute=full"])


def test_a_gain_is_what_a_replay_of_the_change_saves(slow: Explanation) -> None:
    assert slow.gains is not None
    for gain in slow.gains.best:
        alone = run("1f1b", set=["strategy.recompute=full", *gain.change.overrides])
        assert gain.step_time_s == alone.step_time_s
        assert gain.saved_s == slow.result.step_time_s - alone.step_time_s > 0.0


def test_the_largest_gain_comes_first_and_each_family_once(slow: Explanation) -> None:
    assert slow.gains is not None
    saved = [gain.saved_s for gain in slow.gains.best]
    families = [gain.change.family for gain in slow.gains.best]

    assert saved == sorted(saved, reverse=True)
    assert len(families) == len(set(families))
    assert "recomputation" in families


def test_what_needs_more_memory_than_there_is_is_no_gain() -> None:
    few = ["training.global_batch_size=16", "training.micro_batch_size=1"]
    explanation = trained("llama3-8b-8xh100", [*few, "strategy.recompute=full", "strategy.zero_stage=3"])
    found, memory = explanation.gains, explanation.result.metrics.memory

    assert memory.fits
    assert found is not None
    assert found.n_misfits >= 1
    assert found.best
    assert all(gain.peak_bytes <= memory.capacity_bytes for gain in found.best)


def test_a_sum_or_a_quotient_of_the_inputs_is_the_figure(slow: Explanation) -> None:
    found = {figure.name: figure for figure in slow.figures}

    for name in ("step_time_s", "memory.peak_bytes"):
        assert sum(value for _, value in found[name].inputs) == pytest.approx(found[name].value, rel=1e-9)
    for name in ("mfu", "hfu"):
        (_, flops), *divisors = found[name].inputs
        assert flops / prod(value for _, value in divisors) == pytest.approx(found[name].value, rel=1e-9)


def test_the_bubble_stands_beside_its_closed_form(slow: Explanation) -> None:
    (bubble,) = (figure for figure in slow.figures if figure.name == "bubble_fraction")

    assert "(pp - 1) / (virtual_stages * micro_batches + pp - 1) = 0.2727" in bubble.remark


def test_without_a_pipeline_nothing_is_said_of_a_bubble() -> None:
    assert "bubble_fraction" not in [figure.name for figure in explained(run("llama3-8b-8xh100"))]


def test_the_first_sentences_answer(slow: Explanation) -> None:
    chain, where, unsaid, most = slow.lines()

    assert slow.headline().startswith("A step takes ")
    assert chain.startswith("What sets it: a chain of ")
    assert where.startswith("It runs through stage ")
    assert unsaid.startswith("Left to its default, and changes the step most: ")
    assert most.startswith("What would shorten it most: ")


@pytest.mark.slow
def test_asynchronous_workers_are_explained_without_a_chain() -> None:
    explanation = trained("resnet50-async-servers", changes=False)

    assert explanation.path is None
    assert "Workers do not wait for each other" in explanation.lines()[0]
    assert explanation.tables()[0].heading == "How figures follow from each other"


def test_the_document_holds_the_ends_of_a_long_chain(slow: Explanation) -> None:
    path = slow.to_dict()["critical_path"]

    assert isinstance(path, dict)
    ends = path["ends"]
    assert isinstance(ends, list)
    assert len(ends) == 12
    assert path["chain_tasks"] == len(slow.path.spans) if slow.path else False


def test_a_run_directory_is_explained_as_it_was_run(tmp_path: Path) -> None:
    result = run("1f1b", set=["strategy.recompute=full"])
    folder = write_run_directory(result, tmp_path, plots=False)

    found = trained(str(folder), changes=False)

    assert found.result.step_time_s == result.step_time_s
    assert found.constants == trained("1f1b", ["strategy.recompute=full"], changes=False).constants
    assert trained(str(folder.parent), changes=False).result.scenario_hash == result.scenario_hash


@pytest.mark.slow
def test_a_run_directory_brings_its_own_seed(tmp_path: Path) -> None:
    uneven = ["strategy.expert_load=dirichlet"]
    folder = write_run_directory(run("mixtral-8x7b-ep", set=uneven, seed=3), tmp_path, plots=False)

    found = trained(str(folder), changes=False)

    assert found.result.seed == 3
    assert found.path is not None
    assert found.path.step_time_s == pytest.approx(run("mixtral-8x7b-ep", set=uneven, seed=3).step_time_s, rel=1e-9)


def test_nothing_can_be_set_in_a_run_directory(tmp_path: Path) -> None:
    folder = write_run_directory(run("1f1b"), tmp_path, plots=False)

    with pytest.raises(ScenarioError, match="is a run directory, in which nothing can be set"):
        trained(str(folder), ["strategy.tp=2"])


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is no run directory"):
        trained(str(tmp_path))


def test_round_off_is_no_part_of_a_step(slow: Explanation) -> None:
    metrics = slow.result.metrics
    result = replace(slow.result, metrics=replace(metrics, breakdown_s=replace(metrics.breakdown_s, stall=888e-18)))

    assert "breakdown_s.stall" not in dict(explained(result)[0].inputs)


def test_a_gain_within_the_error_bars_is_not_decided(slow: Explanation) -> None:
    assert slow.gains is not None
    (first, *_) = slow.gains.best
    near = replace(first, better_than_base="not decided")

    shown = replace(slow, gains=replace(slow.gains, best=(near,)))

    assert shown.lines()[-1].endswith("less, within the error bars: not decided.")
    assert shown.tables()[0].rows[0][0].endswith(" % *")


def test_a_long_table_of_slack_is_cut_and_figures_are_written_as_in_a_report(slow: Explanation) -> None:
    assert slow.path is not None
    long = replace(slow, path=replace(slow.path, slack=slow.path.slack * 10))

    assert len(long.tables()[-2].rows) == 10
    assert long.tables()[-2].heading.startswith("Slack of tasks, the first 10 rows (--json has ")
    assert re.match(r"A step takes [\d.]+ m?s \(\d+ %: [\d.]+ to [\d.]+ m?s\), ", slow.headline())
