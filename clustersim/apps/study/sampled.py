"""Sensitivity of the number and the decision to several figures that vary at once: Morris and Sobol; the only file that knows SALib.

Morris' elementary effects rank figures with few runs: ``mu_star`` is the mean size of a step's effect, ``sigma`` its spread, which is large
where the effect depends on the other figures [1]_. Sobol's indices divide the variance: ``S1`` is what a figure explains by itself, ``ST``
what would be missing without it [2]_.

References
----------
.. [1] M. D. Morris, "Factorial sampling plans for preliminary computational experiments", Technometrics 33 (1991) 161.
.. [2] A. Saltelli et al., "Variance based sensitivity analysis of model output", Computer Physics Communications 181 (2010) 259.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false
# SALib declares no types; what it returns is turned into numbers on the spot.

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from clustersim.apps.study.point import Point, evaluated
from clustersim.apps.study.sensitivity import Input
from clustersim.apps.study.what_if_cases import WhatIfQuestion
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.progress import phase

Method = Literal["morris", "sobol"]
METHODS: Final[tuple[Method, ...]] = ("morris", "sobol")
SAMPLES: Final[Mapping[Method, int]] = {"morris": 8, "sobol": 32}
"""Default number of trajectories and of base samples."""
MEASURES: Final[Mapping[Method, tuple[str, str]]] = {"morris": ("mu_star", "sigma"), "sobol": ("S1", "ST")}
MOST_RUNS: Final = 20_000

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one figure."""

    input: str
    low: str
    high: str
    of_value: Mapping[str, float]
    """By the name of the measure: ``mu_star`` and ``sigma``, or ``S1`` and ``ST``."""
    of_margin: Mapping[str, float] | None
    """The same of how far the best case is ahead; None without other cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """All figures, the one that does most first, as ``what-if --json`` has them."""

    method: Method
    samples: int
    runs: int
    best_fraction: float | None
    """Share of the samples in which the best case stays the best; None without other cases."""
    inputs: tuple[Effect, ...]


def check_method(name: str) -> Method:
    """Return a method by its name, if it can be used here.

    Raises
    ------
    ScenarioError
        When there is none, or SALib is not installed.
    """
    for method in METHODS:
        if method == name:
            if find_spec("SALib") is None:
                raise ScenarioError("SALib is not installed", field="--method", hint="pip install 'clustersim[sensitivity]'")
            return method
    raise ScenarioError(f"'{name}' is no method", field="--method", hint=choices_hint(name, ("one", *METHODS)))


def sampled(
    question: WhatIfQuestion, inputs: Sequence[Input], best: str, method: Method, *, samples: int | None = None, jobs: int | None = 1
) -> Sampled:
    """Return what each figure does where all vary at once, each evenly between its ends.

    Parameters
    ----------
    best
        The case whose number is meant, and whose lead over the best of the others.
    samples
        Trajectories of Morris, or base samples of Sobol (a power of two).

    Raises
    ------
    ScenarioError
        When a sample cannot run, or there would be too many runs.
    """
    n_base = samples or SAMPLES[method]
    if method == "sobol" and n_base & (n_base - 1):
        raise ScenarioError(f"{n_base} is no power of two", field="--samples", hint="Sobol's sequence wants such as 32 or 64")
    n_rows = n_base * (len(inputs) + (1 if method == "morris" else 2))
    if n_rows * len(question.cases) > MOST_RUNS:
        raise ScenarioError(f"{n_rows * len(question.cases):,} runs are more than {MOST_RUNS:,}", field="--samples", hint="take fewer")
    problem: dict[str, object] = {
        "num_vars": len(inputs),
        "names": [each.name for each in inputs],
        "bounds": [[each.span.low, each.span.high] for each in inputs],
    }
    rows = _rows(problem, method, n_base, question.base.seed)
    numbers = _numbers(question, inputs, rows, jobs)
    others = [each for name, each in numbers.items() if name != best]
    of_value = _measures(problem, method, rows, numbers[best], question.base.seed)
    of_margin, stays = [None] * len(inputs), None
    if others:
        sign = 1.0 if question.objective.higher_is_better else -1.0
        margin: FloatArray = sign * numbers[best] - np.max(np.stack([sign * each for each in others]), axis=0)
        of_margin = _measures(problem, method, rows, margin, question.base.seed)
        stays = float(np.mean(margin >= 0.0))
    effects = [
        Effect(input=each.name, low=each.ends[0], high=each.ends[1], of_value=value, of_margin=lead)
        for each, value, lead in zip(inputs, of_value, of_margin, strict=True)
    ]
    measure = "mu_star" if method == "morris" else "ST"
    effects.sort(key=lambda effect: (-effect.of_value[measure], effect.input))
    return Sampled(method=method, samples=len(rows), runs=len(rows) * len(question.cases), best_fraction=stays, inputs=tuple(effects))


def _rows(problem: dict[str, object], method: Method, n_base: int, seed: int) -> FloatArray:
    from SALib.sample import morris, sobol

    if method == "morris":
        return np.asarray(morris.sample(problem, n_base, seed=seed), dtype=np.float64)
    return np.asarray(sobol.sample(problem, n_base, calc_second_order=False, seed=seed), dtype=np.float64)


def _numbers(question: WhatIfQuestion, inputs: Sequence[Input], rows: FloatArray, jobs: int | None) -> dict[str, FloatArray]:
    """Return the number of each case at each sample."""
    points: list[Point] = []
    for case in question.cases:
        for row in rows.tolist():
            values: dict[str, Data] = dict(case.values)
            for each, number in zip(inputs, row, strict=True):
                values |= each.values(number)
            points.append(replace(case, values=values))
    found: dict[str, list[float]] = {case.name: [] for case in question.cases}
    with phase("vary all figures at once"):
        for each in evaluated(question.base, points, jobs=jobs):
            number, name = question.objective.number(each), each.point.name
            if number is None or each.outcome.status != "ok":
                reason = each.outcome.reason or f"'{question.objective.quantity.text}' has no value"
                raise ScenarioError(f"case {name} does not run at every sample: {reason}", field="--sensitivity", hint="narrow the ranges")
            found[name].append(number)
    return {name: np.array(numbers) for name, numbers in found.items()}


def _measures(problem: dict[str, object], method: Method, rows: FloatArray, numbers: FloatArray, seed: int) -> list[dict[str, float]]:
    from SALib.analyze import morris, sobol

    names, n_inputs = MEASURES[method], rows.shape[1]
    if np.ptp(numbers) <= 1e-12 * np.max(np.abs(numbers)):
        # Nothing varies, and SALib would divide by that.
        return [dict.fromkeys(names, 0.0) for _ in range(n_inputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "morris":
            found = morris.analyze(problem, rows, numbers, seed=seed)
        else:
            found = sobol.analyze(problem, numbers, calc_second_order=False, seed=seed)
    measures = {name: np.asarray(found[name], dtype=np.float64) for name in names}
    return [{name: float(values[at]) for name, values in measures.items()} for at in range(n_inputs)]
