"""Published runs, measured and predicted: one row, or many in several processes, with what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from clustersim.apps.run.bound import peak_s
from clustersim.apps.run.intervals import machine_of, run_kind
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_built
from clustersim.apps.study.pools import in_order
from clustersim.apps.validate.capabilities import capabilities_of
from clustersim.apps.validate.sources import MeasuredSpec, PublishedSource, Quality, RowSpec
from clustersim.collection import collection_paused
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.errors import ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.measure.error_bars import RunKind
from clustersim.measure.metrics import Parallelism
from clustersim.notices import Flag
from clustersim.parallel.contributors.model_state import FRAMEWORK_BYTES
from clustersim.parallel.step_settings import Training
from clustersim.report.shares import PART_LABELS, step_seconds
from clustersim.units.grouping import grouped
from clustersim.workloads.reading.model_spec import MEASURED_SPEED


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """Place of publication of a measurement."""

    table: str
    row: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """One published run, measured and predicted."""

    id: str
    source: RowPlace
    quality: Quality
    """A: the source says all that matters; B: one or two things had to be assumed."""
    model: str
    accelerator: str
    machine: str
    """Machine of its error bar: rows with the same one ran on the same hardware."""
    generation: str
    """Generation of the accelerator."""
    gpus: int
    parallelism: Parallelism
    virtual_stages: int
    global_batch_size: int
    seq_length: int
    measured_s: float
    derived_from: str | None
    """Figure from which the measured step time was computed, where the source does not print it."""
    predicted_s: float
    """Predicted step time, in seconds; nearest to the measured one where a deciding key is hidden."""
    predicted_range_s: tuple[float, float] | None
    """The least and the most over all values of what is hidden; None where nothing is."""
    bound_s: float | None
    """Lower bound of the replay, in seconds: no prediction of the layout is shorter; the least over all values of what is hidden. None
    where nobody asked."""
    peak_s: float
    """Lower bound of a step at the peak of the data sheet, in seconds. A measurement below it exposes a wrong input."""
    error_fraction: float
    """Predicted over measured step time, less one."""
    interval_s: tuple[float, float] | None
    """Expected interval of the step time in seconds, by the error bars of other sources; None where nothing is known of them."""
    kind: RunKind
    """Words that make its error larger."""
    capabilities: tuple[str, ...]
    """Capabilities that it makes use of."""
    features: Mapping[str, float]
    """Features that tell it apart from other rows, by name."""
    fits: bool
    """Whether the run, which did fit, is predicted to."""
    peak_bytes: float
    capacity_bytes: float
    measured_peak_bytes: float | None
    memory_error_fraction: float | None
    """Predicted over measured peak, less one; None where the source prints none."""
    assumed: tuple[str, ...]
    """Facts that the source does not state about the run."""
    explained: str | None
    """Why it is far off, where it is and somebody knows."""
    flags: tuple[Flag, ...]

    @property
    def speed_given(self) -> bool:
        """Whether the speed of one accelerator alone is that of the source, so that the error is that of communication."""
        return MEASURED_SPEED in {flag.code for flag in self.flags}

    @property
    def scored(self) -> bool:
        """Whether the error is that of a whole step: nothing that decides it is hidden, and its computation is predicted."""
        return self.predicted_range_s is None and not self.speed_given

    @property
    def covered(self) -> bool | None:
        """Whether the measured step time is in the interval; None without one."""
        return None if self.interval_s is None else self.interval_s[0] <= self.measured_s <= self.interval_s[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfitResult:
    """A run that ran out of memory, and the peak that is predicted for it."""

    id: str
    source: RowPlace
    fits: bool
    """True where the prediction is wrong."""
    peak_bytes: float
    capacity_bytes: float
    assumed: tuple[str, ...]


def run_misfit(source: PublishedSource, index: int) -> MisfitResult:
    """Return what is predicted of a run that ran out of memory."""
    row, memory = source.spec.out_of_memory[index], run_built(build(load_scenario(source.misfit(index))), varies=False).metrics.memory
    return MisfitResult(
        id=row.id,
        source=RowPlace(table=row.source.table, row=row.source.row, url=row.source.url or source.spec.urls[0]),
        fits=memory.fits,
        peak_bytes=memory.peak_bytes,
        capacity_bytes=memory.capacity_bytes,
        assumed=tuple(row.assumed),
    )


def step_time_of(measured: MeasuredSpec, training: Training, n_ranks: int) -> tuple[float, str | None]:
    """Return the measured time of a step in seconds, and from which printed rate it follows; None where it was printed itself."""
    if measured.samples_per_s is not None:
        return training.global_batch_size / measured.samples_per_s, "the printed samples per second"
    if measured.tokens_per_s_per_gpu is not None:
        tokens = training.global_batch_size * training.seq_length
        return tokens / (measured.tokens_per_s_per_gpu * n_ranks), "the printed tokens per second and GPU"
    assert measured.step_time is not None  # a row says one of the three
    return measured.step_time, None


def possible(results: list[Result]) -> list[Result]:
    """Return those of some results that fit in memory, or all where none does: a run that took place had a setting that fits."""
    return [result for result in results if result.metrics.memory.fits] or results


def _row_result(source: PublishedSource, row: RowSpec, results: list[Result]) -> RowResult:
    measured = row.measured
    measured_s, method = step_time_of(measured, results[0].built.plan.training, results[0].metrics.ranks)
    able = possible(results)
    times_s = [result.step_time_s for result in able]
    result = min(able, key=lambda each: abs(each.step_time_s - measured_s))
    predicted_s = min(max(measured_s, min(times_s)), max(times_s)) if row.hidden else result.step_time_s
    metrics, plan, cluster = result.metrics, result.built.plan, result.built.cluster
    peak_bytes = metrics.memory.peak_bytes - (0.0 if measured.allocated is None else FRAMEWORK_BYTES)
    held_bytes = measured.memory if measured.allocated is None else measured.allocated
    return RowResult(
        id=row.id,
        source=RowPlace(table=row.source.table, row=row.source.row, url=row.source.url or source.spec.urls[0]),
        quality=row.quality,
        model=plan.model.name,
        accelerator=cluster.node.accelerator.name,
        machine=machine_of(result.built),
        generation=cluster.node.accelerator.generation,
        gpus=metrics.gpus,
        parallelism=metrics.parallelism,
        virtual_stages=plan.strategy.virtual_stages,
        global_batch_size=plan.training.global_batch_size,
        seq_length=plan.training.seq_length,
        measured_s=measured_s,
        derived_from=row.derived_from or method,
        predicted_s=predicted_s,
        predicted_range_s=(min(times_s), max(times_s)) if row.hidden else None,
        bound_s=None,
        peak_s=min(peak_s(each.built) for each in able),
        error_fraction=predicted_s / measured_s - 1.0,
        interval_s=None,
        kind=run_kind(plan.model, metrics.step_time_s, metrics.flags),
        capabilities=capabilities_of(result),
        features=features_of(result),
        fits=metrics.memory.fits,
        peak_bytes=peak_bytes,
        capacity_bytes=metrics.memory.capacity_bytes,
        measured_peak_bytes=held_bytes,
        memory_error_fraction=None if held_bytes is None or row.hidden else peak_bytes / held_bytes - 1.0,
        assumed=tuple(row.assumed),
        explained=source.spec.explained.get(row.id),
        flags=metrics.flags,
    )


def _fitted(source: PublishedSource, row: RowSpec, result: Result) -> tuple[str, ...]:
    """Return the keys of the scenario that were fitted to the rows, and the calibration constants whose source is also that of the row."""
    addresses = {*source.spec.urls, row.source.url}
    calibration = calibration_for(result.built.cluster.node.accelerator)
    cited = (f"{calibration.name}.{constant}" for each in calibration.sources if each.url in addresses for constant in each.covers)
    return (*source.spec.fitted, *cited)


LAYOUT: Final = MappingProxyType(
    {
        "dp": "replicas",
        "tp": "tensor-parallel degree",
        "pp": "pipeline stages",
        "cp": "context-parallel degree",
        "ep": "expert-parallel degree",
    }
)


def features_of(result: Result) -> Mapping[str, float]:
    """Return the features of a run by name: degrees and sizes, shares of the predicted step, and the share of memory that it fills."""
    plan, metrics = result.built.plan, result.metrics
    training, degrees = plan.training, metrics.parallelism
    sizes = {
        **{name: float(getattr(degrees, key)) for key, name in LAYOUT.items()},
        "accelerators": float(metrics.gpus),
        "micro-batch": float(training.micro_batch_size),
        "micro-batches": training.global_batch_size / (training.micro_batch_size * degrees.dp),
        "tokens of a sequence": float(training.seq_length),
        "share of memory": metrics.memory.peak_bytes / metrics.memory.capacity_bytes,
    }
    step_s = metrics.step_time_s
    return sizes | {f"share of {PART_LABELS[part]}": seconds / step_s for part, seconds in step_seconds(metrics).items()}


Wanted = tuple[PublishedSource, int]
"""A source, and the number of a row in it, from zero."""
Ran = tuple[RowResult, tuple[str, ...]]
"""A row, and the calibration constants that were fitted to its source."""
ROWS_AT_ONCE: Final = 8
"""Unlike scenarios that a process is given: few enough that none is left alone with the last ones."""


def run_rows(wanted: Sequence[Wanted], *, jobs: int | None = 1, bounds: bool = True, refused: bool = False) -> list[Ran | str]:
    """Return the results of some rows, in their order, however many processes simulate them.

    Parameters
    ----------
    jobs
        Processes; None for one for each processor.
    bounds
        Whether to find lower bounds, and whether contention makes rows chaotic: for each of them a step is replayed once more.
    refused
        Whether a row that is refused has the reason in its place.

    Raises
    ------
    ScenarioError
        When a row is refused, with the place in the file of its source.
    """
    results: dict[int, Ran | str] = {}
    # What several releases were measured on is one scenario, and is simulated once.
    places = list(grouped((source.simulated(index), place) for place, (source, index) in enumerate(wanted)).values())
    alike = [[source.alone(index) for source, index in map(wanted.__getitem__, each)] for each in places]
    with closing(in_order(partial(_run, bounds), alike, jobs=jobs, chunk=ROWS_AT_ONCE)) as found:
        for place, ran in ((place, ran) for each, rows in zip(places, found, strict=True) for place, ran in zip(each, rows, strict=True)):
            source, index = wanted[place]
            if isinstance(ran, ScenarioError) and not refused:
                raise source.located(ran, index)
            results[place] = str(source.located(ran, index)) if isinstance(ran, ScenarioError) else ran
    return [results[place] for place in range(len(wanted))]


@collection_paused()
def _run(bounds: bool, alike: Sequence[PublishedSource]) -> list[Ran] | list[ScenarioError]:  # noqa: FBT001
    """Return the rows of some sources that have one each, all of one scenario, or why it is refused."""
    try:
        results = [run_built(build(load_scenario(scenario)), varies=bounds) for scenario in alike[0].alternatives(0)]
        bound_s = min(result.bounds.bound_s for result in possible(results)) if bounds else None
        rows = [(source, source.spec.rows[0]) for source in alike]
        return [(replace(_row_result(source, row, results), bound_s=bound_s), _fitted(source, row, results[0])) for source, row in rows]
    except ScenarioError as error:
        return [error] * len(alike)
