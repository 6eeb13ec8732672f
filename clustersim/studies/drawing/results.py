"""Runs with all that happened in them: from a scenario, or from a run directory, which is replayed."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.errors import InfeasibleError
from clustersim.scenario.build import build
from clustersim.scenario.load import load_scenario
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.run_directories import named_directory, replayed


def load_result(source: str, overrides: Sequence[str] = (), *, seed: int = 0) -> Result:
    """Return a run with its timeline.

    Parameters
    ----------
    source
        A run directory, or one that holds a single one; a scenario file, a shipped name, or ``-``.
    overrides
        ``key=value`` texts for a scenario.
    seed
        Of everything random in a scenario; a run directory has its own.

    Raises
    ------
    ScenarioError
        When there is neither, or the directory is not one of this version.
    InfeasibleError
        When the scenario cannot run.
    """
    folder = named_directory(source, overrides)
    if folder is not None:
        return replayed(folder).result
    try:
        return run_built(build(load_scenario(source, overrides)), seed=seed)
    except InfeasibleError as error:
        raise InfeasibleError(f"{source}: {error}") from error
