"""One run of a study, the input and output of a worker; and many, handed to workers although these may die."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from clustersim.apps.importing.importing import checked_job
from clustersim.apps.importing.opening import imported_job
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_built
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import machine_of_serving, run_serving
from clustersim.apps.serve.served_intervals import served_bar
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.apps.study.axis import canonical, value_text
from clustersim.apps.study.pools import AHEAD, KEPT, WorkerPool, in_order
from clustersim.config.build import build
from clustersim.config.checks import metric_names, metric_values, serving_names, serving_values
from clustersim.config.load import Scenario, ScenarioText
from clustersim.config.overriding import Override
from clustersim.config.serving_scenario import ServingScenario, is_serving
from clustersim.config.usual import ASSUMED_LAUNCH, NOT_SAID, USUAL_SETTINGS
from clustersim.documents.text import Data
from clustersim.errors import InfeasibleError, ScenarioError
from clustersim.measure.deciding import Judged, figures_at
from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.metrics import Metrics
from clustersim.notices import Flag
from clustersim.report.facts import memory_text
from clustersim.topology.cluster import TIERS
from clustersim.units.divisors import count_text
from clustersim.units.grouping import grouped
from clustersim.units.quantity import format_quantity

Status = Literal["ok", "unmet", "infeasible", "failed"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "unmet", "infeasible", "failed")
"""Done; done, but a check of the scenario is false; cannot run or does not fit; something went wrong that should not."""
SIMULATOR: Final = "engine."
"""Beginning of the names of figures about the simulator and not about what it simulates."""
STATES: Final = "memory.states_bytes"
"""Parameters, gradients and optimizer state of the stage with most of them."""
ACTIVATIONS: Final = "memory.activations_bytes"
"""Activations of the stage with most of them."""
LINKS: Final = "links"
"""Before the name of a tier: what all links of it carried in a step, both directions added."""

_FEW: Final = 3
"""Points of the same software that are all named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Scenario that all points of a sweep start from."""

    source: ScenarioText
    changes: tuple[Override, ...] = ()
    seed: int = 0
    imported: str | None = None
    """File of a framework, which is read anew for each point: its batch may follow from its degrees."""

    @property
    def serves(self) -> bool:
        """Whether it is a serving scenario."""
        return is_serving(self.source)

    def any_scenario(self, values: Mapping[str, Data]) -> Scenario | ServingScenario:
        """Return the checked scenario of a point, of training or of serving."""
        if self.imported is not None:
            return imported_job(self.imported, [each.text for each in self._changes(values)])
        return checked_job(self.source, self._changes(values))

    def _changes(self, values: Mapping[str, Data]) -> tuple[Override, ...]:
        return (*self.changes, *(override_of(key, value) for key, value in values.items()))

    def scenario(self, values: Mapping[str, Data]) -> Scenario:
        """Return the checked scenario of a point of a training."""
        found = self.any_scenario(values)
        assert isinstance(found, Scenario)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination of values."""

    number: int
    """In the order of the study, from one."""
    values: Mapping[str, Data]
    """By key of the scenario."""
    name: str = ""
    """Name of a case; empty where the values alone distinguish a point."""

    @property
    def key(self) -> str:
        """Key that distinguishes this point from all others of the same scenario."""
        return canonical(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOutcome:
    """Outcome of one point."""

    status: Status
    reason: str = ""
    """Why it is not ``ok``."""
    scenario_hash: str = ""
    """Hash of the resolved scenario; empty where it could not be built."""
    figures: Mapping[str, float | bool] = field(default_factory=dict[str, float | bool])
    """Metrics by name, also of a plan that does not fit; none where there was no run."""
    bar: ErrorBar | None = None
    """Error bar of its step time, of a serving run that of the time per token; None where there was no run."""
    software: str = ""
    """Settings that were left out and taken as some software has them, which may follow from the values of a point."""
    flags: tuple[Flag, ...] = field(default=(), compare=False)
    """Assumptions of the run; none for a stored run."""

    def judged(self, names: Sequence[str], score: Callable[[Mapping[str, float | bool]], float]) -> Judged | None:
        """Return the point by a score of some figures, the less the better; None without an error bar."""
        bar = self.bar
        if bar is not None and "rate_binds" in self.figures:
            longer = figures_at(self.figures, 2.0)
            bar = served_bar([name for name in names if longer.get(name) != self.figures.get(name)], self.figures, bar.machine)
        if bar is None:
            return None
        return Judged(at=lambda fraction: score(figures_at(self.figures, fraction)), bar=bar, run=self.scenario_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """A point and what came of it."""

    point: Point
    outcome: PointOutcome

    def __repr__(self) -> str:
        """Return the point in one line; all of it is in ``outcome.figures``."""
        step_s = self.outcome.figures.get("step_time_s")
        figure = self.outcome.status if step_s is None else f"{self.outcome.status}, {format_quantity(step_s, 's')} a step"
        return f"<ResultRow {self.point.name or self.point.key}: {figure}>"


def software_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return which settings that are not said differ between rows: then more than the values of the points does."""
    names = grouped((row.outcome.software, row.point.name or f"point {row.point.number}") for row in rows if row.outcome.figures)
    if len(names) < 2:
        return []
    common = {part for part in next(iter(names)).split("; ") if all(part in software.split("; ") for software in names)}
    apart = ((names_of, "; ".join(part for part in software.split("; ") if part not in common)) for software, names_of in names.items())
    told = "; ".join(f"{_some(names_of)}: {software or 'none'}" for names_of, software in apart)
    return [f"Settings left to their defaults differ too; give them to compare the rest alone ({told})"]


def _some(names: Sequence[str]) -> str:
    """Return names, of many the first and the number of others."""
    return ", ".join(names) if len(names) <= _FEW else f"{names[0]} and {len(names) - 1} more"


def figure_names(*, serves: bool = False) -> Mapping[str, bool]:
    """Return the figures of a run of training or of serving, and whether each is true or false and not a number."""
    names = {name: flag for name, flag in (serving_names() if serves else metric_names()).items() if not name.startswith(SIMULATOR)}
    return names if serves else {**names, **dict.fromkeys((STATES, ACTIVATIONS, *(f"{LINKS}.{tier}_bytes" for tier in TIERS)), False)}


def override_of(key: str, value: Data) -> Override:
    """Return a value of a point as ``--set`` has it; with none the key is left out."""
    return Override(path=tuple(key.split(".")), value=value, text=f"{key}={value_text(value)}", leaves_out=value is None)


def evaluate(base: Base, values: Mapping[str, Data]) -> PointOutcome:
    """Return what comes of one point; never raises, since one bad point must not end a sweep."""
    try:
        scenario = base.any_scenario(values)
        if isinstance(scenario, ServingScenario):
            return served_outcome(run_serving(build_serving(scenario, seed=base.seed)))
        return outcome_of(run_built(build(scenario), seed=base.seed))
    except InfeasibleError as error:
        return PointOutcome(status="infeasible", reason=str(error))
    except ScenarioError as error:
        return PointOutcome(status="infeasible", reason=reason_of(error))
    except Exception as error:  # noqa: BLE001 - a bug at one point is kept as its reason, and the others go on
        return PointOutcome(status="failed", reason=_one_line(f"{type(error).__name__}: {error}"))


def outcome_of(result: Result) -> PointOutcome:
    """Return the stored part of a run."""
    memory, sections = result.metrics.memory, {"cost": result.cost, "goodput": result.goodput}
    reason = next((f"a check is false: {check.check}" for check in result.checks if not check.holds), "")
    status: Status = "unmet" if reason else "ok"
    if result.host_shortages:
        status, reason = "infeasible", f"does not fit in memory: {result.host_shortages[0].message}"
    if not memory.fits:
        need, have = memory_text(memory.peak_bytes), memory_text(memory.capacity_bytes)
        status, reason = "infeasible", f"does not fit in memory: {need} of {have}"
    return PointOutcome(
        status=status,
        reason=_one_line(reason),
        scenario_hash=result.scenario_hash,
        figures=_kept({**metric_values(result.metrics, result.time_to_train_s, sections), **_sums(result.metrics)}),
        bar=result.metrics.error_bar,
        software="; ".join(flag.message.removeprefix(NOT_SAID) for flag in result.flags if flag.code in (USUAL_SETTINGS, ASSUMED_LAUNCH)),
        flags=result.flags,
    )


def served_outcome(result: ServingResult) -> PointOutcome:
    """Return the stored part of a serving run."""
    slo, refused = result.metrics.slo, result.metrics.requests.refused
    reason = next((f"{check.name} is not kept" for check in slo.checks if not check.holds), "") if slo is not None else ""
    reason = f"{count_text(refused, 'request')} too long for the model, or larger than the KV cache" if refused else reason
    figures = _kept(serving_values(result.metrics))
    return PointOutcome(
        status="ok" if result.ok else "unmet",
        reason=reason,
        scenario_hash=result.scenario_hash,
        figures=figures,
        bar=served_bar(("tpot_s",), figures, machine_of_serving(result.built)),
    )


def _sums(metrics: Metrics) -> dict[str, float]:
    stages = metrics.memory.by_stage
    states = max(stage.parameters_bytes + stage.gradients_bytes + stage.optimizer_bytes for stage in stages)
    links = {f"{LINKS}.{tier}_bytes": 0.0 for tier in TIERS} | {f"{LINKS}.{use.tier}_bytes": use.bytes for use in metrics.links}
    return {STATES: states, ACTIVATIONS: max(stage.activations_bytes for stage in stages), **links}


def _kept(values: Mapping[str, float | bool]) -> dict[str, float | bool]:
    kept = {name: value for name, value in values.items() if not name.startswith(SIMULATOR) and math.isfinite(value)}
    # Plain numbers: those of numpy would be written in another way.
    return {name: value if isinstance(value, bool | int) else float(value) for name, value in kept.items()}


def reason_of(error: ScenarioError) -> str:
    """Return an error in one line without its place: the values stand beside it."""
    head = f"{error.field}: " if error.field else ""
    return _one_line(f"{head}{error.message}" + (f"; {error.hint}" if error.hint else ""))


def _one_line(text: str) -> str:
    return " ".join(text.split())


MOST_DEATHS: Final = 2
"""Workers that a point may take with it, while nothing else is at work, before it counts as failed."""
_PATIENCE_S: Final = 0.5
"""Time between checks for Ctrl-C, in seconds, where waiting would not notice it."""


class _Handing:
    """Points that wait, points at work, and points that were at work when a worker died."""

    def __init__(self, base: Base, points: Sequence[Point], pool: WorkerPool) -> None:
        self.base, self.pool = base, pool
        self.waiting = deque(points)
        self.suspects = deque[Point]()
        self.deaths: dict[int, int] = {}
        self.running: dict[Future[PointOutcome], Point] = {}

    def hand_out(self) -> None:
        """Keep all workers busy; a suspect runs alone, to identify the one that killed its worker."""
        if self.suspects:
            if not self.running:
                self._submit(self.suspects)
            return
        if any(point.number in self.deaths for point in self.running.values()):
            return
        while self.waiting and len(self.running) < AHEAD * self.pool.n_workers and self._submit(self.waiting):
            pass

    def _submit(self, queue: deque[Point]) -> bool:
        """Hand out the first point of a queue, and return whether it was taken."""
        try:
            future = self.pool.executor.submit(evaluate, self.base, queue[0].values)
        except BrokenExecutor:
            if not self.running:
                self.pool.renew()
            # Else what is running will say so too, and is tried again.
            return False
        self.running[future] = queue.popleft()
        return True

    def collect(self) -> Iterator[tuple[Point, PointOutcome]]:
        """Yield what has finished since the last time."""
        done, _ = wait(self.running, timeout=_PATIENCE_S, return_when=FIRST_COMPLETED)
        if not done:
            self.pool.check()
        for future in sorted(done, key=lambda each: self.running[each].number):
            error = None if future.cancelled() else future.exception()
            if isinstance(error, BrokenExecutor):
                continue
            point = self.running.pop(future)
            if future.cancelled() or isinstance(error, CancelledError):
                raise ScenarioError("the scheduler gave up the work", hint=KEPT)
            yield point, future.result() if error is None else _lost(f"{type(error).__name__}: {error}")
        if any(not each.cancelled() and isinstance(each.exception(), BrokenExecutor) for each in done):
            yield from self._after_death()

    def _after_death(self) -> Iterator[tuple[Point, PointOutcome]]:
        lost = sorted(self.running.values(), key=lambda point: point.number)
        if len(lost) == 1:
            (point,) = lost
            self.deaths[point.number] = self.deaths.get(point.number, 0) + 1
            if self.deaths[point.number] >= MOST_DEATHS:
                lost = []
                yield point, _lost("the worker died each time: killed, or out of memory")
        for point in lost:
            self.deaths.setdefault(point.number, 0)
        self.suspects.extend(lost)
        self.running.clear()
        self.pool.renew()


def run_points(base: Base, points: Sequence[Point], pool: WorkerPool) -> Iterator[tuple[Point, PointOutcome]]:
    """Yield each point with what came of it, in the order in which they finish.

    Where a worker dies, all are started anew and what was at work is tried again, point by point.
    """
    handing = _Handing(base, points, pool)
    while handing.waiting or handing.suspects or handing.running:
        handing.hand_out()
        yield from handing.collect()


def evaluated(base: Base, points: Sequence[Point], *, jobs: int | None = 1) -> tuple[ResultRow, ...]:
    """Return what comes of some points, in their order.

    Parameters
    ----------
    jobs
        Processes, None for one for each processor.
    """
    outcomes = in_order(partial(evaluate, base), [point.values for point in points], jobs=jobs)
    return tuple(ResultRow(point=point, outcome=outcome) for point, outcome in zip(points, outcomes, strict=True))


def _lost(reason: str) -> PointOutcome:
    return PointOutcome(status="failed", reason=" ".join(reason.split()))
