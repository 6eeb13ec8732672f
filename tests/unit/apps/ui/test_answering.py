"""From controls to a result or a mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clustersim.apps.compare.compared_runs import run_of, side_by_side
from clustersim.apps.run.running import run
from clustersim.apps.ui.contained import check_limits
from clustersim.apps.ui.controls import controls, values_of
from clustersim.apps.ui.desk import Mistake, Seen, look, mistake, result_of
from clustersim.apps.ui.workers import LimitError
from clustersim.config.load import example_names, example_path, load_scenario
from clustersim.errors import InfeasibleError

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "training": {"global_batch_size": 16, "seq_length": 2048},
    "strategy": {"zero_stage": 1},
}


def answered(key: str, text: str) -> Seen | Mistake:
    held: list[str | None] = list(values_of(BASE))
    held[[control.key for control in controls()].index(key)] = text
    return look(BASE, held)


def test_the_result_is_that_of_a_run() -> None:
    found = answered("strategy.tp", "4")

    assert isinstance(found, Seen)
    assert found.metrics.step_time_s == run(BASE, set=["strategy.tp=4"]).step_time_s
    assert found.shown["current"] == {**BASE, "strategy": {"zero_stage": 1, "tp": 4}}


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("strategy.tp", "3", "3 does not divide"),
        ("strategy.tp", "four", "'four' is not"),
        ("strategy.tp", "-1", "-1"),
        ("model", "llama3-8c", "did you mean 'llama3-8b'"),
        ("model", "mine.yaml", "no file is read here"),
        ("model", "hf:config.json", "no file is read here"),
        ("cluster.machine", "dgx-h1000", "dgx-h100"),
        ("cluster.machine", "../../etc", "no file is read here"),
        ("cluster.nics.bandwidth", "400", "unit"),
        ("training.global_batch_size", "0", "0"),
        ("strategy.schedule", "own.csv", "no file is read here"),
        ("strategy.zero_stage", "7", "7"),
    ],
)
def test_a_mistake_is_told_at_its_control(key: str, text: str, message: str) -> None:
    found = answered(key, text)

    assert isinstance(found, Mistake)
    assert found.key == key
    assert message in found.text


def test_a_mistake_without_a_control_says_where_it_is() -> None:
    found = look({**BASE, "checks": ["nothing <= 1"]}, values_of(BASE))

    assert isinstance(found, Mistake)
    assert found.key is None
    assert found.text.startswith("checks")


def test_a_plan_that_cannot_run_is_a_mistake_of_the_whole_page() -> None:
    assert mistake(InfeasibleError("too few")) == Mistake(text="too few", key=None)


def test_an_empty_page_is_a_mistake_and_no_bug() -> None:
    assert isinstance(look({}, values_of({})), Mistake)


def test_two_scenarios_stand_side_by_side() -> None:
    other = {**BASE, "training": {**BASE["training"], "global_batch_size": 32}}

    compared = side_by_side([replace(run_of(result_of(each), name), name=name) for name, each in (("kept", BASE), ("now", other))])

    assert compared.labels == ("kept", "now")
    assert [row.key for row in compared.differences] == ["training.global_batch_size"]


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [("cluster.nodes", "100000", "800,000 GPUs are more than the 131,072"), ("strategy.tp", "2", "201 steps are more than the 200")],
)
def test_a_scenario_beyond_the_limits_of_the_page_is_not_built(key: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustersim.config.build.build", lambda _: pytest.fail("it is built"))
    base = BASE if key == "cluster.nodes" else {**BASE, "steps": 201}
    held: list[str | None] = list(values_of(base))
    held[[control.key for control in controls()].index(key)] = text

    with pytest.raises(LimitError, match=message):
        look(base, held)


def test_every_shipped_example_is_within_the_limits_of_the_page() -> None:
    for name in example_names():
        check_limits(load_scenario(example_path(name)))
