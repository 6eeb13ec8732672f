"""Parts of a calibration's fit: measurements, their predictions, and the constants that they may move."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.apps.calibrate.fitting import Fit, Parameter, Predict, fit
from clustersim.apps.calibrate.measurements import MeasuredFile
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.models import Accelerator
from clustersim.kernels.kernel_model import KernelModel


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

    def fitted(self, target: CalibrationTarget, base: Calibration) -> Fit:
        """Return the constants of this part, fitted from some base."""
        return fit(
            self.predict,
            [each.time_s for each in self.measured],
            self.parameters,
            {target.generation: base},
            weights=[each.weight for each in self.measured],
        )


def parameter(target: CalibrationTarget, *names: str, spread: float, most: float = float("inf"), floor: float = 0.0) -> Parameter:
    """Return a free parameter of the calibration; several names keep their proportions."""
    return Parameter(constants=tuple((target.generation, name) for name in names), spread=spread, most=most, floor=floor)


def in_bursts(target: CalibrationTarget, calibration: Calibration, precision: str) -> KernelModel:
    """Return the kernels of an accelerator in measurements of seconds, before power holds it back."""
    fresh = replace(calibration, gemm=replace(calibration.gemm, under_load={"default": 1.0}))
    peaks = target.accelerator.peak_flops_per_s
    attention = precision if precision in ("fp16", "bf16") else next(name for name in ("bf16", "fp16", "fp32") if name in peaks)
    return KernelModel(accelerator=target.accelerator, calibration=fresh, precision=precision, attention_precision=attention)
