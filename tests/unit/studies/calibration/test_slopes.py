"""Slopes stand for simulations near the constants where they were taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_of_generation
from clustersim.hardware.constant_names import changed
from clustersim.studies.calibration.slopes import Slopes, slopes_of
from clustersim.studies.calibration.steps import Predictions, Step, fit_steps

NAMES = ("gemm.under_load.default", "launch.step")
BASE = {each: changed(calibration_of_generation(each), {"launch.step": 0.01}) for each in ("hopper", "ampere")}
NODES = {"hopper": "dgx-h100", "ampere": "dgx-a100-80g"}


def step(generation: str, hidden: int, source: str) -> Step:
    model = {
        "num_hidden_layers": 4,
        "hidden_size": hidden,
        "num_attention_heads": 16,
        "intermediate_size": 4 * hidden,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    cluster = {"node": NODES[generation], "nodes": 1}
    training = {"global_batch_size": 64, "micro_batch_size": 4}
    scenario = {"model": model, "cluster": cluster, "training": training}
    return Step(id=f"{generation}-{hidden}", source=source, scenario=scenario, generation=generation, measured_s=1.0)


STEPS = (step("hopper", 2048, "one"), step("hopper", 4096, "two"), step("ampere", 2048, "two"), step("ampere", 4096, "three"))


@pytest.fixture(scope="module")
def slopes() -> Slopes:
    return slopes_of(STEPS, BASE, NAMES)


def test_near_the_base_they_are_what_a_simulation_gives(slopes: Slopes) -> None:
    there = {
        "hopper": changed(BASE["hopper"], {"gemm.under_load.default": 0.75, "launch.step": 0.012}),
        "ampere": changed(BASE["ampere"], {"launch.step": 0.008}),
    }

    # Log-linear: the second order of changes of a tenth and a fifth.
    assert slopes(there) == pytest.approx(Predictions(STEPS)(there), rel=1e-2)
    assert slopes(BASE) == pytest.approx(slopes.times_s, rel=1e-12)


def test_a_faster_product_is_a_shorter_step_and_a_longer_host_time_a_longer_one(slopes: Slopes) -> None:
    assert slopes.slopes.shape == (4, 2)
    assert (slopes.slopes[:, 0] < 0.0).all()
    assert (slopes.slopes[:, 1] > 0.0).all()
    # Parts of a step: no constant moves it by more than its own factor.
    assert np.abs(slopes.slopes).sum(axis=1).max() <= 1.0 + 1e-2


def test_a_source_can_be_left_out(slopes: Slopes) -> None:
    left = slopes.where(lambda step: step.source != "two")

    assert [step.id for step in left.steps] == ["hopper-2048", "ampere-4096"]
    assert left(BASE) == pytest.approx(slopes.times_s[[0, 3]], rel=1e-12)


def test_a_fit_with_slopes_finds_what_a_fit_with_simulations_finds(slopes: Slopes) -> None:
    truth = {each: changed(calibration, {"launch.step": 1.5 * calibration.launch.step_s}) for each, calibration in BASE.items()}
    measured = Predictions(STEPS)(truth).tolist()
    made = [replace(each, measured_s=time_s) for each, time_s in zip(STEPS, measured, strict=True)]

    fast, slow = (fit_steps(made, BASE, names=["launch.step"], predictions=given) for given in (slopes, None))

    for generation, calibration in truth.items():
        assert slow.values[generation, "launch.step"] == pytest.approx(calibration.launch.step_s, rel=0.02)
        assert fast.values[generation, "launch.step"] == pytest.approx(calibration.launch.step_s, rel=0.15)


def test_nothing_is_simulated_that_was_simulated_before() -> None:
    asked: list[str] = []
    predictions = Predictions(STEPS[:1], lambda step, _: asked.append(step.id))

    slopes_of(STEPS[:1], BASE, NAMES, predictions=predictions)
    slopes_of(STEPS[:1], BASE, NAMES, predictions=predictions)

    assert len(asked) == 1 + len(NAMES)


def test_a_constant_that_there_is_not_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"there is no constant 'launch\.steps'"):
        slopes_of(STEPS[:1], BASE, ["launch.steps"])
