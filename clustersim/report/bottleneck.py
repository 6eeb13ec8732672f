"""One sentence on what bounds the step time, and on the largest loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.measure.metrics import Metrics
from clustersim.report.shares import Share, compute_shares, step_shares
from clustersim.trace.timeline import Timeline

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
    largest = max(shares, key=_size)
    pieces = [piece for share in shares if share.key == "compute" for piece in compute_shares(share, timeline)]
    losses = [share for share in (*shares, *pieces) if share.key in LOSSES and share.fraction >= SMALLEST_LOSS_FRACTION]
    loss = max(losses, key=_size, default=None)
    sentence = f"Step time is bound by {_name(largest)}: {largest.percent:.1f} % of it."
    if loss is not None and loss is not largest:
        sentence += f" The largest loss is {_name(loss)}: {loss.percent:.1f} %."
    return Bottleneck(
        part=largest.key,
        fraction=largest.fraction,
        loss="" if loss is None else loss.key,
        loss_percent=0.0 if loss is None else loss.percent,
        sentence=sentence,
    )


def _size(share: Share) -> float:
    return share.fraction


def _name(share: Share) -> str:
    return LOSSES.get(share.key, "computation")
