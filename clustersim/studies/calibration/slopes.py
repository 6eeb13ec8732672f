"""Predicted times near some constants, from their slopes: what cross-validation asks of the same steps again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from clustersim.hardware.constant_names import changed, constant
from clustersim.studies.calibration.fitting import STEP, Constants
from clustersim.studies.calibration.steps import Predictions, Step
from clustersim.topology.cluster import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes:
    r"""Times of steps as :math:`\ln t_i = \ln t_{i0} + \sum_j J_{ij} \ln (c_j / b_j)`.

    Exact for a constant that all of a step is proportional to; off by some per cent where a constant moves what a step waits for. A fit
    with slopes is checked by simulating the steps that matter with its constants.
    """

    steps: tuple[Step, ...]
    base: Constants
    names: tuple[str, ...]
    """Of the constants that may move; each generation has its own."""
    times_s: FloatArray
    """With the base."""
    slopes: FloatArray
    """Of each step (rows) for each name (columns), by the constant of its own generation."""

    def __call__(self, constants: Constants) -> FloatArray:
        """Return the times with some constants, which differ from the base in the names alone."""
        moved: dict[str, FloatArray] = {}
        for generation in dict.fromkeys(step.generation for step in self.steps):
            pairs = [(constant(constants[generation], name), constant(self.base[generation], name)) for name in self.names]
            moved[generation] = np.array([log(now / before) for now, before in pairs])
        shifts = np.array([moved[step.generation] for step in self.steps])
        return self.times_s * np.exp((self.slopes * shifts).sum(axis=1))

    def where(self, keep: Callable[[Step], bool]) -> Slopes:
        """Return those of some of the steps, such as of all sources but one."""
        rows = [place for place, step in enumerate(self.steps) if keep(step)]
        return Slopes(
            steps=tuple(self.steps[place] for place in rows),
            base=self.base,
            names=self.names,
            times_s=self.times_s[rows],
            slopes=self.slopes[rows],
        )


def slopes_of(steps: Sequence[Step], base: Constants, names: Sequence[str], *, predictions: Predictions | None = None) -> Slopes:
    """Return the slopes of some steps, from one simulation of each and one for each name.

    Parameters
    ----------
    base
        Calibrations by generation, for all generations of the steps.
    names
        Constants that are not zero in the base.
    predictions
        What has been simulated already is not simulated again.

    Raises
    ------
    ScenarioError
        When there is no such constant, or a scenario cannot be used.
    """
    predict = predictions or Predictions(tuple(steps))
    times_s = predict(base)
    columns: list[FloatArray] = []
    for name in names:
        # Downwards, where every share can go.
        there = {each: changed(calibration, {name: constant(calibration, name) * (1.0 - STEP)}) for each, calibration in base.items()}
        columns.append(np.log(predict(there) / times_s) / log(1.0 - STEP))
    return Slopes(steps=tuple(steps), base=base, names=tuple(names), times_s=times_s, slopes=np.array(columns).T.reshape(len(steps), -1))
