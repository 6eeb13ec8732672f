"""Explain a run: its chain of tasks, its figures, their constants, and what would shorten the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clustersim.apps.compare.run_directories import named_directory, replayed
from clustersim.apps.explain.candidates import Gain, Gains, candidates, gains
from clustersim.apps.explain.constants import Constant, constants_of
from clustersim.apps.explain.formulas import Explained, explained
from clustersim.apps.explain.served import ServedExplanation, explain_served
from clustersim.apps.explain.unsaid import Unsaid, unsaid
from clustersim.apps.importing.importing import foreign_source
from clustersim.apps.run.replaying import Conditions, critical_path_of
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_scenario
from clustersim.apps.serve.result import ServingResult
from clustersim.collection import collection_paused
from clustersim.config.build import Built
from clustersim.config.load import read_source
from clustersim.config.overriding import parse_override
from clustersim.errors import ScenarioError
from clustersim.hardware.mixed import calibration_of
from clustersim.report.facts import percent_text
from clustersim.trace.slack import CriticalPath


def critical_path(built: Built, *, seed: int = 0) -> CriticalPath:
    """Return which chain of tasks sets the time of one step, and the slack of everything else.

    The step is replayed by itself, without other jobs, background or what varies from step to step.

    Raises
    ------
    ScenarioError
        When workers go at their own pace, so that no chain sets the step time.
    """
    mode = built.plan.strategy.data_parallel.mode
    if mode != "sync":
        message = f"with mode {mode} workers do not wait for each other, and no chain of tasks sets the step time"
        raise ScenarioError(message, field="strategy.data_parallel.mode", hint="use mode: sync")
    calibration = calibration_of([node for node, _ in built.cluster.kinds])
    with collection_paused():
        return critical_path_of(built.plan, built.cluster, calibration, Conditions(uneven=built.uneven, seed=seed))


MOST_EVENTS: Final = 5_000
"""Most events of a replay after which changes are measured as well: some twenty of them take a few seconds."""
N_TOLD: Final = 3
"""Changes in the report of a run."""


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
    unsaid: tuple[Unsaid, ...] = ()
    """Settings of the software that nobody gave and that decide; none where changes were not asked for."""


def explain(source: str, overrides: Sequence[str] = (), *, seed: int = 0, changes: bool = True) -> Explanation | ServedExplanation:
    """Return why the step of a scenario, or the requests of a service, take as long as they do.

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
        result = run_scenario(written, changed, seed=seed)
    if isinstance(result, ServingResult):
        return explain_served(written, changed, result, replays=changes)
    built = result.built
    return Explanation(
        result=result,
        path=critical_path(built, seed=result.seed) if built.plan.strategy.data_parallel.mode == "sync" else None,
        figures=explained(result),
        constants=constants_of(built),
        gains=gains(written, changed, result, candidates(built)) if changes else None,
        unsaid=unsaid(written, changed, result) if changes else (),
    )


def measured_changes(source: str, overrides: Sequence[str], result: Result) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the changes that shorten a step most, and settings that nobody gave and that decide, each replayed, as sentences.

    None for a run that takes many events to replay, does not fit in memory, or is not from a scenario that can be read again.
    """
    if source == "-" or foreign_source(source) or not result.metrics.memory.fits or result.metrics.engine.events > MOST_EVENTS:
        return (), ()
    if result.built.plan.strategy.data_parallel.mode != "sync":
        return (), ()
    written, changed = read_source(source), tuple(parse_override(text) for text in overrides)
    best = gains(written, changed, result, candidates(result.built)).best
    found = unsaid(written, changed, result)
    return tuple(_change_text(gain, result.step_time_s) for gain in best[:N_TOLD]), tuple(each.sentence for each in found[:N_TOLD])


def _change_text(gain: Gain, step_s: float) -> str:
    remark = f" ({gain.change.remark})" if gain.change.remark else ""
    doubt = ", not decided" if gain.better_than_base == "not decided" else ""
    options = " ".join(f"-s {override}" for override in gain.change.overrides)
    return f"-{percent_text(gain.saved_s / step_s)}{doubt}: {gain.change.what}{remark}; {options}"
