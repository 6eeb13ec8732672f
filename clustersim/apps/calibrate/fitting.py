"""Parts of a calibration, and their fit to measured times: least absolute logarithms, with a pull towards the former values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from math import expm1, inf, log1p
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.apps.calibrate.measurements import MeasuredFile
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import changed, constant
from clustersim.hardware.models import Accelerator
from clustersim.kernels.kernel_model import KernelModel
from clustersim.topology.cluster import FloatArray

if TYPE_CHECKING:
    from types import ModuleType

Constants = Mapping[str, Calibration]
"""By generation of accelerators."""
Predict = Callable[[Constants], FloatArray]
"""Returns the predicted time of each measurement, in seconds."""

NOISE: Final = 0.05
"""Spread of measured times around predicted ones: the weight of a constant's prior."""
CORNER: Final = 0.002
"""Errors below it count by their square, so that least absolute errors have a slope everywhere."""
STEP: Final = 0.01
"""Relative step of a constant by which its effect is found."""
DIGITS: Final = 4
"""Digits of a fitted constant, as written; residuals are those of the written value."""
EFFECT: Final = 1e-9
"""A sensitivity below it is none."""
PER_CONSTANT: Final = 2
"""Different measurements for each constant that is fitted: with as many constants as measurements all would be met, whatever they are.

One constant is fitted to a single measurement too, in doubt.
"""
MOST_EVALUATIONS: Final = 40
TOLERANCE: Final = 1e-3
"""Relative gain of the objective below which a fit ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One free parameter: a constant, or several that keep their proportions."""

    constants: tuple[tuple[str, str], ...]
    """(generation, name) of each."""
    spread: float
    """Standard deviation of the logarithm: how far it may be from the base where measurements say nothing."""
    most: float = inf
    """No constant may be more."""
    floor: float = 0.0
    """Unit in which a constant that is zero in the base is counted."""
    tried_at_most: bool = False
    """Whether the fit also starts from the maximum: a tile that is never chosen has no effect."""

    def values(self, base: Constants, x: float) -> dict[str, dict[str, float]]:
        """Return the values at a point, by generation and name; at 0 those of the base.

        ``v = b + u (e^x - 1)`` with u the base value b, or the floor where that is zero: x is then the logarithm of the factor.
        """
        found: dict[str, dict[str, float]] = {}
        for generation, name in self.constants:
            before = constant(base[generation], name)
            found.setdefault(generation, {})[name] = before + (before or self.floor) * expm1(x)
        return found

    def limits(self, base: Constants) -> tuple[float, float]:
        """Return the least and the largest point."""
        before = [constant(base[generation], name) for generation, name in self.constants]
        high = min((log1p((self.most - value) / (value or self.floor)) for value in before), default=inf) if self.most < inf else inf
        return (0.0 if 0.0 in before else -inf), max(high, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Constants that were fitted, and the errors before and after."""

    constants: dict[str, Calibration]
    values: dict[tuple[str, str], float]
    """By generation and name: what was fitted, rounded as it is written."""
    kept: tuple[tuple[str, str], ...]
    """(generation, name) of what could have been fitted and has no effect on anything measured."""
    errors_before: FloatArray
    """Predicted over measured time, less one, with the base."""
    errors: FloatArray
    """The same with the fitted constants."""
    held: tuple[str, ...] = ()
    """Names of constants that the measurements would move and are too few for; those that keep their proportions in one text."""


def fit(
    predict: Predict,
    measured_s: Sequence[float] | FloatArray,
    parameters: Sequence[Parameter],
    base: Constants,
    *,
    weights: Sequence[float] | None = None,
) -> Fit:
    r"""Return the constants with the least error of predicted times.

    Least is :math:`\sum_i w_i |\ln(t_i / m_i)| / s + \tfrac12 \sum_j (x_j / \sigma_j)^2`, with :math:`x_j` the logarithm of the factor on
    constant j: the most probable constants where errors are Laplace of scale s and constants log-normal around the base. Found by
    Gauss-Newton steps within limits, with sensitivities from differences.

    Parameters
    ----------
    measured_s
        At least one time.
    weights
        Of the measurements; 1 each when left out.
    """
    measured = np.array(measured_s, dtype=np.float64)
    weight = np.ones_like(measured) if weights is None else np.array(weights, dtype=np.float64)
    spreads = np.array([parameter.spread for parameter in parameters])
    problem = _Problem(predict=predict, measured=measured, parameters=tuple(parameters), base=base)
    at_base = problem.errors(np.zeros(len(parameters)))
    optimize = _scipy("optimize")
    scale = np.concatenate((weight / NOISE, np.ones_like(spreads)))
    lows, highs = zip(*(parameter.limits(base) for parameter in parameters), strict=True)

    def residuals(x: FloatArray) -> FloatArray:
        return np.concatenate((problem.errors(x), x / spreads))

    def slopes(x: FloatArray) -> FloatArray:
        return np.vstack((problem.sensitivities(x, np.array(highs)), np.diag(1.0 / spreads)))

    tried = np.array([parameter.tried_at_most for parameter in parameters])
    starts = [np.zeros(len(parameters)), *([np.where(tried, highs, 0.0)] if tried.any() else [])]
    ends = [
        optimize.least_squares(
            residuals,
            start,
            jac=slopes,
            bounds=(np.array(lows) - EFFECT, np.array(highs) + EFFECT),
            x_scale=spreads,
            loss=partial(_loss, scale, len(measured)),
            max_nfev=MOST_EVALUATIONS,
            ftol=TOLERANCE,
            xtol=TOLERANCE,
        )
        for start in starts
    ]
    found = min(ends, key=lambda end: float(end.cost))
    return problem.result(np.clip(found.x, lows, highs), found.jac, at_base)


def _loss(scale: FloatArray, n_measured: int, squares: FloatArray) -> FloatArray:
    """Return the loss of squared residuals with its first two derivatives: absolute for measurements, square for constants."""
    root = np.sqrt(CORNER**2 + squares)
    own = np.arange(len(squares)) < n_measured
    rho = np.where(own, 2.0 * scale * (root - CORNER), squares)
    first = np.where(own, scale / root, 1.0)
    second = np.where(own, -0.5 * scale / root**3, 0.0)
    return np.array([rho, first, second])


def carried(
    predict: Predict, measured_s: Sequence[float], parameters: Sequence[Parameter], base: Constants, *, most: int
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """Return the parameters that measurements can determine, and those that they are too few for.

    At most so many of those with an effect are determined: each time the one whose effect, in units of its spread, is the largest beside
    the effects of those before it (a QR decomposition with pivoted columns).
    """
    problem = _Problem(predict=predict, measured=np.array(measured_s, dtype=np.float64), parameters=tuple(parameters), base=base)
    highs = np.array([parameter.limits(base)[1] for parameter in parameters])
    tried = np.array([parameter.tried_at_most for parameter in parameters])
    starts = [np.zeros(len(parameters)), *([np.where(tried, highs, 0.0)] if tried.any() else [])]
    effects = np.vstack([problem.sensitivities(start, highs) for start in starts]) * [parameter.spread for parameter in parameters]
    moving = [int(place) for place in np.flatnonzero(np.abs(effects).max(axis=0) >= EFFECT)]
    if len(moving) <= most:
        return tuple(parameters), ()
    order: list[int] = _scipy("linalg").qr(effects[:, moving], mode="r", pivoting=True)[1].tolist()
    chosen = [sorted(moving[place] for place in places) for places in (order[:most], order[most:])]
    free, held = (tuple(parameters[place] for place in places) for places in chosen)
    return free, held


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    predict: Predict
    measured: FloatArray
    parameters: tuple[Parameter, ...]
    base: Constants
    known: dict[bytes, FloatArray] = field(default_factory=dict[bytes, FloatArray])

    def constants(self, values: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Calibration]:
        found = dict(self.base)
        for by_generation in values:
            for generation, named in by_generation.items():
                found[generation] = changed(found[generation], named)
        return found

    def errors(self, x: FloatArray) -> FloatArray:
        """Return the logarithms of predicted over measured times; the sensitivities of a point are computed after its errors."""
        if x.tobytes() not in self.known:
            self.known[x.tobytes()] = self._errors(x)
        return self.known[x.tobytes()]

    def _errors(self, x: FloatArray) -> FloatArray:
        values = [parameter.values(self.base, float(at)) for parameter, at in zip(self.parameters, x, strict=True)]
        return np.log(self.predict(self.constants(values)) / self.measured)

    def sensitivities(self, x: FloatArray, highs: FloatArray) -> FloatArray:
        here, columns = self.errors(x), list[FloatArray]()
        for place in range(len(x)):
            step = STEP if x[place] + STEP <= highs[place] else -STEP
            there = x.copy()
            there[place] += step
            columns.append((self.errors(there) - here) / step)
        return np.array(columns).T.reshape(len(here), len(x))

    def result(self, x: FloatArray, sensitivities: FloatArray, at_base: FloatArray) -> Fit:
        """Return what was found, rounded."""
        effects = np.abs(sensitivities[: len(self.measured)]).max(axis=0)
        values: dict[tuple[str, str], float] = {}
        kept: list[tuple[str, str]] = []
        for parameter, at, effect in zip(self.parameters, x, effects, strict=True):
            if effect < EFFECT and abs(at) < EFFECT:
                kept += parameter.constants
                continue
            for generation, named in parameter.values(self.base, float(at)).items():
                values |= {(generation, name): min(rounded(value), parameter.most) for name, value in named.items()}
        constants = self.constants([{generation: {name: value}} for (generation, name), value in values.items()])
        after = np.log(self.predict(constants) / self.measured)
        return Fit(constants=constants, values=values, kept=tuple(kept), errors_before=np.expm1(at_base), errors=np.expm1(after))


def rounded(value: float) -> float:
    """Return a number as it is written, to four digits.

    Examples
    --------
    >>> rounded(0.123456), rounded(5.43219e-05), rounded(0.0)
    (0.1235, 5.432e-05, 0.0)
    """
    return float(f"{value:.{DIGITS}g}")


def _scipy(module: str) -> ModuleType:
    try:
        return import_module(f"scipy.{module}")
    except ImportError as error:
        hint = "install it with: pip install 'clustersim[calibrate]'"
        raise ScenarioError("fitting needs scipy, which is not installed", hint=hint) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTarget:
    """The calibration that is made."""

    accelerator: Accelerator
    base: Calibration
    """Calibration that holds for all that is not measured."""

    @property
    def generation(self) -> str:
        """The generation of the accelerator, which that of the base need not be."""
        return self.accelerator.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTime:
    """One measured time."""

    file: str
    """Without its folder."""
    what: str
    """For a person."""
    time_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPart:
    """Measurements of one kind, and what they are fitted with."""

    name: str
    files: tuple[MeasuredFile, ...]
    measured: tuple[MeasuredTime, ...]
    predict: Predict
    parameters: tuple[Parameter, ...]
    notices: tuple[str, ...] = ()
    """Notes on what was left out, or taken for granted."""

    @property
    def n_unlike(self) -> int:
        """Number of measurements that are no repetitions of others."""
        return len({each.what for each in self.measured})

    def fitted(self, target: CalibrationTarget, base: Calibration) -> Fit:
        """Return the constants of this part, fitted from some base: no more than one for two unlike measurements."""
        constants, times_s = {target.generation: base}, [each.time_s for each in self.measured]
        free, held = carried(self.predict, times_s, self.parameters, constants, most=max(self.n_unlike // PER_CONSTANT, 1))
        found = fit(self.predict, times_s, free, constants, weights=[each.weight for each in self.measured])
        return replace(found, held=tuple(" with ".join(name for _, name in each.constants) for each in held))


def parameter(target: CalibrationTarget, *names: str, spread: float, most: float = float("inf"), floor: float = 0.0) -> Parameter:
    """Return a free parameter of the calibration; several names keep their proportions."""
    return Parameter(constants=tuple((target.generation, name) for name in names), spread=spread, most=most, floor=floor)


def in_bursts(target: CalibrationTarget, calibration: Calibration, precision: str) -> KernelModel:
    """Return the kernels of an accelerator in measurements of seconds, before power holds it back."""
    fresh = replace(calibration, gemm=replace(calibration.gemm, under_load={"default": 1.0}))
    peaks = target.accelerator.peak_flops_per_s
    attention = precision if precision in ("fp16", "bf16") else next(name for name in ("bf16", "fp16", "fp32") if name in peaks)
    return KernelModel(accelerator=target.accelerator, calibration=fresh, precision=precision, attention_precision=attention)
