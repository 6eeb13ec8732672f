"""What a calibration is fitted to, part by part: measurements, their predictions, and the constants that they may move."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.hardware.calibration import Calibration
from clustersim.hardware.models import Accelerator
from clustersim.kernels.model import KernelModel
from clustersim.studies.calibration.fitting import Fit, Parameter, Predict, fit
from clustersim.studies.calibration.tables import MeasuredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The calibration that is made."""

    accelerator: Accelerator
    base: Calibration
    """What is not measured stays as it is here."""

    @property
    def generation(self) -> str:
        """The generation of the accelerator, which that of the base need not be."""
        return self.accelerator.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measured time."""

    file: str
    """Without its folder."""
    what: str
    """For a person."""
    time_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Measurements of one kind, and what they are fitted with."""

    name: str
    files: tuple[MeasuredFile, ...]
    measured: tuple[Measured, ...]
    predict: Predict
    parameters: tuple[Parameter, ...]
    notices: tuple[str, ...] = ()
    """What was left out, or taken for granted."""

    def fitted(self, target: Target, base: Calibration) -> Fit:
        """Return the constants of this part, fitted from some base."""
        return fit(
            self.predict,
            [each.time_s for each in self.measured],
            self.parameters,
            {target.generation: base},
            weights=[each.weight for each in self.measured],
        )


def parameter(target: Target, *names: str, spread: float, most: float = float("inf"), floor: float = 0.0) -> Parameter:
    """Return a parameter of the calibration that is made; several names keep their proportions."""
    return Parameter(constants=tuple((target.generation, name) for name in names), spread=spread, most=most, floor=floor)


def in_bursts(target: Target, calibration: Calibration, precision: str) -> KernelModel:
    """Return the kernels of an accelerator in measurements of seconds, before power holds it back."""
    fresh = replace(calibration, gemm=replace(calibration.gemm, under_load={"default": 1.0}))
    peaks = target.accelerator.peak_flops_per_s
    attention = precision if precision in ("fp16", "bf16") else next(name for name in ("bf16", "fp16", "fp32") if name in peaks)
    return KernelModel(accelerator=target.accelerator, calibration=fresh, precision=precision, attention_precision=attention)
