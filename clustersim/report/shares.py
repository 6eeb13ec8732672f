"""The parts of a step as people name them, percentages that sum to 100.0 as printed, and what bounds the step time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from clustersim.measure.metrics import COMMUNICATION, Metrics, by_dimension
from clustersim.report import palette
from clustersim.trace.timeline import Timeline

PART_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute": "compute",
        "tp": "exposed TP",
        "cp": "exposed CP",
        "ep": "exposed EP",
        "pp": "exposed PP",
        "dp": "exposed DP",
        "ps": "exposed PS",
        "offload": "exposed offload",
        "bubble": "pipeline bubble",
        "stall": "stall",
        "optimizer": "optimizer",
        "host": "host",
    }
)
"""Every part of the step time, in the order in which it is shown; those of :data:`COMMUNICATION` are exposed communication."""

OVERLAPPED_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {name: PART_LABELS[name].replace("exposed", "overlapped") for name in COMMUNICATION}
)
"""Communication that runs beside computation, by dimension."""

IDLE_PARTS: Final = ("bubble", "stall")

PART_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute": palette.FORWARD,
        **dict.fromkeys(COMMUNICATION, palette.EXPOSED),
        "bubble": palette.IDLE,
        "stall": palette.STALL,
        "optimizer": palette.OPTIMIZER,
        "host": palette.HOST,
    }
)


def share_text(fraction: float) -> str:
    """Return a share of the step with one decimal, or that it is below what one shows.

    Examples
    --------
    >>> share_text(0.0312), share_text(9e-7), share_text(0.0)
    ('3.1 %', '<0.1 %', '0.0 %')
    """
    text = f"{100 * fraction:.1f} %"
    return "<0.1 %" if fraction > 0.0 and text == "0.0 %" else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of the step: mean over ranks."""

    key: str
    label: str
    seconds: float
    fraction: float
    """Share of the step time."""
    percent: float
    """Rounded to one decimal such that all shares sum to 100.0."""

    @property
    def percent_text(self) -> str:
        """The rounded share, or that it is below what one decimal shows."""
        return f"{self.percent:.1f} %" if self.percent or not self.seconds else "<0.1 %"

    @property
    def colour(self) -> str:
        """Colour of the part in bars and plots."""
        return PART_COLOURS[self.key]

    @property
    def is_idle(self) -> bool:
        """True where the accelerator waits; such parts are hatched."""
        return self.key in IDLE_PARTS


def percentages(values: Sequence[float], whole: float = 100.0) -> tuple[float, ...]:
    """Return percentages with one decimal that sum to ``whole``: largest remainders are rounded up.

    All zero if the values are; ties go to the earlier value.

    Examples
    --------
    >>> percentages([1.0, 1.0, 1.0])
    (33.4, 33.3, 33.3)
    """
    total = math.fsum(values)
    if total <= 0.0:
        return (0.0,) * len(values)
    whole_tenths = round(10 * whole)
    exact = [whole_tenths * value / total for value in values]
    tenths = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(values)), key=lambda index: tenths[index] - exact[index])
    for index in by_remainder[: whole_tenths - sum(tenths)]:
        tenths[index] += 1
    return tuple(tenth / 10 for tenth in tenths)


def step_shares(metrics: Metrics) -> tuple[Share, ...]:
    """Return every part of the step that took time, in the order of :data:`PART_LABELS`."""
    seconds = step_seconds(metrics)
    total_s = math.fsum(seconds.values())
    # What is below a ten-millionth of the step is round-off of a difference, not a part of it.
    kept = [(key, value) for key, value in seconds.items() if value > 1e-7 * total_s]
    percents = percentages([value for _, value in kept])
    return tuple(
        Share(key=key, label=PART_LABELS[key], seconds=value, fraction=value / total_s, percent=percent)
        for (key, value), percent in zip(kept, percents, strict=True)
    )


def computing_percent(metrics: Metrics) -> float:
    """Return the percentage of the step that computes, the one figure that text and pictures show."""
    return next((share.percent for share in step_shares(metrics) if share.key == "compute"), 0.0)


def compute_shares(share: Share, timeline: Timeline) -> tuple[Share, ...]:
    """Return the shares of forward, backward and recomputation in that of computation, as far as there are any."""
    pieces = {"forward": 0.0, "backward": 0.0, "input": 0.0, "weight": 0.0, "recompute": 0.0}
    for span in timeline.spans:
        if span.kind not in pieces:
            continue
        n_ranks = timeline.rank_classes[span.rank_class].n_ranks
        repeated_s = min(span.recompute_s, span.compute_s)
        pieces[span.kind] += n_ranks * (span.compute_s - repeated_s)
        pieces["recompute"] += n_ranks * repeated_s
    sizes = {key: size for key, size in pieces.items() if size > 0.0}
    whole, percents = math.fsum(sizes.values()), percentages(list(sizes.values()), share.percent)
    return tuple(
        Share(
            key=key,
            label="recomputation" if key == "recompute" else key,
            seconds=share.seconds * size / whole,
            fraction=share.fraction * size / whole,
            percent=percent,
        )
        for (key, size), percent in zip(sizes.items(), percents, strict=True)
    )


def hidden_communication(metrics: Metrics) -> tuple[tuple[str, float], ...]:
    """Return (dimension, seconds) of communication that ran beside computation, where there was any."""
    seconds = by_dimension(metrics.overlapped_communication_s)
    return tuple((dimension, value) for dimension, value in seconds.items() if value > 1e-7 * metrics.step_time_s)


def step_seconds(metrics: Metrics) -> dict[str, float]:
    """Return the seconds of every part of the step, also of those that took none, in the order of :data:`PART_LABELS`."""
    exposed = by_dimension(metrics.breakdown_s.exposed_communication)
    return {key: exposed[key] if key in exposed else getattr(metrics.breakdown_s, key) for key in PART_LABELS}


SMALLEST_LOSS_FRACTION: Final = 0.05
"""A loss below this share of the step is not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """Bottleneck of the step time."""

    part: str
    """Key of the largest share, such as ``compute`` or ``tp``."""
    fraction: float
    """Share of the step time."""
    loss: str
    """Key of the largest share that is not computation; empty where none reaches :data:`SMALLEST_LOSS_FRACTION`."""
    loss_percent: float
    """Share of that, as reports print it."""
    sentence: str
    """Bottleneck and largest loss."""


LOSSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tp": "tensor-parallel communication",
        "cp": "context-parallel communication",
        "ep": "expert-parallel communication",
        "pp": "pipeline communication",
        "dp": "data-parallel communication",
        "ps": "parameter-server communication",
        "offload": "the way to the host and the optimizer there",
        "recompute": "recomputation",
        "bubble": "the pipeline bubble",
        "stall": "waiting for slower ranks, links or data",
        "optimizer": "the optimizer",
        "host": "the host",
    }
)
"""Name of each share of the step that is not computation for the first time."""


def find_bottleneck(metrics: Metrics, timeline: Timeline) -> Bottleneck:
    """Return what bounds the step time, and the largest loss; recomputation counts as a loss."""
    shares = step_shares(metrics)
    if not shares:
        return Bottleneck(part="", fraction=0.0, loss="", loss_percent=0.0, sentence="The step takes no time.")
    largest = max(shares, key=attrgetter("fraction"))
    pieces = [piece for share in shares if share.key == "compute" for piece in compute_shares(share, timeline)]
    losses = [share for share in (*shares, *pieces) if share.key in LOSSES and share.fraction >= SMALLEST_LOSS_FRACTION]
    loss = max(losses, key=attrgetter("fraction"), default=None)
    sentence = f"Step time is bound by {LOSSES.get(largest.key, 'computation')}: {largest.percent:.1f} % of it."
    if loss is not None and loss is not largest:
        sentence += f" The largest loss is {LOSSES[loss.key]}: {loss.percent:.1f} %."
    return Bottleneck(
        part=largest.key,
        fraction=largest.fraction,
        loss="" if loss is None else loss.key,
        loss_percent=0.0 if loss is None else loss.percent,
        sentence=sentence,
    )
