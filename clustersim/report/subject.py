"""Input of a picture or a page of a run: its result, and the parts of the plan and of the machine that pictures show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

from clustersim.errors import ScenarioError
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import Metrics
from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.measure.step_breakdown import PipelineShape, closed_form_bubble
from clustersim.reliability import Upkeep
from clustersim.report.pictured_machine import PicturedMachine
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import StepRecord
from clustersim.trace.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """All kernels of one name that a rank of the model's mean stage runs for a micro-batch."""

    name: str
    flops: float
    traffic_bytes: float
    """Least traffic with the memory of the accelerator."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheetPeaks:
    """Peak rates of one accelerator, by its data sheets."""

    accelerator: str
    peak_flops_per_s: float
    """In the precision of the run."""
    memory_bytes_per_s: float
    scale_up_bytes_per_s: float
    """0 without links between accelerators."""
    nic_bytes_per_s: float
    """Bandwidth of its share of node adapters, in bytes/s; 0 without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One run as pictures see it."""

    label: str
    """Name of the run, unlike those of others in the same picture."""
    metrics: Metrics
    timeline: Timeline
    pipeline: PipelineShape | None = None
    """None where the order of passes is written by hand."""
    sends_block: bool = False
    """Whether a pass waits for the sends before it."""
    global_batch_size: int = 0
    cost: CostReport | None = None
    goodput: GoodputReport | None = None
    upkeep: Upkeep | None = None
    """Handling of failures; None without a reliability section."""
    kernels: tuple[KernelGroup, ...] = ()
    ceilings: DataSheetPeaks | None = None
    machine: PicturedMachine | None = None

    @property
    def closed_form_bubble_fraction(self) -> float | None:
        """Bubble fraction expected by the formulas."""
        return None if self.pipeline is None else closed_form_bubble(self.pipeline, self.timeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSubject:
    """One serving run as pictures see it."""

    label: str
    """Name of the run, unlike those of others in the same picture."""
    load: str
    """Rate, number of clients or speed of the trace, with its unit."""
    metrics: ServingMetrics
    latencies_s: Mapping[str, FloatArray]
    """Latencies of the measured requests by name: ``ttft``, ``tpot``, ``e2e``."""
    samples: Sequence[StepRecord]
    """Steps at about equal distances in time."""
    n_blocks: Mapping[int, int]
    """KV-cache blocks of each replica."""


def check_alike(subjects: Sequence[Subject], picture: str) -> None:
    """Check that all runs do the same work in a step, so that their times say which is better.

    Raises
    ------
    ScenarioError
        When two runs differ in the model, the batch or the sequences.
    """
    first = subjects[0]
    for other in subjects[1:]:
        works = [subject.metrics.model_flops_per_step for subject in (first, other)]
        if not isclose(*works, rel_tol=1e-9):
            times = f"{works[1] / works[0]:.3g} times" if works[0] > 0.0 else "other"
            raise ScenarioError(
                f"'{picture}' compares equal work, and a step of {other.label} has {times} the model FLOPs of {first.label}",
                hint="name runs of one model, batch and sequence length, or draw each by itself",
            )
