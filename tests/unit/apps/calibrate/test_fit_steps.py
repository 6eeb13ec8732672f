"""Whole steps: constants are found again, generations do not disturb each other, and no prediction is asked for twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustersim.apps.calibrate.fit_steps import (
    CONSTANTS,
    MeasuredStep,
    Predictions,
    Slopes,
    fit_steps,
    parameters,
    predicted_s,
    slopes_of,
    steps_of,
    steps_part,
)
from clustersim.apps.calibrate.fitting import CalibrationTarget
from clustersim.apps.validate.sources import read_source
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_of_generation, changed, constant
from clustersim.hardware.catalog import load_accelerator

HOPPER, AMPERE = calibration_of_generation("hopper"), calibration_of_generation("ampere")
MODEL = {
    "num_hidden_layers": 4,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def scenario(node: str, hidden: int = 2048, batch: int = 8, micro: int = 1) -> dict[str, object]:
    return {
        "model": MODEL | {"hidden_size": hidden, "intermediate_size": 4 * hidden},
        "cluster": {"node": node, "nodes": 1},
        "training": {"global_batch_size": batch, "micro_batch_size": micro},
    }


def steps(generation: str, node: str, **truth: float) -> list[MeasuredStep]:
    """Return steps as they would be measured with some constants."""
    base = calibration_of_generation(generation)
    calibration = changed(base, {name.replace("__", "."): value for name, value in truth.items()})
    found: list[MeasuredStep] = []
    for hidden in (512, 2048, 4096):
        for micro in (1, 4):
            step = MeasuredStep(
                id=f"{generation}-{hidden}-{micro}",
                source="made-up",
                scenario=scenario(node, hidden, 8 * micro * 2, micro),  # pyright: ignore[reportArgumentType]
                generation=generation,
                measured_s=1.0,
            )
            found.append(replace(step, measured_s=predicted_s(step, {generation: calibration})))
    return found


@pytest.mark.slow
def test_known_constants_are_found_again() -> None:
    made = steps("hopper", "dgx-h100", gemm__under_load__default=0.7, memory_fraction=0.7, launch__dispatch=80e-6, launch__step=0.02)

    found = fit_steps(made)

    values = {name: value for (_, name), value in found.values.items()}
    assert abs(found.errors).mean() < 0.01
    assert abs(found.errors_before).mean() > 0.1
    assert values["launch.dispatch"] == pytest.approx(80e-6, rel=0.05)
    assert values["launch.step"] == pytest.approx(0.02, rel=0.05)
    assert values["gemm.under_load.default"] == pytest.approx(0.7, rel=0.03)
    assert set(values) <= set(CONSTANTS)


def test_what_is_not_asked_for_stays() -> None:
    found = fit_steps(steps("hopper", "dgx-h100", launch__step=0.03), names=["launch.step"])

    assert found.values["hopper", "launch.step"] == pytest.approx(0.03, rel=0.01)
    assert changed(found.constants["hopper"], {"launch.step": HOPPER.launch.step_s}) == HOPPER


@pytest.mark.slow
def test_generations_are_fitted_apart_unless_they_share_a_constant() -> None:
    made = [*steps("hopper", "dgx-h100", launch__step=0.03), *steps("ampere", "dgx-a100-80g", launch__step=0.005)]

    apart = fit_steps(made, names=["launch.step"])
    together = fit_steps(made, names=["launch.step"], shared=["launch.step"])

    assert apart.values["hopper", "launch.step"] == pytest.approx(0.03, rel=0.01)
    assert apart.values["ampere", "launch.step"] == pytest.approx(0.005, rel=0.02)
    ratios = [
        together.values[each, "launch.step"] / constant(calibration_of_generation(each), "launch.step") for each in ("hopper", "ampere")
    ]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)


def test_no_step_is_simulated_twice_with_the_same_constants() -> None:
    made = [*steps("hopper", "dgx-h100", launch__step=0.03)[:1], *steps("ampere", "dgx-a100-80g", launch__step=0.03)[:1]]
    asked: list[tuple[str, float]] = []

    predictions = Predictions(made, lambda step, time_s: asked.append((step.id, time_s)))

    fit_steps(made, names=["launch.step"], predictions=predictions)

    assert Counter(asked).most_common(1)[0][1] == 1
    assert {name for name, _ in asked} == {step.id for step in made}


def test_a_base_of_ones_own_is_where_it_starts() -> None:
    made = steps("hopper", "dgx-h100")
    own = changed(HOPPER, {"launch.step": 0.05})

    found = fit_steps(made, {"hopper": own}, names=["memory_fraction"])

    assert found.constants["hopper"].launch.step_s == 0.05


def test_shares_end_at_one_and_times_do_not() -> None:
    limits = {parameter.constants[0][1]: parameter.most for parameter in parameters(["hopper"], [*CONSTANTS, "gemm.depth_overhead"])}

    assert limits == {
        "gemm.under_load.default": 1.0,
        "memory_fraction": 1.0,
        "launch.dispatch": np.inf,
        "launch.step": np.inf,
        "gemm.depth_overhead": np.inf,
    }


def test_no_steps_are_refused() -> None:
    with pytest.raises(ScenarioError, match="there is no step to fit to"):
        fit_steps([])


def test_rows_of_a_shipped_source_are_steps() -> None:
    found = steps_of(read_source("fms-fsdp"))

    assert {step.generation for step in found} == {"ampere", "hopper"}
    assert all(step.measured_s > 0.0 and step.source == "fms-fsdp" for step in found)
    assert len(steps_of(read_source("fms-fsdp"), quality="A")) <= len(found)


SOURCE = """\
source_id: mine
title: My steps
urls: [https://example.org]
retrieved: 2026-11-21
common:
  model: llama3-8b
  cluster: {node: dgx-h100, nodes: 1}
  training: {global_batch_size: 8, seq_length: 8192}
  strategy: {tp: 8}
rows:
  - {id: one, source: {table: notes, row: "1"}, quality: A, measured: {step_time: 3 s}, scenario: {strategy: {tp: 8}}}
"""


def test_a_file_of_steps_is_a_part_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SOURCE, encoding="utf-8")

    part = steps_part([str(path)], CalibrationTarget(accelerator=load_accelerator("h100-sxm5-80g"), base=HOPPER))

    assert [(each.file, each.what, each.time_s) for each in part.measured] == [("mine.yaml", "one", 3.0)]
    assert [file.name for file in part.files] == ["mine.yaml"]


def test_steps_of_another_generation_alone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SOURCE, encoding="utf-8")

    with pytest.raises(ScenarioError, match="no step was measured on ampere"):
        steps_part([str(path)], CalibrationTarget(accelerator=load_accelerator("a100-sxm4-80g"), base=AMPERE))


def test_a_mistake_in_a_scenario_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SOURCE.replace("scenario: {strategy: {tp: 8}}", "scenario: {strategy: {tp: 7}}"), encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        steps_of(read_source(path))

    assert caught.value.field == "rows.0.scenario.strategy.tp"
    assert caught.value.place is not None
    assert caught.value.place.line == 11


NAMES = ("gemm.under_load.default", "launch.step")
BASE = {each: changed(calibration_of_generation(each), {"launch.step": 0.01}) for each in ("hopper", "ampere")}
NODES = {"hopper": "dgx-h100", "ampere": "dgx-a100-80g"}


def step(generation: str, hidden: int, source: str) -> MeasuredStep:
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
    return MeasuredStep(id=f"{generation}-{hidden}", source=source, scenario=scenario, generation=generation, measured_s=1.0)


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
