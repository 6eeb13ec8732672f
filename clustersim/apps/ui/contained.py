"""A scenario for the page: a shipped one or a run, or one from a browser, which reads no file and is small enough to be replayed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clustersim.apps.ui.workers import LimitError
from clustersim.config.load import Scenario, checked_scenario, example_names, example_path, load_scenario
from clustersim.config.machine import hardware_of
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data, placed_texts
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_spec import model_names

_FILE: Final = re.compile(r"hf:.*|[.~].*|.*[\\\0].*|.*\.(ya?ml|json|csv|gz|txt)\s*", re.IGNORECASE | re.DOTALL)
_QUANTITY: Final = re.compile(r"[+-]?[\d_.,]+(e[+-]?\d+)?\s*[A-Za-zµ%]*(/[A-Za-z]+)*", re.IGNORECASE)
_SLASHES: Final = re.compile(r"cluster\.links\.\d+\.between\.\d+|background\.\d+\.links\.\d+|checks\.\d+")
"""Fields in which a slash is part of the name of a link, or divides."""
_FILES_ONLY: Final = re.compile(r"cluster\.calibration|jobs\.\d+\.scenario")
_MODEL: Final = re.compile(r"model|jobs\.\d+\.scenario\.model")
_REMEDY: Final = "this page takes shipped names and numbers; files are for `clustersim run`"


def check_contained(data: Mapping[str, Data]) -> None:
    """Refuse a scenario that names a file.

    Raises
    ------
    ScenarioError
        With the field that does.

    Examples
    --------
    >>> check_contained({"model": "llama3-8b", "cluster": {"nics": {"bandwidth": "400 Gbit/s"}}})
    """
    for field, value in placed_texts(dict(data)):
        slash = "/" in value and not _SLASHES.fullmatch(field) and not _QUANTITY.fullmatch(value.strip())
        model = _MODEL.fullmatch(field) is not None
        if slash or (model and "/" in value) or _FILE.fullmatch(value) or _FILES_ONLY.fullmatch(field):
            raise ScenarioError("no file is read here", field=field, hint=_REMEDY)
        if model and value not in model_names():
            raise ScenarioError(f"there is no model '{value}'", field=field, hint=choices_hint(value, model_names()))


MOST_GPUS: Final = 131_072
MOST_STEPS: Final = 200


def check_limits(scenario: Scenario) -> None:
    """Refuse a scenario that is too large for the page, before anything is laid out.

    Raises
    ------
    LimitError
        When it has too many GPUs or steps.
    ScenarioError
        When its cluster cannot be used.
    """
    gpus = sum(node.n_accelerators * count for node, count in hardware_of(scenario.spec.cluster, scenario.document).kinds)
    for number, most, unit in ((gpus, MOST_GPUS, "GPUs"), (scenario.spec.steps or 1, MOST_STEPS, "steps")):
        if number > most:
            raise LimitError(f"{number:,} {unit} are more than the {most:,} that this page simulates")


_RUN: Final = "run "
_KEPT: Final = "results.json"


def starts(runs: Path) -> tuple[str, ...]:
    """Return the names of all that the page can start from."""
    # A link may lead out of the folder.
    whole = runs.resolve()
    found = sorted(path.parent.relative_to(runs).as_posix() for path in runs.glob(f"*/*/{_KEPT}") if path.resolve().is_relative_to(whole))
    return (*example_names(), *(f"{_RUN}{name}" for name in found))


def start(name: str, runs: Path) -> Mapping[str, Data]:
    """Return a scenario by a name of :func:`starts`, and of nothing else.

    Raises
    ------
    ScenarioError
        When there is none of that name, or it names files.
    """
    known = starts(runs)
    if name in example_names(serving=True):
        raise ScenarioError(f"'{name}' is a serving scenario, and this page shows trainings", hint=f"use clustersim run {name}")
    if name not in known:
        raise ScenarioError(f"there is no '{name}' to start from", hint=choices_hint(name, known))
    if name.startswith(_RUN):
        # Readers of many formats come with it, and most pages begin with an example.
        from clustersim.apps.compare.run_directories import named_scenario

        document = checked_scenario(*named_scenario(str(runs / name.removeprefix(_RUN)))).document.data
    else:
        # By its path: a file of that name in the working directory is not what is meant.
        document = load_scenario(example_path(name)).document.data
    check_contained(document)
    return document
