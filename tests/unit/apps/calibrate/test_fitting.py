"""Constants are found again from what was made with them, and stay where nothing is said of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from clustersim.apps.calibrate.fitting import CalibrationPart, Constants, MeasuredTime, Parameter, fit
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_of_generation, constant
from clustersim.topology.cluster import FloatArray
from tests.unit.apps.calibrate.making import TARGET

AMPERE, HOPPER = calibration_of_generation("ampere"), calibration_of_generation("hopper")
SIZES = np.array([1.0, 2.0, 5.0, 20.0])
MEMORY, STEP, DISPATCH = ("ampere", "memory_fraction"), ("ampere", "launch.step"), ("ampere", "launch.dispatch")


def predict(constants: Constants) -> FloatArray:
    """Return the times of streams of some seconds at the full bandwidth, behind what a step costs."""
    calibration = constants["ampere"]
    return SIZES / calibration.memory_fraction + calibration.launch.step_s


def parameter(*constants: tuple[str, str], spread: float = 1.0, most: float = float("inf"), floor: float = 0.0) -> Parameter:
    return Parameter(constants=constants, spread=spread, most=most, floor=floor)


def test_known_constants_are_found_again() -> None:
    def often(constants: Constants) -> FloatArray:
        return np.tile(predict(constants), 20)

    found = fit(often, np.tile(SIZES / 0.5 + 0.25, 20), [parameter(MEMORY, most=1.0), parameter(STEP, spread=3.0)], {"ampere": AMPERE})

    # To the corner of the absolute value: errors below 0.2 % hardly count.
    assert found.values[MEMORY] == pytest.approx(0.5, rel=2e-3)
    assert found.values[STEP] == pytest.approx(0.25, rel=2e-2)
    assert np.abs(found.errors).max() < 2e-3
    assert np.abs(found.errors_before).min() > 0.1


def test_one_wild_measurement_moves_nothing() -> None:
    measured = SIZES / 0.5
    measured[-1] *= 3.0

    found = fit(predict, measured, [parameter(MEMORY, most=1.0)], {"ampere": calibration_of_generation("ampere")})

    assert found.values[MEMORY] == pytest.approx(0.5, rel=0.02)


def test_a_constant_without_effect_stays_and_is_named() -> None:
    found = fit(predict, SIZES / 0.5, [parameter(MEMORY, most=1.0), parameter(DISPATCH)], {"ampere": AMPERE})

    assert found.kept == (DISPATCH,)
    assert DISPATCH not in found.values
    assert found.constants["ampere"].launch == AMPERE.launch


def test_a_narrow_prior_holds_what_few_measurements_ask_for() -> None:
    def found(spread: float) -> float:
        return fit(lambda constants: predict(constants)[:1], [1.0 / 0.5], [parameter(MEMORY, spread=spread)], {"ampere": AMPERE}).values[
            MEMORY
        ]

    free, held = found(1.0), found(0.01)

    assert free == pytest.approx(0.5, rel=0.01)
    assert AMPERE.memory_fraction * 0.97 < held < AMPERE.memory_fraction


def test_no_share_is_more_than_its_most() -> None:
    found = fit(predict, SIZES * 0.5, [parameter(MEMORY, most=1.0)], {"ampere": AMPERE})

    assert found.values[MEMORY] == 1.0


def test_constants_of_one_parameter_keep_their_proportions() -> None:
    pair = (("ampere", "launch.kernel"), ("ampere", "launch.dispatch"))

    found = fit(lambda constants: SIZES * constants["ampere"].launch.kernel_s, SIZES * 1e-5, [parameter(*pair)], {"ampere": AMPERE})

    kernel_s, dispatch_s = (found.values[each] for each in pair)
    assert kernel_s == pytest.approx(1e-5, rel=5e-3)
    assert dispatch_s / kernel_s == pytest.approx(AMPERE.launch.dispatch_s / AMPERE.launch.kernel_s, rel=1e-3)


def test_constants_that_keep_their_proportions_are_held_as_one() -> None:
    pair = (("ampere", "launch.kernel"), ("ampere", "launch.dispatch"))
    part = CalibrationPart(
        name="launch",
        files=(),
        measured=(MeasuredTime(file="a", what="a step", time_s=1.0), MeasuredTime(file="a", what="another step", time_s=2.0)),
        predict=lambda constants: SIZES[:2] / constants["ampere"].memory_fraction + constants["ampere"].launch.kernel_s,
        parameters=(parameter(MEMORY, most=1.0), parameter(*pair)),
    )

    assert part.fitted(TARGET, AMPERE).held == ("launch.kernel with launch.dispatch",)


def test_a_constant_that_was_zero_can_grow() -> None:
    start = ("hopper", "network.families.exchange.start")
    assert constant(HOPPER, start[1]) == 0.0

    found = fit(
        lambda constants: SIZES + constant(constants["hopper"], start[1]),
        SIZES + 0.5,
        [parameter(start, spread=3.0, floor=0.1)],
        {"hopper": HOPPER},
    )

    assert found.values[start] == pytest.approx(0.5, rel=0.05)


def test_weights_count() -> None:
    measured = np.concatenate((SIZES[:2] / 0.5, SIZES[2:] / 0.6))

    low, high = (
        fit(predict, measured, [parameter(MEMORY)], {"ampere": AMPERE}, weights=weights).values[MEMORY]
        for weights in ([10.0, 10.0, 1.0, 1.0], [1.0, 1.0, 10.0, 10.0])
    )

    assert low < 0.52
    assert high > 0.58


def test_what_is_written_has_four_digits_and_errors_are_of_that() -> None:
    found = fit(predict, SIZES / 0.54321, [parameter(MEMORY)], {"ampere": AMPERE})

    (value,) = found.values.values()
    assert value == float(f"{value:.4g}")
    assert found.errors == pytest.approx(predict(found.constants) / (SIZES / 0.54321) - 1.0, rel=1e-9)


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)

    with pytest.raises(ScenarioError) as caught:
        fit(predict, SIZES, [parameter(MEMORY)], {"ampere": AMPERE})

    assert caught.value.hint == "install it with: pip install 'clustersim[calibrate]'"
