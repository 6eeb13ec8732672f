"""The numbers a run ends with, in the order in which `run --json` prints them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.expert_report import ExpertsReport
from clustersim.measure.steps_report import StepsReport
from clustersim.notices import Flag
from clustersim.trace.timeline import CollectiveChoice, EngineStats, Meeting

COMMUNICATION: Final = ("tp", "cp", "ep", "pp", "dp", "ps", "offload")


def by_dimension(times: ByDimension) -> dict[str, float]:
    """Return seconds for each dimension, in the order of :data:`COMMUNICATION`."""
    found = {"tp": times.tp, "cp": times.cp, "ep": times.ep, "pp": times.pp, "dp": times.dp, "ps": times.ps, "offload": times.offload}
    return {dimension: found[dimension] for dimension in COMMUNICATION}


def nine_digits(value: float) -> float:
    """Return a value to nine significant digits: those that differ in round-off alone are equal.

    Examples
    --------
    >>> nine_digits(0.1 + 0.2) == nine_digits(0.3)
    True
    """
    return float(f"{value:.9g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of parallelism."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDimension:
    """Seconds of communication for each parallel dimension."""

    tp: float = 0.0
    pp: float = 0.0
    dp: float = 0.0
    ep: float = 0.0
    cp: float = 0.0
    ps: float = 0.0
    offload: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Mean over ranks of what the step time went to; the parts sum to it."""

    compute: float
    exposed_communication: ByDimension
    bubble: float
    stall: float
    optimizer: float
    host: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Peak memory of one rank of a stage, by what it holds."""

    stage: int
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    peak_bytes: float
    peak_at_s: float | None = None
    """When it is reached first, counted from the start of the first step; None for a plan that was not replayed."""
    peak_during: str | None = None
    """Task that runs at the peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Whether it fits, and the stage that needs most."""

    fits: bool
    """Whether the predicted peak is within the capacity."""
    capacity_bytes: float
    peak_bytes: float
    by_stage: tuple[StageMemory, ...]
    verdict: str | None = None
    """``fits``, ``tight`` or ``does not fit``, by what was measured beside predicted peaks; None where nobody asked."""
    peak_interval_bytes: tuple[float, float] | None = None
    """The least and the most that the peak of such a run is expected to be; None where nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierUse:
    """Use of all links of one tier."""

    tier: str
    mean_utilisation: float
    peak_utilisation: float
    bytes: float
    """All links together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyLink:
    """Use of one group of equal links."""

    name: str
    """The first of them."""
    tier: str
    n_links: int
    bytes: float
    """On one link."""
    mean_utilisation: float
    peak_utilisation: float
    users: tuple[str, ...]
    """Dimension and operation of what crossed it."""
    meetings: tuple[Meeting, ...]
    """Which of them were on it at the same time, longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Results of another job on the same cluster during the step."""

    name: str
    nodes: tuple[int, ...]
    ranks: int
    steps: int
    """Finished."""
    step_time_s: float | None
    """Mean of these; None without any."""
    step_time_alone_s: float
    """With nothing else on the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """A group of equal links on which traffic of several jobs met, and each slowed the others down."""

    name: str
    """The first of them."""
    tier: str
    n_links: int
    jobs: tuple[str, ...]
    """Those that met, the scenario's own under the name of the scenario."""
    contended_s: float
    """Time of the step with traffic of all of them at once, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One training step in numbers; field names and order are those of `run --json`."""

    schema_version: int
    scenario: str
    ranks: int
    gpus: int
    parallelism: Parallelism
    step_time_s: float
    step_time_interval_s: tuple[float, float] | None = None
    """The least and the most that such a step is expected to take, from published runs of its kind; None where nobody asked."""
    step_time_interval_level_fraction: float | None = None
    """Share of such runs that is expected in there."""
    step_time_interval_kind: str | None = None
    """The kind of runs, in words."""
    error_bar: ErrorBar | None = None
    """By which the run is compared with others; None where nobody asked."""
    samples_per_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_flops_per_step: float
    hardware_flops_per_step: float
    tflops_per_gpu: float
    mfu: float
    hfu: float
    breakdown_s: Breakdown
    overlapped_communication_s: ByDimension
    bubble_fraction: float
    memory: Memory
    links: tuple[TierUse, ...]
    busiest_links: tuple[BusyLink, ...]
    """Those that carry most, for their bandwidth; all of them are in links.csv."""
    collectives: tuple[CollectiveChoice, ...]
    step_time_alone_s: float | None = None
    """Without other jobs and background; None where there are none."""
    jobs: tuple[JobReport, ...] = ()
    shared_links: tuple[SharedLink, ...] = ()
    """Links with contention between jobs, longest first; empty without any."""
    steps: StepsReport | None = None
    """Statistics of steps, where several were replayed, or ranks are not alike; times above are means."""
    experts: ExpertsReport | None = None
    """Distribution of tokens over experts, for a model with experts."""
    engine: EngineStats
    """Statistics of the replay; ``wall_s`` is the only figure that differs between equal runs."""
    flags: tuple[Flag, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the document that `run --json` prints."""
        return asdict(self)
