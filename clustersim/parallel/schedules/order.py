"""Parts of a pipeline schedule: passes, and for each stage an order of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.program.holds import TASK_KINDS, Tasks

PassKind = Literal["F", "B", "I", "W"]
"""Forward; whole backward; input gradient; weight gradients."""

_KINDS: Final[Mapping[PassKind, int]] = MappingProxyType(
    {"F": TASK_KINDS.index("forward"), "B": TASK_KINDS.index("backward"), "I": TASK_KINDS.index("input"), "W": TASK_KINDS.index("weight")}
)

DEFERRED: Final[PassKind] = "W"
"""Nobody waits for it: no other stage, and nothing on its own stage but the update."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one micro-batch through one model chunk of a stage."""

    kind: PassKind
    micro_batch: int
    chunk: int = 0
    beside_next: bool = field(default=False, compare=False)
    """Runs side by side with the pass behind it; the two start together and hand on their results together."""

    @property
    def goes_back(self) -> bool:
        """Whether its result goes to the stage before: a gradient."""
        return self.kind in ("B", "I")

    @property
    def makes_weight_gradients(self) -> bool:
        """Whether the gradients of a micro-batch are complete behind it."""
        return self.kind in ("B", "W")


StageOrder = tuple[Pass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCosts:
    """Costs of passes through one chunk, as a scheduler knows them; of times, only their ratios matter."""

    forward_s: float
    input_s: float
    weight_s: float
    send_s: float = 0.0
    """From one stage to the next."""
    weight_fraction: float = 1.0
    """Memory that a micro-batch still keeps between its input and its weight gradient, as a share of what it kept before."""


EQUAL_COSTS: Final = PassCosts(forward_s=1.0, input_s=1.0, weight_s=1.0)
"""Assumed costs of a matrix product in each direction."""


def forward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a forward pass."""
    return Pass("F", micro_batch, chunk)


def backward(micro_batch: int, chunk: int = 0) -> Pass:
    """Return a backward pass in one."""
    return Pass("B", micro_batch, chunk)


def input_gradient(micro_batch: int, chunk: int = 0) -> Pass:
    """Return the part of a backward pass that the stage before waits for."""
    return Pass("I", micro_batch, chunk)


def weight_gradient(micro_batch: int, chunk: int = 0) -> Pass:
    """Return the part of a backward pass that nobody waits for."""
    return Pass(DEFERRED, micro_batch, chunk)


def side_by_side(one: Pass, other: Pass) -> StageOrder:
    """Return two passes that run at once."""
    return replace(one, beside_next=True), other


def order_tasks(order: StageOrder) -> Tasks:
    """Return the passes of a stage one after the other, each of one unit of time, and the update behind them."""
    ends = np.arange(1.0, len(order) + 2.0)
    return Tasks(
        kind=np.array([*(_KINDS[each.kind] for each in order), TASK_KINDS.index("optimizer")]),
        chunk=np.array([*(each.chunk for each in order), 0]),
        step=np.zeros(len(ends), dtype=np.int64),
        task=np.arange(len(ends)),
        start_s=ends - 1.0,
        end_s=ends,
        stop_s=len(order) + 1.0,
    )
