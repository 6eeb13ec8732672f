"""Runs as input: from a scenario, or from a run directory that a user names, which is replayed as it was run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clustersim.apps.importing.opening import open_written
from clustersim.apps.run.result import Result
from clustersim.apps.run.rundir import TAGS
from clustersim.apps.run.running import run_scenario
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.load import ScenarioText, read_source
from clustersim.config.overriding import Override, parse_override
from clustersim.config.serving_scenario import is_serving
from clustersim.documents.files import STDIN, write_text
from clustersim.documents.json_text import read_json
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Data
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.units.quantity import format_quantity

RESULTS: Final = "results.json"
RESOLVED: Final = "resolved.yaml"
_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """A run that came out as it had before, with what it was made from."""

    written: ScenarioText
    changes: tuple[Override, ...]
    result: Result | ServingResult


def named_directory(source: str, overrides: Sequence[str] = ()) -> Path | None:
    """Return the run directory of a path: itself, the only run in a folder, or that of a results file; None for a scenario.

    Raises
    ------
    ScenarioError
        When a folder holds no run or several, or something is to be set in one.
    """
    path = Path(source)
    if path.is_dir():
        if overrides:
            place = Place(file=source)
            raise ScenarioError("is a run directory, in which nothing can be set", place=place, hint="name its scenario.yaml instead")
        return _only_run(path)
    return path.parent if path.name == RESULTS and path.is_file() else None


def _only_run(path: Path) -> Path:
    """Return a run directory, or the single one that a folder holds."""
    if (path / RESULTS).is_file():
        return path
    inside = sorted(each.parent for each in path.glob(f"*/{RESULTS}"))
    if len(inside) == 1:
        return inside[0]
    if inside:
        names = ", ".join(str(each) for each in inside[:4])
        raise ScenarioError(f"holds {len(inside)} runs", place=Place(file=str(path)), hint=f"name one or several of them, such as {names}")
    near = did_you_mean(path.name, [each.name for each in path.parent.iterdir() if each.is_dir() and each != path]) if path.name else None
    raise ScenarioError(
        f"is no run directory: {RESULTS} is missing", place=Place(file=str(path)), hint=near or "name what 'run' has written"
    )


def replayed(folder: Path) -> ReplayedRun:
    """Return the run of a directory with all that happened in it.

    A run directory keeps what came out and not each moment; since equal runs are equal to the last bit, its scenario is replayed, with
    the seed and the changes of its manifest, and must come out as it did.

    Raises
    ------
    ScenarioError
        When it comes out otherwise, or a file cannot be used.
    """
    recorded, (seed, overrides) = str(read_results(folder)["scenario_hash"]), _manifest(folder / _MANIFEST)
    # As it was written first, so that figures keep their sources; what it refers to may be gone, and then as it was resolved.
    with suppress(ScenarioError):
        found = _run(folder / "scenario.yaml", overrides, seed)
        if found.result.scenario_hash == recorded:
            return found
    found = _run(folder / RESOLVED, (), seed)
    if found.result.scenario_hash != recorded:
        raise ScenarioError(
            f"was made by another version: it is {recorded}, and comes out as {found.result.scenario_hash} now",
            place=Place(file=str(folder)),
            hint=f"run {folder / 'scenario.yaml'} again",
        )
    return found


def named_scenario(source: str, overrides: Sequence[str] = ()) -> tuple[ScenarioText, tuple[Override, ...]]:
    """Return a scenario that a user names, or that of a run directory or of a file of a framework, as written, and its changes."""
    path, texts, _ = changeable(source, overrides)
    return open_written(path, texts)


def changeable(source: str, overrides: Sequence[str] = (), *, seed: int = 0) -> tuple[str, tuple[str, ...], int]:
    """Return the file or name of a scenario, its changes and its seed, which a run directory has its own of."""
    folder = named_directory(source, overrides)
    if folder is None:
        return source, tuple(overrides), seed
    seed, texts = _manifest(folder / _MANIFEST)
    return str(folder / "scenario.yaml"), texts, seed


def _run(path: Path, overrides: Sequence[str], seed: int) -> ReplayedRun:
    written, changes = read_source(path), tuple(parse_override(text) for text in overrides)
    return ReplayedRun(written=written, changes=changes, result=run_scenario(written, changes, seed=seed))


def read_results(folder: Path) -> Mapping[str, Data]:
    """Return the results of a run directory."""
    name, _, results = read_json(str(folder / RESULTS))
    if not isinstance(results, dict) or "scenario_hash" not in results:
        raise ScenarioError("is not the result of a run", place=Place(file=name), hint="run the scenario again")
    return results


def _manifest(path: Path) -> tuple[int, tuple[str, ...]]:
    """Return seed and changes of a run; defaults without a manifest."""
    manifest: Mapping[str, Data] = _mapping(path) if path.is_file() else {}
    seed, overrides = manifest.get("seed"), manifest.get("overrides")
    return seed if isinstance(seed, int) else 0, tuple(map(str, overrides)) if isinstance(overrides, list) else ()


def is_served(source: str, overrides: Sequence[str] = ()) -> bool:
    """Return whether a source is a serving scenario, or the run directory of one; a scenario of stdin is taken for one of training."""
    return source != STDIN and is_serving(named_scenario(source, overrides)[0])


def load_result(source: str, overrides: Sequence[str] = (), *, seed: int = 0) -> Result | ServingResult:
    """Return a run of training with its timeline, or one of serving.

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
    if (folder := named_directory(source, overrides)) is not None:
        return replayed(folder).result
    try:
        return run_scenario(*open_written(source, overrides), seed=seed)
    except InfeasibleError as error:
        raise InfeasibleError(f"{source}: {error}") from error


COLUMNS: Final = ("run", "written", ">GPUs", ">step", ">MFU", ">tokens/s", "tags", "changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """One run directory; figures that its kind of run does not have are None."""

    folder: str
    written_at: str
    gpus: int | None
    step_time_s: float | None
    mfu: float | None
    tokens_per_s: float | None
    tags: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """Row of a table."""
        return (
            self.folder,
            self.written_at[:16].replace("T", " "),
            "-" if self.gpus is None else f"{self.gpus:,}",
            "-" if self.step_time_s is None else format_quantity(self.step_time_s, "s"),
            "-" if self.mfu is None else f"{100 * self.mfu:.1f} %",
            "-" if self.tokens_per_s is None else f"{self.tokens_per_s:,.0f}",
            ", ".join(self.tags),
            ", ".join(self.changes),
        )


def kept_runs(folder: Path, tell: Callable[[str], None]) -> list[KeptRun]:
    """Return the complete runs below a folder, the latest first; unreadable ones are reported and left out.

    Raises
    ------
    ScenarioError
        When there is no such folder.
    """
    if not folder.is_dir():
        raise ScenarioError(
            "there is no such folder", place=Place(file=str(folder)), hint="name the folder of 'run', which is runs unless --out says so"
        )
    found: list[KeptRun] = []
    for path in sorted(folder.rglob(_MANIFEST)):
        if (path.parent / RESULTS).is_file():
            try:
                found.append(_kept(path.parent))
            except ScenarioError as error:
                tell(f"left out: {error}")
    return sorted(found, key=lambda run: run.written_at, reverse=True)


def _kept(folder: Path) -> KeptRun:
    manifest, results = (_mapping(folder / name) for name in (_MANIFEST, RESULTS))
    gpus, changes, tags = results.get("gpus"), manifest.get("overrides"), folder / TAGS
    return KeptRun(
        folder=str(folder),
        written_at=str(manifest.get("written_at", "")),
        gpus=gpus if isinstance(gpus, int) else None,
        step_time_s=_number(results, "step_time_s"),
        mfu=_number(results, "mfu"),
        tokens_per_s=_number(results, "tokens_per_s", "total_tokens_per_s"),
        tags=tuple(tags.read_text(encoding="utf-8").splitlines()) if tags.is_file() else (),
        changes=tuple(map(str, changes)) if isinstance(changes, list) else (),
    )


def tag_run(run: KeptRun, *, add: str | None = None, remove: str | None = None) -> KeptRun:
    """Return a run with a tag more or less; its directory keeps it, also when an equal run is written there."""
    tags = sorted({*run.tags, *([] if add is None else [add])} - {remove})
    write_text(Path(run.folder) / TAGS, "".join(f"{tag}\n" for tag in tags))
    return replace(run, tags=tuple(tags))


def _mapping(path: Path) -> Mapping[str, Data]:
    data = read_json(str(path))[2]
    if not isinstance(data, dict):
        raise ScenarioError("is no document of a run", place=Place(file=str(path)), hint="run it again")
    return data


def _number(results: Mapping[str, Data], *names: str) -> float | None:
    return next((number for name in names if (number := number_in(results.get(name))) is not None), None)


def number_in(value: Data) -> float | None:
    """Return a number of a document; None for anything else, truth among it."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
