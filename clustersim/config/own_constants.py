"""Measured constants that take the place of the shipped ones: a file that a scenario names, or what a study asks with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clustersim.documents.check import choices_hint, did_you_mean
from clustersim.documents.files import read_text
from clustersim.documents.text import MOST_BYTES
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import read_calibration
from clustersim.hardware.catalog import accelerator_names
from clustersim.hardware.models import Node

FIELD: Final = "cluster.calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantsFile:
    """A calibration file of the user's own."""

    name: str
    """Name of the file, without its folder; a run directory keeps a copy under it."""
    text: str
    calibration: Calibration


def read_constants(asked: str, scenario: str) -> ConstantsFile:
    """Return the calibration that a scenario names.

    Parameters
    ----------
    asked
        A path, counted from the folder of the scenario or else from the working directory.
    scenario
        The file of the scenario.

    Raises
    ------
    ScenarioError
        When there is no such file, it cannot be used, or names an accelerator that nobody knows.
    """
    path = _found(asked, Path(scenario).parent)
    calibration = read_calibration(path)
    for name in calibration.accelerators:
        if name not in accelerator_names():
            message = f"{path.name} was measured on '{name}', which is no known accelerator"
            raise ScenarioError(message, field=FIELD, hint=choices_hint(name, accelerator_names()))
    return ConstantsFile(name=path.name, text=read_text(path, MOST_BYTES), calibration=calibration)


def in_place(calibration: Calibration, kinds: tuple[tuple[Node, int], ...]) -> tuple[tuple[Node, int], ...]:
    """Return kinds of nodes with constants for those of their generation; where none is of it, for all, and results say so."""
    generations = dict.fromkeys(node.accelerator.generation for node, _ in kinds)
    chosen = [calibration.generation] if calibration.generation in generations else generations
    return with_constants(dict.fromkeys(chosen, calibration), kinds)


def with_constants(constants: Mapping[str, Calibration], kinds: tuple[tuple[Node, int], ...]) -> tuple[tuple[Node, int], ...]:
    """Return kinds of nodes whose accelerators carry constants of their own.

    Parameters
    ----------
    constants
        By generation of accelerators; what is not named stays as it is.
    """
    return tuple((_with(constants, node), count) for node, count in kinds)


def _with(constants: Mapping[str, Calibration], node: Node) -> Node:
    own = constants.get(node.accelerator.generation)
    return node if own is None else replace(node, accelerator=replace(node.accelerator, calibration=own))


def _found(asked: str, folder: Path) -> Path:
    for path in (folder / asked, Path(asked)):
        if path.is_file():
            return path
    beside = sorted(path.name for path in (folder / asked).parent.glob("*.y*ml"))
    hint = did_you_mean(Path(asked).name, beside) or "write the path of a file of `clustersim calibrate`, counted from the scenario"
    raise ScenarioError(f"there is no file '{asked}'", field=FIELD, hint=hint)
