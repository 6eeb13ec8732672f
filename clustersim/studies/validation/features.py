"""What tells runs apart, in numbers: the layout, and where the predicted step goes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.report.shares import PART_LABELS, step_seconds
from clustersim.scenario.result import Result

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
