"""Explain a run: its chain of tasks, its figures, their constants, and what would shorten the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.scenario.build import build
from clustersim.scenario.constants import Constant, constants_of
from clustersim.scenario.critical import critical_path
from clustersim.scenario.load import checked_scenario, read_source
from clustersim.scenario.overriding import parse_override
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.explaining.candidates import Gains, candidates, gains
from clustersim.studies.explaining.formulas import Explained, explained
from clustersim.studies.run_directories import named_directory, replayed
from clustersim.trace.critical import CriticalPath


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


def explain(source: str, overrides: Sequence[str] = (), *, seed: int = 0, changes: bool = True) -> Explanation:
    """Return why the step of a scenario takes as long as it does.

    Parameters
    ----------
    source
        A scenario file, a shipped name, ``-``, or a run directory.
    overrides
        ``key=value`` texts for a scenario.
    seed
        Of everything random in a scenario; a run directory has its own.
    changes
        Whether to look for changes that shorten the step, each replayed.

    Raises
    ------
    ScenarioError
        When there is no such scenario, or it cannot be used.
    """
    folder = named_directory(source, overrides)
    if folder is not None:
        run = replayed(folder)
        written, changed, result = run.written, run.changes, run.result
    else:
        written, changed = read_source(source), tuple(parse_override(text) for text in overrides)
        result = run_built(build(checked_scenario(written, changed)), seed=seed)
    built = result.built
    return Explanation(
        result=result,
        path=critical_path(built, seed=result.seed) if built.plan.strategy.data_parallel.mode == "sync" else None,
        figures=explained(result),
        constants=constants_of(built),
        gains=gains(written, changed, result, candidates(built)) if changes else None,
    )
