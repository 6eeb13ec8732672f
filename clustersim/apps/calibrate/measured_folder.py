"""Microbenchmarks of a node: the script that measures, and the folder that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.document import FAR, is_far, move
from clustersim.apps.calibrate.fitting import CalibrationTarget
from clustersim.apps.calibrate.trace_readings import ReadConstant, TraceResult
from clustersim.apps.calibrate.traced import TracedDevice, check_device
from clustersim.documents.json_text import read_json
from clustersim.errors import Place, ScenarioError
from clustersim.hardware.calibrations import constant
from clustersim.hardware.models import Accelerator

SCRIPT: Final = Path(__file__).parent / "assets" / "microbenchmarks.py.txt"
NODE: Final = "node.json"
_FILES: Final = ("products.csv", "attention.csv", "collectives.csv", "trace.json.gz")
_MARK: Final = "clustersim_measurements"
_DISPATCH: Final = "launch.dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFolder:
    """Files of a folder, and the host time of a launch."""

    file: str
    """That of the node."""
    products: tuple[str, ...]
    attention: tuple[str, ...]
    collectives: tuple[str, ...]
    trace: tuple[str, ...]
    dispatch_s: float | None
    """Host time of a launch in a layer that the host bounds, without a profiler, in seconds."""
    n_launches: int

    def launches(self, target: CalibrationTarget) -> TraceResult:
        """Return the host time of a launch as a reading; one that is far from the base's is not taken."""
        assert self.dispatch_s is not None
        before = constant(target.base, _DISPATCH)
        if not is_far(before, self.dispatch_s):
            read = ReadConstant(name=_DISPATCH, value=self.dispatch_s, n_samples=self.n_launches)
            return TraceResult(products=(), readings=(read,), notices=())
        moved = move(_DISPATCH, before, self.dispatch_s)
        far = f"{self.file}: {moved} is not taken: more than {FAR:.0f} times; whole steps say it better"
        return TraceResult(products=(), readings=(), notices=(far,))


def script() -> str:
    """Return the script of microbenchmarks."""
    return SCRIPT.read_text(encoding="utf-8")


def measured_folder(path: str, accelerator: Accelerator, device: str | None = None) -> MeasuredFolder:
    """Return what a folder holds.

    Parameters
    ----------
    device
        Device that the user says it is of; None for what it says.

    Raises
    ------
    ScenarioError
        When it is no such folder, holds no measurements, or is of another device.
    """
    folder = Path(path)
    file = str(folder / NODE)
    if not folder.is_dir():
        hint = "name the folder that the script of `clustersim measure` wrote"
        raise ScenarioError("is no folder of measurements", place=Place(file=path), hint=hint)
    _, _, data = read_json(file)
    if not isinstance(data, dict) or data.get(_MARK) != 1:
        raise ScenarioError(f"has no '{_MARK}': 1", place=Place(file=file), hint="run the script of this version of clustersim")
    name, memory, dispatch_s, launches = (data.get(key) for key in ("device", "memory_bytes", "launch_dispatch_s", "launches"))
    holds = float(memory) if isinstance(memory, int | float) else None
    devices = [TracedDevice(name=name, memory_bytes=holds)] if isinstance(name, str) and name else []
    check_device(devices, accelerator, said=device, file=file)
    products, attention, collectives, trace = ((str(folder / each),) if (folder / each).is_file() else () for each in _FILES)
    if not (products or attention or collectives or trace):
        raise ScenarioError("holds no measurements", place=Place(file=path), hint=f"expected are {', '.join(_FILES)}")
    return MeasuredFolder(
        file=file,
        products=products,
        attention=attention,
        collectives=collectives,
        trace=trace,
        dispatch_s=float(dispatch_s) if isinstance(dispatch_s, int | float) and dispatch_s > 0.0 else None,
        n_launches=launches if isinstance(launches, int) else 0,
    )
