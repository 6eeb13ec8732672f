"""Whole training steps, and the fit of rates under load and host times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import JsonValue

from clustersim.apps.calibrate.fitting import (
    STEP,
    CalibrationPart,
    CalibrationTarget,
    Constants,
    Fit,
    MeasuredTime,
    Parameter,
    Predict,
    fit,
)
from clustersim.apps.calibrate.measurements import MeasuredFile, measured_file
from clustersim.apps.run.running import step_metrics
from clustersim.apps.validate.rows import step_time_of
from clustersim.apps.validate.sources import PublishedSource, read_source
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_of_generation, changed, constant
from clustersim.progress import advanced, phase
from clustersim.topology.cluster import FloatArray
from clustersim.workloads.reading.model_spec import MEASURED_SPEED

CONSTANTS: Final = ("gemm.under_load.default", "memory_fraction", "launch.dispatch", "launch.step")
"""Constants that steps inform and that kernels and collectives by themselves do not."""
SPREADS: Final[Mapping[str, float]] = {"gemm.under_load": 0.15, "memory_fraction": 0.15, "launch": 1.0, "gemm": 0.15, "attention": 0.3}
"""Standard deviation of the logarithm by which steps may move a constant, by the beginning of its name."""
OTHER_SPREAD: Final = 0.3
FLOOR_S: Final = 1e-6
NOT_SHARES: Final = ("launch.", "network.families.", "network.multiprocessors", "gemm.depth_overhead")
"""Constants that may be more than 1."""
LENGTHS: Final = ("half_length", "half_head_dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One measured step: the scenario that was run, and how long it took."""

    id: str
    source: str
    """Source of the row; the file without its folder."""
    scenario: Mapping[str, JsonValue]
    generation: str
    """Generation of its accelerators."""
    measured_s: float
    weight: float = 1.0


def steps_of(source: PublishedSource, *, quality: str = "B") -> list[MeasuredStep]:
    """Return the rows of a source as measured steps, those of at least some quality of which nothing that decides is hidden or given.

    Raises
    ------
    ScenarioError
        When the scenario of a row cannot be used, with its place in the file.
    """
    found: list[MeasuredStep] = []
    for index, row in enumerate(source.spec.rows):
        if row.quality > quality or row.hidden:
            continue
        scenario = source.scenario(index)
        try:
            built = build(load_scenario(scenario))
        except ScenarioError as error:
            raise source.located(error, index) from error
        if MEASURED_SPEED in dict(built.loaded.flags):
            continue
        found.append(
            MeasuredStep(
                id=row.id,
                source=source.spec.source_id,
                scenario=scenario,
                generation=built.cluster.node.accelerator.generation,
                measured_s=step_time_of(row.measured, built.plan.training, built.plan.n_ranks)[0],
            )
        )
    return found


def predicted_s(step: MeasuredStep, constants: Constants) -> float:
    """Return the predicted time of a step with some constants, by generation; shipped ones for generations that are not named."""
    built: Built = build(load_scenario(step.scenario), constants=constants)
    return step_metrics(built).step_time_s


class Predictions:
    """Predicted times of steps; each is simulated once for the same constants of its generation."""

    def __init__(self, steps: Sequence[MeasuredStep], on_prediction: Callable[[MeasuredStep, float], None] | None = None) -> None:
        self._steps = steps
        self._on_prediction = on_prediction
        self._seen: dict[str, list[tuple[Calibration, dict[int, float]]]] = {}

    def __call__(self, constants: Constants) -> FloatArray:
        """Return the times with some constants, in seconds."""
        times: list[float] = []
        for index, step in enumerate(self._steps):
            known = self._known(step.generation, constants[step.generation])
            if index not in known:
                known[index] = predicted_s(step, constants)
                if self._on_prediction is not None:
                    self._on_prediction(step, known[index])
            times.append(known[index])
            advanced(index + 1, len(self._steps))
        return np.array(times)

    def _known(self, generation: str, calibration: Calibration) -> dict[int, float]:
        """Return the known times of one generation: constants of one do not move the steps of another."""
        seen = self._seen.setdefault(generation, [])
        for other, times in seen:
            if other == calibration:
                return times
        seen.append((calibration, {}))
        return seen[-1][1]


def fit_steps(
    steps: Sequence[MeasuredStep],
    base: Constants | None = None,
    *,
    names: Sequence[str] = CONSTANTS,
    shared: Sequence[str] = (),
    predictions: Predict | None = None,
) -> Fit:
    """Return the best-fitting constants for measured steps, for each measured generation.

    Parameters
    ----------
    steps
        At least one; their weights count.
    base
        By generation, what is fitted from, and what stays where steps say nothing; shipped calibrations when left out.
    names
        Of the constants, as :func:`clustersim.hardware.calibrations.constant` takes them; each generation has its own.
    shared
        Those among the names for which all generations move by the same factor, such as costs of the host.
    predictions
        Where predicted times come from; each step is simulated when left out. :class:`clustersim.apps.calibrate.fit_steps.Slopes` is
        much faster where the same steps are fitted many times.

    Raises
    ------
    ScenarioError
        When there is no step, a name is not known, or scipy is not installed.
    """
    if not steps:
        raise ScenarioError("there is no step to fit to", hint="name sources with rows on this accelerator")
    generations = list(dict.fromkeys(step.generation for step in steps))
    start = {each: calibration_of_generation(each) for each in generations} | dict(base or {})
    predict = predictions or Predictions(tuple(steps))
    with phase("fit steps"):
        weights = [step.weight for step in steps]
        return fit(predict, [step.measured_s for step in steps], parameters(generations, names, shared), start, weights=weights)


def parameters(generations: Sequence[str], names: Sequence[str], shared: Sequence[str] = ()) -> tuple[Parameter, ...]:
    """Return what steps may move: every name for every generation, or once for all."""
    found: list[Parameter] = []
    for name in names:
        groups = [tuple(generations)] if name in shared else [(each,) for each in generations]
        for group in groups:
            spread = next((width for prefix, width in SPREADS.items() if name.startswith(prefix)), OTHER_SPREAD)
            most = float("inf") if name.startswith(NOT_SHARES) or name.endswith(LENGTHS) else 1.0
            constants = tuple((generation, name) for generation in group)
            found.append(Parameter(constants=constants, spread=spread, most=most, floor=FLOOR_S))
    return tuple(found)


def steps_part(paths: Sequence[str], target: CalibrationTarget) -> CalibrationPart:
    """Return the measured steps of some files, in the form of published sources, and the constants that they may move.

    Raises
    ------
    ScenarioError
        When a file cannot be used, or no row is of the accelerator's generation.
    """
    steps: list[MeasuredStep] = []
    notices: list[str] = []
    files: list[MeasuredFile] = []
    for path in paths:
        source = read_source(Path(path))
        files.append(measured_file(path))
        if source.spec.table is not None:
            files.append(measured_file(str(Path(path).parent / source.spec.table.file)))
        rows = steps_of(source)
        own = [step for step in rows if step.generation == target.generation]
        if len(own) < len(rows):
            notices.append(f"{Path(path).name}: {len(rows) - len(own)} steps on accelerators of other generations are left out")
        steps += own
    if not steps:
        raise ScenarioError(f"no step was measured on {target.generation}", hint="name sources with rows on this generation")

    names = {Path(path).stem: Path(path).name for path in paths}
    return CalibrationPart(
        name="steps",
        files=tuple(files),
        measured=tuple(MeasuredTime(file=names[step.source], what=step.id, time_s=step.measured_s) for step in steps),
        predict=Predictions(tuple(steps)),
        parameters=parameters([target.generation], CONSTANTS),
        notices=tuple(notices),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes:
    r"""Times of steps as :math:`\ln t_i = \ln t_{i0} + \sum_j J_{ij} \ln (c_j / b_j)`.

    Exact for a constant that all of a step is proportional to; off by some per cent where a constant moves what a step waits for. A fit
    with slopes is checked by simulating the steps that matter with its constants.
    """

    steps: tuple[MeasuredStep, ...]
    base: Constants
    names: tuple[str, ...]
    """Names of the constants that may move; each generation has its own."""
    times_s: FloatArray
    """With the base."""
    slopes: FloatArray
    """Sensitivity of each step (rows) to each name (columns), by the constant of its own generation."""

    def __call__(self, constants: Constants) -> FloatArray:
        """Return the times with some constants that differ from the base in the given names."""
        moved: dict[str, FloatArray] = {}
        for generation in dict.fromkeys(step.generation for step in self.steps):
            pairs = [(constant(constants[generation], name), constant(self.base[generation], name)) for name in self.names]
            moved[generation] = np.array([log(now / before) for now, before in pairs])
        shifts = np.array([moved[step.generation] for step in self.steps])
        return self.times_s * np.exp((self.slopes * shifts).sum(axis=1))

    def where(self, keep: Callable[[MeasuredStep], bool]) -> Slopes:
        """Return those of some of the steps, such as of all sources but one."""
        rows = [place for place, step in enumerate(self.steps) if keep(step)]
        return Slopes(
            steps=tuple(self.steps[place] for place in rows),
            base=self.base,
            names=self.names,
            times_s=self.times_s[rows],
            slopes=self.slopes[rows],
        )


def slopes_of(steps: Sequence[MeasuredStep], base: Constants, names: Sequence[str], *, predictions: Predictions | None = None) -> Slopes:
    """Return the slopes of some steps, from one simulation of each and one for each name.

    Parameters
    ----------
    base
        Calibrations by generation, for all generations of the steps.
    names
        Constants that are not zero in the base.
    predictions
        What has been simulated already is not simulated again.
    """
    predict = predictions or Predictions(tuple(steps))
    times_s = predict(base)
    columns: list[FloatArray] = []
    for name in names:
        # Downwards, where every share can go.
        there = {each: changed(calibration, {name: constant(calibration, name) * (1.0 - STEP)}) for each, calibration in base.items()}
        columns.append(np.log(predict(there) / times_s) / log(1.0 - STEP))
    return Slopes(steps=tuple(steps), base=base, names=tuple(names), times_s=times_s, slopes=np.array(columns).T.reshape(len(steps), -1))
