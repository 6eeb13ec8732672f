"""Passes of a stage in order, and a row of the table of schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.parallel.schedules.places import Layout, looped
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


@lru_cache(maxsize=64)
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


ByShape = Callable[[int, int, int], tuple[StageOrder, ...]]
"""(stages, micro-batches, chunks per stage) -> one order for each stage."""

ByTimes = Callable[[int, int, PassCosts], tuple[StageOrder, ...]]
"""(stages, micro-batches, times) -> one order for each stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A pipeline schedule."""

    make: ByShape | None = None
    by_times: ByTimes | None = None
    """Instead of ``make``, for what depends on how long passes take."""
    layout: Layout = looped
    n_chunks: int | None = 1
    """Into how many chunks the layers of a stage are cut; None: into as many as are asked for, at least two."""
    splits: bool = False
    """Whether gradients of weights are computed apart from those of inputs, for which alone other stages wait."""
    validates_later: bool = False
    """Whether its implementation updates each stage before the norm of all gradients is known."""
    sends_beside: bool = True
    """Whether its implementations let sends run beside computation."""
    whole_rounds: bool = False
    """Whether micro-batches must be a multiple of the stages."""
    in_pairs: bool = False
    """Whether stages and micro-batches must be even."""
    least_rounds: int = 0
    """Least number of micro-batches, as a multiple of the stages."""

    def orders(self, n_stages: int, n_micro_batches: int, n_chunks: int, times: PassCosts = EQUAL_COSTS) -> tuple[StageOrder, ...]:
        """Return the order of passes of every stage."""
        if self.by_times is not None:
            return self.by_times(n_stages, n_micro_batches, times)
        assert self.make is not None
        return self.make(n_stages, n_micro_batches, n_chunks)
