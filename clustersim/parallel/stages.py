"""The placement of model chunks on stages, and the order of passes of each stage, as a schedule has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import Pass, PassCosts, StageOrder, side_by_side
from clustersim.parallel.schedules.places import Places
from clustersim.parallel.training_plan import Strategy


def places_of(strategy: Strategy) -> Places:
    """Return which part of the model each chunk of each stage holds."""
    if strategy.written is not None:
        return strategy.written.places
    return _places(strategy.schedule, strategy.pp, strategy.virtual_stages)


def orders_of(strategy: Strategy, n_micro_batches: int) -> tuple[StageOrder, ...]:
    """Return the order of passes of every stage; lowering and memory ask for the same one."""
    if strategy.written is not None:
        return strategy.written.orders
    found = _orders(strategy.schedule, strategy.pp, n_micro_batches, strategy.virtual_stages, strategy.costs)
    return in_pairs(found) if strategy.overlap_ep == "micro_batches" and strategy.ep > 1 else found


def waits_of(strategy: Strategy) -> float:
    """Return the waits of hosts per transfer between stages; interleaved, one is for a transfer each way."""
    if strategy.overlap_p2p or not strategy.sync_p2p:
        return 0.0
    return 1.0 if strategy.virtual_stages == 1 else 0.5


@lru_cache(maxsize=8)
def _places(schedule: str, n_stages: int, n_chunks: int) -> Places:
    return SCHEDULES[schedule].layout(n_stages, n_chunks)


@lru_cache(maxsize=8)
def in_pairs(orders: tuple[StageOrder, ...]) -> tuple[StageOrder, ...]:
    """Return orders in which each backward pass runs beside the forward pass behind it, which is of another micro-batch.

    Megatron core's ``overlap_moe_expert_parallel_comm`` warms up one pass longer for it, which is then kept as long.
    """
    return tuple(_in_pairs(order) for order in orders)


def _in_pairs(order: StageOrder) -> StageOrder:
    found, left = list[Pass](), list(order)
    while left:
        one = left.pop(0)
        pairs = one.kind == "B" and bool(left) and left[0].kind == "F"
        found += side_by_side(left.pop(0), one) if pairs else (one,)
    return tuple(found)


@lru_cache(maxsize=32)
def _orders(schedule: str, n_stages: int, n_micro_batches: int, n_chunks: int, costs: PassCosts) -> tuple[StageOrder, ...]:
    return SCHEDULES[schedule].orders(n_stages, n_micro_batches, n_chunks, costs)


N_ENDS: Final = 2
"""Ends of a model, each on a part that may have no layer: embedding and logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChunk:
    """Consecutive layers on one stage, with the ends of the model that it holds."""

    stage: int
    chunk: int
    start: int
    """First layer of the model that it holds."""
    n_layers: int
    first: bool
    """Holds the embedding."""
    last: bool
    """Holds logits and loss."""
    beside_first: bool
    """Whether its stage holds the embedding, in this chunk or in another."""
    way: int = 0
    """Number of the copy of the model that it belongs to."""

    @property
    def layers(self) -> range:
        """Which layers of the model it holds."""
        return range(self.start, self.start + self.n_layers)


@lru_cache(maxsize=8)
def model_chunks(strategy: Strategy, n_layers: int) -> tuple[tuple[ModelChunk, ...], ...]:
    """Return the chunks of each stage, as the schedule places them; layers are divided evenly unless the strategy sets them."""
    places = places_of(strategy)
    counts = part_layers(strategy, n_layers, places.n_parts)
    starts = (0, *accumulate(counts))
    stages: list[tuple[ModelChunk, ...]] = []
    for stage in range(strategy.pp):
        stops = list(places.stops(stage))
        stages.append(
            tuple(
                ModelChunk(
                    stage=stage,
                    chunk=chunk,
                    start=starts[part],
                    n_layers=counts[part],
                    first=part == 0,
                    last=part == places.n_parts - 1,
                    beside_first=any(other == 0 for _, other, _ in stops),
                    way=way,
                )
                for chunk, part, way in stops
            )
        )
    return tuple(stages)


def with_ends(n_layers: int, n_parts: int) -> tuple[int, ...]:
    r"""Return the layers of each part of a model whose embedding and logits count as a layer each.

    With :math:`L` layers and :math:`p` parts, each part gets :math:`\lfloor (L + 2) / p \rfloor`, and the first
    :math:`(L + 2) \bmod p` parts one more; the first part spends one on the embedding, the last one on the logits. The longest
    part so has no more than :math:`\lceil (L + 2) / p \rceil` layers.

    References
    ----------
    .. [1] torchtitan, ``torchtitan/distributed/pipeline_parallel.py``, ``generate_llm_fqn_per_model_part``.
    .. [2] Megatron-LM, ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``, where it divides.

    Examples
    --------
    >>> with_ends(22, 8), with_ends(7, 2)
    ((2, 3, 3, 3, 3, 3, 3, 2), (4, 3))
    """
    share, extra = divmod(n_layers + N_ENDS, n_parts)
    counts = [share + (part < extra) for part in range(n_parts)]
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def part_layers(strategy: Strategy, n_layers: int, n_parts: int) -> tuple[int, ...]:
    """Return how many layers each part of the model has, in its order."""
    asked = strategy.stage_layers
    return asked if isinstance(asked, tuple) else (n_layers // n_parts,) * n_parts
