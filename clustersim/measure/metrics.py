"""The numbers a run ends with, in the order in which `run --json` prints them, those of bounds and experts included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Final

from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.steps_report import StepsReport
from clustersim.notices import Flag
from clustersim.trace.timeline import CollectiveChoice, EngineStats, Meeting, Timeline
from clustersim.units.quantity import format_quantity

COMMUNICATION: Final = ("tp", "cp", "ep", "pp", "dp", "ps", "offload")


def by_dimension(times: ByDimension) -> dict[str, float]:
    """Return seconds for each dimension, in the order of :data:`COMMUNICATION`."""
    return {dimension: getattr(times, dimension) for dimension in COMMUNICATION}


def nine_digits(value: float) -> float:
    """Return a value to nine significant digits, which removes round-off.

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
    """Mean over ranks of the parts of the step time; they sum to it."""

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
    """``fits``, ``tight`` or ``does not fit``, by measured and predicted peaks; None without an error bar."""
    peak_interval_bytes: tuple[float, float] | None = None
    """Interval of the peak; None without an error bar."""


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
    """A group of equal links with contention among several jobs."""

    name: str
    """The first of them."""
    tier: str
    n_links: int
    jobs: tuple[str, ...]
    """The jobs, the scenario's own under the name of the scenario."""
    contended_s: float
    """Time of the step with concurrent traffic of all of them, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One training step in numbers; field names and order are those of `run --json`.

    Names end in their unit, in SI. docs/reference/results.md has all of them.

    Attributes
    ----------
    step_time_s, step_time_interval_s
        Time of a step, and its interval from published runs.
    tokens_per_s, tokens_per_s_per_gpu, samples_per_s
        Throughput, of all GPUs and of one.
    mfu, hfu, tflops_per_gpu
        FLOPs of the model, and with those computed again, over the dense peak; those of the model on one GPU.
    breakdown_s, overlapped_communication_s
        Parts of the step, which sum to it, and communication beside computation: means over ranks.
    bubble_fraction
        Share of the step in which ranks wait for other pipeline stages.
    memory
        Peak of each stage, by kind; whether it fits.
    links, collectives
        Use of links by tier, and the algorithms of the largest collectives.
    """

    schema_version: int
    scenario: str
    ranks: int
    gpus: int
    accelerators: str = ""
    """Names of their kinds."""
    domains: str = ""
    """Nodes and their NVLink domains in words; empty where none spans several nodes."""
    parallelism: Parallelism
    trained: str = ""
    """Adapters and packed documents in words; empty where all weights are trained on whole sequences."""
    step_time_s: float
    step_time_interval_s: tuple[float, float] | None = None
    """Interval of the step time from published runs of its kind; None without an error bar."""
    step_time_interval_level_fraction: float | None = None
    """Share of such runs that is expected in there."""
    step_time_interval_kind: str | None = None
    """The kind of runs, in words."""
    error_bar: ErrorBar | None = None
    """Error bar for comparisons; None without an error bar."""
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
    """Statistics of steps, where several were replayed or ranks differ; times above are means."""
    experts: ExpertsReport | None = None
    """Distribution of tokens over experts, for a model with experts."""
    engine: EngineStats
    """Statistics of the replay; ``wall_s`` is the only figure that differs between equal runs."""
    flags: tuple[Flag, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the document that `run --json` prints."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPart:
    """One part of the longest path through a step."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsReport:
    """The lower bound of the step time: the same Program without contention; the longer of two figures."""

    bound_s: float
    path_s: float
    """Longest path through all tasks, each on links that nothing else uses, in seconds."""
    link_s: float
    """Longest time that a link needs for its bytes at its data-sheet bandwidth, in seconds."""
    peak_s: float
    """The model's FLOPs without masked attention, at the peak of the data sheets: a lower bound for any software."""
    bound_fraction: float
    """Share of the simulated step time; never above 1."""
    binding: str
    """The part that takes longest."""
    binding_s: float
    parts: tuple[BoundPart, ...]
    """Parts of the longest path; they add up to ``path_s``."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsReport:
    """Experts and ranks with most tokens, and the waiting of the others."""

    load: str
    """The law, or the name of the file."""
    tokens_per_expert: float
    """Rows of one expert in one micro-batch, in the mean over experts and layers."""
    hottest_expert: int
    """Hottest expert of the hottest ranks, in the layer in which they have most."""
    expert_skew: float
    """Rows of the hottest expert over the mean of all experts, mean over layers."""
    rank_skew: float
    """Rows of the fullest rank over the mean of all ranks, mean over layers."""
    hot_ranks: str
    """The ranks that are fullest in most layers, as text."""
    hot_layers_fraction: float
    """Share of the layers in which they are."""
    dropped_fraction: float
    """Share of all rows that found their expert full."""
    waited_s: float
    """In one step, mean over the ranks: for the fullest rank of their group."""


def waited_for_experts_s(timeline: Timeline) -> float:
    """Return how long ranks waited inside their passes for one with more tokens: of one step, mean over the ranks."""
    from clustersim.trace.columns import columns_of

    n_ranks = sum(each.n_ranks for each in timeline.rank_classes)
    columns = columns_of(timeline.spans)
    total_s = fsum(
        count * span.waiting_s * timeline.rank_classes[span.rank_class].n_ranks
        for span, count in zip(columns.patterns, columns.counts().tolist(), strict=True)
    )
    n_steps = 1 if timeline.steps is None else timeline.steps.n_steps
    return total_s / n_ranks / n_steps


def experts_lines(report: ExpertsReport | None) -> Sequence[str]:
    """Return the fullest ranks and the dropped rows; nothing where all experts have equal load."""
    if report is None or (report.rank_skew == 1.0 and report.dropped_fraction == 0.0):
        return ()
    lines: list[str] = []
    if report.rank_skew > 1.0:
        often = "in every layer" if report.hot_layers_fraction == 1.0 else f"in {100 * report.hot_layers_fraction:.0f} % of the layers"
        lines.append(f"{report.hot_ranks} have the hottest experts {often}: {report.rank_skew:.2f} times the rows of a rank in the mean")
        lines.append(f"the others wait for the fullest rank of each layer: {format_quantity(report.waited_s, 's')} of the step")
        lines.append(f"the hottest expert there is {report.hottest_expert}; that of a layer has {report.expert_skew:.2f} times the mean")
    if report.dropped_fraction > 0.0:
        lines.append(f"{100 * report.dropped_fraction:.1f} % of what tokens were sent to experts for was dropped, because these were full")
    return tuple(lines)
