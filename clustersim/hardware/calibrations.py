"""Find the calibration of an accelerator's generation and check it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_names, data_path
from clustersim.documents.spots import is_mapping
from clustersim.documents.text import read_document
from clustersim.hardware.calibration import (
    Attention,
    AttentionCalibration,
    Calibration,
    GemmCalibration,
    LaunchCalibration,
    NetworkCalibration,
)
from clustersim.hardware.catalog import load_accelerator, read_spec
from clustersim.hardware.models import Accelerator, Node
from clustersim.hardware.profile_schema import Spec
from clustersim.units.fields import Share

SAME_CHIP: Final = 0.05
"""Share by which the multiprocessors of two products of one chip differ at most."""


class CalibrationSpec(Spec):
    """``hardware_profiles/calibration/<generation>.yaml``."""

    generation: str
    lends: bool = False
    """True for the one calibration whose constants generations without their own borrow: the one with the most measurements."""
    accelerators: list[str] = Field(min_length=1)
    """Those that were measured; the rest of the generation shares their constants, and results say so."""
    notes: dict[str, str] = Field(default_factory=dict)
    """Flags that every result with this calibration carries."""
    gemm: GemmCalibration
    attention: Attention
    memory_fraction: Share
    launch: LaunchCalibration
    network: NetworkCalibration

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: object) -> object:
        """Give a calibration of one's own the limits of the library of its generation."""
        if is_mapping(data) and is_mapping(network := data.get("network")) and "library" not in network:
            shipped = read_document(calibration_path(str(data.get("generation")))).data["network"]
            if is_mapping(shipped) and "library" in shipped:
                return {**data, "network": {**network, "library": shipped["library"]}}
        return data


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that a file describes; every number in it stands under a source."""
    spec, _ = read_spec(CalibrationSpec, path)
    return Calibration(
        name=spec.name,
        generation=spec.generation,
        gemm=spec.gemm,
        attention=spec.attention,
        memory_fraction=spec.memory_fraction,
        launch=spec.launch,
        network=spec.network,
        accelerators=tuple(spec.accelerators),
        sources=spec.sources,
        notes=tuple(spec.notes.items()),
    )


def calibration_for(accelerator: Accelerator) -> Calibration:
    """Return the calibration of an accelerator: its own, that of its generation, or a borrowed one of another generation, noted as such."""
    calibration = accelerator.calibration or calibration_of_generation(accelerator.generation)
    if accelerator.name in calibration.accelerators:
        return calibration
    if calibration.generation == accelerator.generation:
        measured = ", ".join(calibration.accelerators)
        note = ("related_calibration", f"{accelerator.name} itself was not measured; it shares the constants of {measured}")
        calibration = _at_power(calibration, accelerator)
    elif accelerator.calibration is not None:
        message = f"{calibration.name} is a calibration of {calibration.generation}, and {accelerator.name} is {accelerator.generation}"
        note = ("foreign_calibration", message)
    else:
        others = ", ".join(name for name in calibration_names() if name != calibration.generation)
        message = (
            f"{accelerator.name} (generation {accelerator.generation}) has no calibration; constants of {calibration.name} are borrowed: "
            "shares of peak rates that products, attention and memory reach, times of launches, collectives; "
            f"'generation' of the accelerator takes others ({others}), and cluster.calibration measured ones"
        )
        note = ("borrowed_calibration", message)
    return replace(calibration, notes=(*calibration.notes, note))


def calibration_at(node: Node) -> Calibration:
    """Return the calibration of the accelerators of a node, with the times of its host."""
    calibration, pace = calibration_for(node.accelerator), node.host.pace
    if pace == 1.0:
        return calibration
    launch = calibration.launch
    of_host = ("dispatch_s", "further_s", "step_s", "waited_send_s")
    slower = replace(launch, **{name: getattr(launch, name) * pace for name in of_host})
    return replace(calibration, launch=slower)


def _at_power(calibration: Calibration, accelerator: Accelerator) -> Calibration:
    """Return a calibration for an accelerator of the same generation with another power limit for each operation of its peak.

    Where products are held back by power, the clock follows the power above idle, and the rates of products and of fused attention follow
    the clock, up to the share of the peak that products reach where nothing holds them back. Nothing is changed where products keep their
    rate under load, where a power is not known, nor where another chip of the generation has more power for an operation: what else it
    spends power on is not known.
    """
    gemm, limited = calibration.gemm, _joules_per_operation(accelerator)
    measured = [
        (joules, each) for each in map(load_accelerator, calibration.accelerators) if (joules := _joules_per_operation(each)) is not None
    ]
    if limited is None or not measured or gemm.under_load["default"] == 1.0:
        return calibration
    measured.sort(key=lambda known: abs(known[0] - limited))
    nearest, card = measured[0]
    if limited > nearest and abs(accelerator.n_multiprocessors / card.n_multiprocessors - 1.0) > SAME_CHIP:
        return calibration
    idle = next((joules * each.idle_power_w / each.power_w for joules, each in measured if each.idle_power_w and each.power_w), 0.0)
    most = 1.0 if gemm.burst_fraction is None else gemm.burst_fraction / gemm.sustained_fraction["default"]
    clock = (max(limited - idle, 0.0) / (nearest - idle)) ** gemm.power_exponent
    under_load = {name: min(share * clock, max(most, share)) for name, share in gemm.under_load.items()}
    clock = under_load["default"] / gemm.under_load["default"]
    attention = {name: _at_clock(generation, clock) for name, generation in calibration.attention.items()}
    return replace(calibration, gemm=replace(gemm, under_load=under_load), attention=attention)


def _joules_per_operation(accelerator: Accelerator) -> float | None:
    """Return the power limit over the dense 16-bit peak, in joules; None where either is unknown."""
    peak = accelerator.peak_flops_per_s.get("fp16")
    return None if accelerator.power_w is None or peak is None else accelerator.power_w / peak


def _at_clock(attention: AttentionCalibration, clock: float) -> AttentionCalibration:
    forward, backward = (replace(each, fraction=each.fraction * clock) for each in (attention.forward, attention.backward))
    return replace(attention, forward=forward, backward=backward)


def calibration_names() -> tuple[str, ...]:
    """Return the generations that have a shipped calibration."""
    return data_names("hardware_profiles", "calibration")


def calibration_path(generation: str) -> Path:
    """Return the file of a generation's shipped calibration, or of the one that it borrows."""
    known = generation in calibration_names()
    return data_path("hardware_profiles", "calibration", f"{generation}.yaml") if known else _lender()


@lru_cache
def _lender() -> Path:
    # A test holds that there is one.
    paths = map(calibration_path, calibration_names())
    return next(path for path in paths if validate_document(CalibrationSpec, read_document(path)).lends)


@lru_cache
def calibration_of_generation(generation: str) -> Calibration:
    """Return the shipped calibration of a generation, or that of the generation from which others borrow."""
    return read_calibration(calibration_path(generation))
