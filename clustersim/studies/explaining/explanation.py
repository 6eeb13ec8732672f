"""Explain a run: its chain of tasks, its figures, their constants, and what would shorten the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clustersim.errors import Place, ScenarioError
from clustersim.scenario.build import build
from clustersim.scenario.constants import Constant, constants_of
from clustersim.scenario.critical import critical_path
from clustersim.scenario.load import Source, checked_scenario, read_source
from clustersim.scenario.overriding import parse_override
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.explaining.candidates import candidates
from clustersim.studies.explaining.formulas import Explained, explained
from clustersim.studies.explaining.gains import Gains, OnCandidate, gains
from clustersim.trace.critical import CriticalPath

RESOLVED: Final = "resolved.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that is said about one run."""

    result: Result
    path: CriticalPath | None
    """None where no chain sets the step time, because workers do not wait for each other."""
    figures: tuple[Explained, ...]
    constants: tuple[Constant, ...]
    gains: Gains | None
    """None where they were not asked for."""


def explain(
    source: str, overrides: Sequence[str] = (), *, seed: int = 0, changes: bool = True, on_candidate: OnCandidate | None = None
) -> Explanation:
    """Return why the step of a scenario takes as long as it does.

    Parameters
    ----------
    source
        A scenario file, a shipped name, ``-``, or a run directory.
    overrides
        ``key=value`` texts.
    changes
        Whether to look for changes that shorten the step, each replayed.

    Raises
    ------
    ScenarioError
        When there is no such scenario, or it cannot be used.
    """
    written, settings = scenario_source(source), [parse_override(text) for text in overrides]
    result = run_built(build(checked_scenario(written, settings)), seed=seed)
    built = result.built
    return Explanation(
        result=result,
        path=critical_path(built, seed=seed) if built.plan.strategy.data_parallel.mode == "sync" else None,
        figures=explained(result),
        constants=constants_of(built),
        gains=gains(written, settings, result, candidates(built), on_candidate) if changes else None,
    )


def scenario_source(source: str) -> Source:
    """Return the scenario of a run directory as it was resolved, or any other as it was written."""
    folder = Path(source)
    if not folder.is_dir():
        return read_source(source)
    runs = [folder] if (folder / RESOLVED).is_file() else sorted(path.parent for path in folder.glob(f"*/{RESOLVED}"))
    if len(runs) != 1:
        found = "holds no run" if not runs else f"holds {len(runs)} runs"
        raise ScenarioError(found, place=Place(file=source), hint="name a run directory, such as runs/NAME/HASH, or a scenario")
    return read_source(runs[0] / RESOLVED)
