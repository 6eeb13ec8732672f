"""Runs with all that happened in them: from a scenario, or from a run directory, which is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clustersim.documents.json_text import read_json
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.scenario.build import build
from clustersim.scenario.load import load_scenario
from clustersim.scenario.result import Result
from clustersim.scenario.run import run_built
from clustersim.studies.side_by_side import RESULTS, find_run_directory


def load_result(source: str, overrides: Sequence[str] = (), *, seed: int = 0) -> Result:
    """Return a run with its timeline.

    A run directory keeps what came out and not each moment; since equal runs are equal to the last bit, its scenario is replayed, and
    must come out as it did.

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
    path = Path(source)
    if path.is_dir():
        if overrides:
            place = Place(file=source)
            raise ScenarioError("is a run directory, in which nothing can be set", place=place, hint="name its scenario.yaml instead")
        return _replayed(find_run_directory(path))
    if path.name == RESULTS and path.is_file():
        return _replayed(path.parent)
    try:
        return run_built(build(load_scenario(source, overrides)), seed=seed)
    except InfeasibleError as error:
        raise InfeasibleError(f"{source}: {error}") from error


def _replayed(folder: Path) -> Result:
    recorded, manifest = _digits(folder / RESULTS), _manifest(folder / "manifest.json")
    # As it was written first, so that figures keep their sources; what it refers to may be gone, and then as it was resolved.
    with suppress(ScenarioError):
        result = _run(folder / "scenario.yaml", manifest)
        if result.scenario_hash == recorded:
            return result
    result = _run(folder / "resolved.yaml", _Manifest(seed=manifest.seed))
    if result.scenario_hash != recorded:
        raise ScenarioError(
            f"was made by another version: it is {recorded}, and comes out as {result.scenario_hash} now",
            place=Place(file=str(folder)),
            hint=f"run {folder / 'scenario.yaml'} again",
        )
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """What of a manifest is needed to run again."""

    seed: int = 0
    overrides: tuple[str, ...] = ()


def _run(path: Path, manifest: _Manifest) -> Result:
    return run_built(build(load_scenario(str(path), manifest.overrides)), seed=manifest.seed)


def _digits(path: Path) -> str:
    name, _, results = read_json(str(path))
    if not isinstance(results, dict) or "scenario_hash" not in results:
        raise ScenarioError("is not the result of a run", place=Place(file=name), hint="run the scenario again")
    return str(results["scenario_hash"])


def _manifest(path: Path) -> _Manifest:
    if not path.is_file():
        return _Manifest()
    _, _, manifest = read_json(str(path))
    seed, overrides = (manifest.get("seed"), manifest.get("overrides")) if isinstance(manifest, dict) else (None, None)
    return _Manifest(
        seed=seed if isinstance(seed, int) else 0,
        overrides=tuple(str(text) for text in overrides) if isinstance(overrides, list) else (),
    )
