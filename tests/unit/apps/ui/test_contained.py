"""Requests of a browser."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.apps.ui.contained import check_contained
from clustersim.config.load import example_names, load_scenario
from clustersim.errors import ScenarioError

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "training": {"global_batch_size": 64},
}


def test_every_example_is_let_in() -> None:
    for name in example_names():
        check_contained(load_scenario(name).document.data)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "mine.yaml"}, "model"),
        ({"model": "../secret"}, "model"),
        ({"model": "/etc/passwd"}, "model"),
        ({"model": "1/etc"}, "model"),
        ({"model": "hf:config"}, "model"),
        ({"cluster": {"node": "dgx-h100", "calibration": "mine"}}, "cluster.calibration"),
        ({"cluster": {"node": "mine.yml"}}, "cluster.node"),
        ({"strategy": {"schedule": "own.csv"}}, "strategy.schedule"),
        ({"strategy": {"expert_load": "load.CSV"}}, "strategy.expert_load"),
        ({"cost": {"prices": "prices.yaml"}}, "cost.prices"),
        ({"cost": {"prices": ["rented-2026", "..\\prices"]}}, "cost.prices.1"),
        ({"jobs": [{"nodes": 1, "scenario": "starter"}]}, "jobs.0.scenario"),
        ({"jobs": [{"nodes": 1, "scenario": {"model": "a/b"}}]}, "jobs.0.scenario.model"),
        ({"name": "~/runs"}, "name"),
    ],
)
def test_a_scenario_that_names_a_file_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ScenarioError, match="no file is read here") as caught:
        check_contained({**BASE, **change})

    assert caught.value.field == field


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": {"node": "dgx-h100", "nics": {"bandwidth": "400 Gbit/s"}, "jitter": "3 %"}},
        {"cluster": {"node": "dgx-h100", "links": [{"between": ["node3/nic1", "leaf1"], "state": "down"}]}},
        {"background": [{"links": ["leaf0/up"], "load": "10 GB/s"}]},
        {"cost": {"gpu_hour": "2.50 USD", "electricity": "0.08 USD/kWh"}},
        {"checks": ["step_time_s / 2 <= 1"]},
        {"model": {"num_hidden_layers": 4, "hidden_size": 512}},
    ],
)
def test_quantities_and_links_may_have_a_slash(change: dict[str, Any]) -> None:
    check_contained({**BASE, **change})


def test_a_model_that_is_not_shipped_is_refused_even_where_a_file_has_its_name(tmp_path, monkeypatch) -> None:
    (tmp_path / "llama3-8c").write_text("num_hidden_layers: 1\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ScenarioError, match="there is no model 'llama3-8c'") as caught:
        check_contained({**BASE, "model": "llama3-8c"})

    assert caught.value.hint == "did you mean 'llama3-8b'?"
