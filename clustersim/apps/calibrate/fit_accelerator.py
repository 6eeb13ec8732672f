"""Calibrate an accelerator: measurements in, a calibration file out, and the errors before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from clustersim.apps.calibrate.document import Errors, FileFit, calibration_text, covers_of, doubts_of, leaves
from clustersim.apps.calibrate.fit_attention import attention_part
from clustersim.apps.calibrate.fit_collectives import collectives_part
from clustersim.apps.calibrate.fit_products import products_part
from clustersim.apps.calibrate.fit_steps import steps_part
from clustersim.apps.calibrate.fitting import CalibrationPart, CalibrationTarget, rounded
from clustersim.apps.calibrate.measured_folder import measured_folder
from clustersim.apps.calibrate.measurements import MeasuredFile, measured_file
from clustersim.apps.calibrate.nccl_tests import Ranks
from clustersim.apps.calibrate.trace_readings import TraceResult, trace_result
from clustersim.documents.files import write_text
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data, Document, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_names, calibration_path, changed, constant, read_calibration
from clustersim.hardware.catalog import load_accelerator, load_node, profile_names
from clustersim.hardware.models import Node

TRACE: Final = "trace"
SUFFIXES: Final = (".yaml", ".yml")
SECTIONS: Final = ("gemm", "attention", "memory_fraction", "launch", "network")
NOTE: Final = "Fitted: least absolute logarithms of predicted over measured times, held to the base by what these measurements do not say."


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """Accelerator to calibrate, and its measurements."""

    accelerator: str
    base: str | None = None
    """Generation of a shipped calibration, or a file; that of the accelerator when left out."""
    gemm: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    nccl: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    """Folders that the script of ``clustersim measure`` wrote."""
    node: str | None = None
    """Node that collectives ran on."""
    ranks: Ranks = field(default_factory=Ranks)
    algorithm: str | None = None
    """Algorithm of collectives whose files name none; None: that which the library would choose."""
    device: str | None = None
    """Device that traces and measured collectives are of, in place of what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantChange:
    """One constant that was measured."""

    name: str
    part: str
    before: float
    after: float
    """In SI units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """One kind of measurements: errors before and after the fit."""

    name: str
    files: tuple[str, ...]
    before: Errors
    after: Errors
    worst: str
    """The measurement that is farthest off afterwards."""
    worst_error_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration, how it came to be, and its file."""

    name: str
    accelerator: str
    generation: str
    base: str
    calibration: Calibration
    parts: tuple[PartResult, ...]
    changes: tuple[ConstantChange, ...]
    kept: tuple[str, ...]
    """Constants of which nothing was measured: they are those of the base."""
    kept_sections: tuple[str, ...]
    """The same, whole sections by one name."""
    read_off: tuple[str, ...]
    """Traces that constants were read off."""
    doubts: tuple[str, ...]
    """Reasons to doubt the fit; the file has them too, and so has a result that uses it."""
    notices: tuple[str, ...]
    text: str
    """Text of the file."""


def calibrate(request: CalibrationRequest, name: str) -> Calibrated:
    """Return a calibration that is fitted to measurements, part after part: kernels, collectives, then whole steps.

    Each part is fitted with what those before it gave. What nothing was measured of is that of the base.

    Parameters
    ----------
    name
        Of the file that it will be, without ``.yaml``.

    Raises
    ------
    ScenarioError
        When nothing is given to fit to, or a file cannot be used.
    """
    target, document = _target(request)
    folders = [measured_folder(path, target.accelerator, request.device) for path in request.measured]
    for folder in folders:
        request = replace(
            request,
            gemm=(*request.gemm, *folder.products),
            attention=(*request.attention, *folder.attention),
            nccl=(*request.nccl, *folder.collectives),
            trace=(*request.trace, *folder.trace),
        )
    # A folder that says the host time of a launch measured it without the profiler, which its trace did not.
    profiled = {path for folder in folders if folder.dispatch_s is not None for path in folder.trace}
    traces = [(measured_file(path), trace_result(path, target, request.device, launches=path not in profiled)) for path in request.trace]
    traces += [(measured_file(folder.file), folder.launches(target)) for folder in folders if folder.dispatch_s is not None]
    traced = [product for _, result in traces for product in result.products]
    with_products = [file for file, result in traces if result.products]
    given: tuple[tuple[tuple[str, ...], Callable[[], CalibrationPart]], ...] = (
        ((*request.gemm, *(file.name for file in with_products)), lambda: products_part(request.gemm, target, traced, with_products)),
        (request.attention, lambda: attention_part(request.attention, target)),
        (
            request.nccl,
            lambda: collectives_part(
                request.nccl, target, _node(request, target), request.ranks, algorithm=request.algorithm, device=request.device
            ),
        ),
        (request.steps, lambda: steps_part(request.steps, target)),
    )
    # All files are read before the first fit: a mistake in the last one is found at once.
    parts = [part() for files, part in given if files]
    if not parts and not traces:
        raise ScenarioError(
            "nothing is given to fit to",
            hint="add --measured with a folder, or --gemm, --attention, --nccl, --trace or --steps with a file",
        )
    state = _CalibrationState(target)
    for file, result in traces:
        state.read(file, result)
    for part in parts:
        state.fit(part)
    return state.calibrated(name, document)


class _CalibrationState:
    """A calibration in progress."""

    def __init__(self, target: CalibrationTarget) -> None:
        self.target = target
        self.calibration = target.base
        self.values: dict[str, float] = {}
        self.part_of: dict[str, str] = {}
        self.results: list[PartResult] = []
        self.fits: list[FileFit] = []
        self.notices: list[str] = []
        self.read_off: list[str] = []
        self.doubts: dict[str, list[str]] = {}

    def read(self, file: MeasuredFile, result: TraceResult) -> None:
        """Take the constants that were read off a trace; those of a later one take the place of those of an earlier one."""
        values = {reading.name: rounded(reading.value) for reading in result.readings}
        self.notices += result.notices
        self.calibration = changed(self.calibration, values)
        self.values |= values
        self.part_of |= dict.fromkeys(values, TRACE)
        samples = ", ".join(f"{reading.name} from {reading.n_samples} samples" for reading in result.readings)
        self._supersede(tuple(values))
        if values:
            self.read_off.append(file.name)
            self.fits.append(FileFit(part=TRACE, file=file, covers=tuple(values), before=None, after=None, note=f"Read off: {samples}."))

    def fit(self, part: CalibrationPart) -> None:
        """Fit one part, and go on from there."""
        found = part.fitted(self.target, self.calibration)
        self.calibration = found.constants[self.target.generation]
        names = [name for _, name in found.values]
        self.values |= {name: value for (_, name), value in found.values.items()}
        self.part_of |= dict.fromkeys(names, part.name)
        self.notices += part.notices
        self._supersede(covers_of(names))
        before, after = found.errors_before.tolist(), found.errors.tolist()
        worst = max(range(len(after)), key=lambda place: abs(after[place]))
        self.results.append(
            PartResult(
                name=part.name,
                files=tuple(file.name for file in part.files),
                before=Errors.of(before),
                after=Errors.of(after),
                worst=part.measured[worst].what,
                worst_error_fraction=after[worst],
            )
        )
        moves = {name: (constant(self.target.base, name), value) for (_, name), value in found.values.items()}
        self.doubts[part.name] = doubts_of(Errors.of(after), moves, found.held, part.n_unlike)
        for file in part.files:
            own = [place for place, each in enumerate(part.measured) if each.file == file.name]
            self.fits.append(
                FileFit(
                    part=part.name,
                    file=file,
                    covers=covers_of(names),
                    before=Errors.of([before[place] for place in own]) if own else None,
                    after=Errors.of([after[place] for place in own]) if own else None,
                    note=NOTE,
                )
            )

    def _supersede(self, covers: Sequence[str]) -> None:
        """Remove from the other files the constants that are fitted anew."""
        self.fits = [replace(fit, covers=tuple(name for name in fit.covers if name not in covers)) for fit in self.fits]

    def calibrated(self, name: str, document: Document) -> Calibrated:
        """Return the result."""
        accelerator, base = self.target.accelerator, self.target.base
        kept = tuple(leaf for leaf in _constants(document.data) if leaf not in covers_of(list(self.values)))
        sections = _gathered(kept, document.data)
        note = f"not measured, and kept from {base.name}: {', '.join(sections)}"
        stale = ("partly_calibrated", *(f"doubtful_{part}" for part in self.doubts))
        notes: dict[str, Data] = {key: text for key, text in base.notes if key not in stale}
        notes |= {
            f"doubtful_{part}": f"the fit to {part} is in doubt: {'; '.join(doubts)}" for part, doubts in self.doubts.items() if doubts
        }
        described: dict[str, Data] = {
            "title": f"Measured on {accelerator.name}",
            "generation": accelerator.generation,
            "accelerators": [accelerator.name],
            "notes": {**notes, "partly_calibrated": note} if kept else notes,
        }
        return Calibrated(
            name=name,
            accelerator=accelerator.name,
            generation=accelerator.generation,
            base=base.name,
            calibration=self.calibration,
            parts=tuple(self.results),
            changes=tuple(
                ConstantChange(name=each, part=self.part_of[each], before=constant(base, each), after=value)
                for each, value in self.values.items()
            ),
            kept=kept,
            kept_sections=tuple(sections),
            read_off=tuple(self.read_off),
            doubts=tuple(f"{part}: {doubt}" for part, doubts in self.doubts.items() for doubt in doubts),
            notices=tuple(dict.fromkeys(self.notices)),
            text=calibration_text(name, document.data, self.values, self.fits, described),
        )


def write_calibration(found: Calibrated, path: Path) -> None:
    """Write the file of a calibration, and read it back: an unusable file is removed."""
    write_text(path, found.text)
    read = read_calibration(path)
    assert changed(read, {}).gemm == found.calibration.gemm
    assert read.network == found.calibration.network


def _target(request: CalibrationRequest) -> tuple[CalibrationTarget, Document]:
    accelerator = load_accelerator(request.accelerator)
    path = _base_path(request, accelerator.generation)
    return CalibrationTarget(accelerator=accelerator, base=read_calibration(path)), read_document(path)


def _base_path(request: CalibrationRequest, generation: str) -> Path:
    asked = request.base
    if asked is None:
        return calibration_path(generation)
    if asked.endswith(SUFFIXES):
        return Path(asked)
    if asked not in calibration_names():
        message = f"there is no calibration of '{asked}'"
        raise ScenarioError(message, field="--base", hint=choices_hint(asked, calibration_names()))
    return calibration_path(asked)


def _node(request: CalibrationRequest, target: CalibrationTarget) -> Node:
    if request.node is not None:
        return load_node(request.node)
    fitting = [name for name in profile_names("nodes") if load_node(name).accelerator.name == target.accelerator.name]
    hint = f"add --node with one of {', '.join(fitting)}" if fitting else "add --node"
    raise ScenarioError("nothing says which nodes the collectives ran on", field="--node", hint=hint)


def _constants(data: Mapping[str, Data]) -> list[str]:
    """Return the names of all constants of a file."""
    return [leaf for section in SECTIONS for leaf in leaves(data, section)]


def _gathered(names: Sequence[str], data: Mapping[str, Data]) -> list[str]:
    """Return names as short as can be: that of a whole section where nothing of it is missing."""
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        whole = next(
            (head for depth in range(1, len(parts)) if set(leaves(data, head := ".".join(parts[:depth]))) <= set(names)),
            name,
        )
        found[whole] = None
    return list(found)
