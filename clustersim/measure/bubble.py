"""Closed forms of the bubble of a pipeline, for comparison with the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.trace.columns import columns_of
from clustersim.trace.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """Inputs of the formulas."""

    schedule: str
    n_stages: int
    n_micro_batches: int
    virtual_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Mean times of all passes of one micro-batch on one stage, in seconds."""

    forward_s: float
    backward_s: float
    """Time of input and weight gradients, in seconds."""
    weight_s: float
    """Time of weight gradients, in seconds, where these are separate passes."""

    @property
    def both_s(self) -> float:
        """There and back."""
        return self.forward_s + self.backward_s


Formula = Callable[[PipelineShape, PassTimes], float]
"""The bubble of a stage, in seconds."""

BUBBLES_S: Final[Mapping[str, Formula]] = MappingProxyType(
    {
        "naive": lambda pipe, times: (pipe.n_stages - 1) * pipe.n_micro_batches * times.both_s,
        "gpipe": lambda pipe, times: (pipe.n_stages - 1) * times.both_s,
        "1f1b": lambda pipe, times: (pipe.n_stages - 1) * times.both_s,
        "interleaved_1f1b": lambda pipe, times: (pipe.n_stages - 1) * times.both_s / pipe.virtual_stages,
        "breadth_first": lambda pipe, times: (pipe.n_stages - 1) * times.both_s / pipe.virtual_stages,
        "zb_h1": lambda pipe, times: (pipe.n_stages - 1) * (times.both_s - 2 * times.weight_s),
        "zb_h2": lambda pipe, times: (pipe.n_stages - 1) * (times.both_s - 3 * times.weight_s),
    }
)
"""By schedule, as `docs/theory/pipeline.md` derives them; the others have none that holds for any times."""


def closed_form_bubble(pipe: PipelineShape, timeline: Timeline) -> float | None:
    r"""Return the share of the pipeline's time that formulas expect to be bubble; None where there is none.

    :math:`b / (m (t_f + t_b) + b)`, with the bubble :math:`b` of the schedule and the mean times of the passes that were simulated, so
    that it says what the order alone costs: transfers, uneven stages and what comes before and after the pipeline are not in it.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC21, section 2.2.
    """
    formula = BUBBLES_S.get(pipe.schedule)
    if formula is None or pipe.n_stages < 2:
        return None
    times = pass_times(pipe, timeline)
    ideal_s = pipe.n_micro_batches * times.both_s
    bubble_s = max(formula(pipe, times), 0.0)
    return bubble_s / (ideal_s + bubble_s) if ideal_s > 0.0 else None


def pass_times(pipe: PipelineShape, timeline: Timeline) -> PassTimes:
    """Return mean times of the passes of one micro-batch, over rank classes and micro-batches; of all chunks of a stage together."""
    columns = columns_of(timeline.spans)
    lasted_s = np.bincount(columns.pattern, weights=columns.weights() * (columns.end_s - columns.start_s), minlength=len(columns.patterns))
    total: dict[str, float] = {}
    for span, seconds in zip(columns.patterns, lasted_s.tolist(), strict=True):
        total[span.kind] = total.get(span.kind, 0.0) + seconds
    each = len(timeline.rank_classes) * pipe.n_micro_batches
    mean = {kind: seconds / each for kind, seconds in total.items()}
    weight_s = mean.get("weight", 0.0)
    backward_s = mean.get("backward", 0.0) + mean.get("input", 0.0) + weight_s
    return PassTimes(forward_s=mean.get("forward", 0.0), backward_s=backward_s, weight_s=weight_s)
