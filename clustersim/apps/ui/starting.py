"""Scenarios that the page can start from: shipped examples, and runs in the folder of runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clustersim.apps.compare.run_directories import written_scenario
from clustersim.apps.compare.side_by_side import RESULTS
from clustersim.apps.ui.contained import check_contained
from clustersim.config.load import example_names, example_path, load_scenario
from clustersim.documents.check import choices_hint
from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError

_RUN: Final = "run "


def starts(runs: Path) -> tuple[str, ...]:
    """Return the names of all that the page can start from."""
    # A link may lead out of the folder.
    found = sorted(path.parent.relative_to(runs).as_posix() for path in runs.glob(f"*/*/{RESULTS}") if _is_within(path, runs))
    return (*example_names(), *(f"{_RUN}{name}" for name in found))


def start(name: str, runs: Path) -> Mapping[str, Data]:
    """Return a scenario by a name of :func:`starts`, and of nothing else.

    Raises
    ------
    ScenarioError
        When there is none of that name, or it names files.
    """
    known = starts(runs)
    if name not in known:
        raise ScenarioError(f"there is no '{name}' to start from", hint=choices_hint(name, known))
    if name.startswith(_RUN):
        document = written_scenario(runs / name.removeprefix(_RUN)).document.data
    else:
        # By its path: a file of that name in the working directory is not what is meant.
        document = load_scenario(example_path(name)).document.data
    check_contained(document)
    return document


def _is_within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
