"""What a picture or a page of a run is made from: its result, and what of the plan and of the machine pictures show."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.operation.reliability import Upkeep
from clustersim.report.bubble import Pipeline, closed_form_bubble
from clustersim.report.cost import CostReport
from clustersim.report.goodput import GoodputReport
from clustersim.report.metrics import Metrics
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
class Ceilings:
    """What one accelerator can do at best, by its data sheets."""

    accelerator: str
    peak_flops_per_s: float
    """In the precision of the run."""
    memory_bytes_per_s: float
    scale_up_bytes_per_s: float
    """0 without links between accelerators."""
    nic_bytes_per_s: float
    """Of its share of the adapters of the node; 0 without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One run as pictures see it."""

    label: str
    """Name of the run, unlike those of others in the same picture."""
    metrics: Metrics
    timeline: Timeline
    pipeline: Pipeline | None = None
    """None where the order of passes is written by hand."""
    global_batch_size: int = 0
    cost: CostReport | None = None
    goodput: GoodputReport | None = None
    upkeep: Upkeep | None = None
    """How failures are dealt with; None where nobody asked."""
    kernels: tuple[KernelGroup, ...] = ()
    ceilings: Ceilings | None = None

    @property
    def closed_form_bubble_fraction(self) -> float | None:
        """What formulas expect of the bubble."""
        return None if self.pipeline is None else closed_form_bubble(self.pipeline, self.timeline)
