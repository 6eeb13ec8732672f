"""Runs to compare: read from directories, simulated, or measured in logs."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from clustersim.apps.compare.run_directories import RESOLVED, RESULTS, is_served, named_directory, number_in, read_results
from clustersim.apps.compare.side_by_side import ComparedFigure, ComparedRun, Difference, SideBySide
from clustersim.apps.importing.entries import LoggedSteps
from clustersim.apps.importing.importing import foreign_source
from clustersim.apps.importing.opening import open_job, open_measured, open_steps
from clustersim.apps.run.result import Result
from clustersim.apps.run.rundir import results_document
from clustersim.apps.run.running import run_built
from clustersim.apps.run.simulation import SCHEMA_VERSION
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.build import build
from clustersim.config.load import Scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.files import STDIN
from clustersim.documents.text import Data, read_document
from clustersim.errors import InfeasibleError, Place, ScenarioError
from clustersim.measure.deciding import figures_at

_MEASURED: Final = (
    *("ranks", "gpus", "step_time_s", "samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu", "model_flops_per_step"),
    *("hardware_flops_per_step", "tflops_per_gpu", "mfu", "hfu"),
)
"""Figures that follow from the step time and the model alone."""
_ABOUT_THE_RUN: Final = ("schema_version", "engine.events", "engine.n_tasks", "engine.wall_s")
"""Figures of the simulator and not of what it simulates."""


def load_run(source: str, overrides: Sequence[str] = (), *, seed: int = 0, beside: ComparedRun | None = None) -> ComparedRun:
    """Return a run: read from its directory, or simulated from a scenario.

    Parameters
    ----------
    source
        A run directory, or one that holds a single one; a scenario file, a shipped name, or ``-``; a log, which is measured.
    overrides
        ``key=value`` texts for a scenario.
    seed
        Of everything random in a scenario.
    beside
        Prediction that it is held against: of the job of a log without its arguments, on the machine of one that names no accelerators.

    Raises
    ------
    ScenarioError
        When there is neither, or the directory is not one of this version.
    InfeasibleError
        When the scenario cannot run.
    """
    folder = named_directory(source, overrides)
    if folder is not None:
        return _read(source, folder)
    if beside is not None and (steps := open_steps(source)) is not None:
        return measured_run(source, beside, steps, note=f"{source} holds no arguments: taken as of {beside.name}")
    logged = open_measured(source, overrides, _machine_of(beside))
    if logged is not None:
        note = f"{source} names no accelerators: taken as run on the machine that it is held against" if logged[2] else None
        return measured_run(source, predicted_run(source, logged[0]), logged[1], note=note)
    with _named(source):
        job = open_job(source, overrides)
        result = run_serving(build_serving(job, seed=seed)) if isinstance(job, ServingScenario) else run_built(build(job), seed=seed)
    return run_of(result, source)


def check_kinds(sources: Sequence[str]) -> None:
    """Refuse runs to train beside runs to serve, before any is simulated; what a log or stdin holds is seen when it is read.

    Raises
    ------
    ScenarioError
        When there are both, or a source is none.
    """
    kinds: dict[str, bool] = {}
    for source in sources:
        if source != STDIN and not foreign_source(source):
            with _named(source):
                folder = named_directory(source)
                kinds[source] = is_served(source) if folder is None else _read(source, folder).serves
    _check_alike(list(kinds.items()))


def _check_alike(kinds: Sequence[tuple[str, bool]]) -> None:
    """Refuse runs that serve requests beside others, by their names."""
    for name, serves in kinds:
        if serves != kinds[0][1]:
            does, did = ("serves requests", "trains") if serves else ("trains", "serves requests")
            raise ScenarioError(f"{name} {does}, and {kinds[0][0]} {did}", hint="hold runs of one kind against each other")


@contextmanager
def _named(source: str) -> Generator[None]:
    """Say in errors which source they are about, and that a run directory may be one."""
    try:
        yield
    except InfeasibleError as error:
        raise InfeasibleError(f"{source}: {error}") from error
    except ScenarioError as error:
        if error.place is None and not Path(source).suffix:
            raise ScenarioError(
                error.message, hint=f"{error.hint}; or name a run directory" if error.hint else "name a scenario or a run directory"
            ) from error
        raise


def _machine_of(run: ComparedRun | None) -> tuple[str, ...]:
    """Return the cluster of a run, but for its size, as changes."""
    cluster = None if run is None else run.resolved.get("cluster")
    keys = cluster.items() if isinstance(cluster, dict) else ()
    return tuple(f"cluster.{key}={json.dumps(value)}" for key, value in keys if key != "nodes")


def run_of(result: Result | ServingResult, source: str) -> ComparedRun:
    """Return a result as a run that others can be held against."""
    return ComparedRun(
        source=source,
        name=result.metrics.scenario,
        scenario_hash=result.scenario_hash,
        resolved=result.resolved,
        results=results_document(result),
    )


def predicted_run(source: str, scenario: Scenario, *, seed: int = 0) -> ComparedRun:
    """Return the prediction of the scenario that a log describes."""
    return run_of(run_built(build(scenario), seed=seed), source)


def measured_run(source: str, predicted: ComparedRun, measured: LoggedSteps, *, note: str | None = None) -> ComparedRun:
    """Return the measured step time of a log beside its prediction, and the rates that follow from it with the FLOPs of the model.

    The timer of the optimizer stands where predictions have theirs; others have names of their own, as they count otherwise.
    """
    kept = {key: value for key, value in predicted.results.items() if key in _MEASURED and isinstance(value, int | float)}
    seconds = predicted.results.get("step_time_s")
    if not isinstance(seconds, int | float):
        raise ScenarioError("measures training, and the run beside it serves", place=Place(file=source), hint="name a scenario of training")
    results: dict[str, Data] = dict(figures_at(kept, measured.step_time_s / seconds))
    timers: dict[str, Data] = dict(measured.timers_s)
    optimizer = timers.pop("optimizer", None)
    if optimizer is not None:
        results["breakdown_s"] = {"optimizer": optimizer}
    if timers:
        results["timers_s"] = timers
    return replace(predicted, source=source, name=f"{predicted.name} (measured)", results=results, measured=True, note=note)


def compare(*runs: Result | ServingResult | str) -> SideBySide:
    """Hold runs against the first.

    Parameters
    ----------
    runs
        Results of :func:`clustersim.run`; or run directories, scenario files or shipped names.

    Examples
    --------
    >>> [difference.key for difference in compare("1f1b", "zb-h1").differences][0]
    'strategy.schedule'
    """
    return side_by_side([load_run(each) if isinstance(each, str) else run_of(each, each.metrics.scenario) for each in runs])


def side_by_side(runs: Sequence[ComparedRun]) -> SideBySide:
    """Return runs side by side.

    Raises
    ------
    ScenarioError
        When some train and some serve, which have hardly a figure in common.
    """
    _check_alike([(run.name, run.serves) for run in runs])
    return SideBySide(
        runs=tuple(runs),
        labels=_labels(runs),
        differences=_differences([run.resolved for run in runs]),
        figures=_figures([run.results for run in runs]),
    )


def _read(source: str, folder: Path) -> ComparedRun:
    results = read_results(folder)
    version = results.get("schema_version")
    if version != SCHEMA_VERSION:
        message = f"is of schema version {version}, and this is version {SCHEMA_VERSION}"
        raise ScenarioError(message, place=Place(file=str(folder / RESULTS)), hint=f"run {folder / 'scenario.yaml'} again")
    return ComparedRun(
        source=source,
        name=str(results.get("scenario", folder.parent.name)),
        scenario_hash=str(results["scenario_hash"]),
        resolved=read_document(folder / RESOLVED).data,
        results=results,
    )


def _labels(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Return the names of runs, made unique where two are equal."""
    names = [run.name for run in runs]
    labels: list[str] = []
    for run in runs:
        label = run.name if names.count(run.name) == 1 else f"{run.name} {run.scenario_hash}"
        labels.append(
            label if label not in labels else f"{label} ({labels.count(label) + sum(each.startswith(f'{label} (') for each in labels) + 1})"
        )
    return tuple(labels)


def _differences(resolved: Sequence[Mapping[str, Data]]) -> tuple[Difference, ...]:
    flat = [dict(_flat(each)) for each in resolved]
    keys = dict.fromkeys(key for each in flat for key in each if key not in {"name", "version", "assumed"})
    rows = [Difference(key=key, values=tuple(each.get(key) for each in flat)) for key in keys]
    return tuple(row for row in rows if any(value != row.values[0] for value in row.values))


def _figures(results: Sequence[Mapping[str, Data]]) -> tuple[ComparedFigure, ...]:
    flat = [{key: number for key, value in _flat(each) if (number := number_in(value)) is not None} for each in results]
    keys = dict.fromkeys(key for each in flat for key in each if key not in _ABOUT_THE_RUN)
    return tuple(ComparedFigure(key=key, values=tuple(each.get(key) for each in flat)) for key in keys)


def _flat(data: Mapping[str, Data], prefix: str = "") -> Iterator[tuple[str, Data]]:
    """Yield dotted keys and what stands there; lists stay whole, and of empty mappings there is nothing."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
