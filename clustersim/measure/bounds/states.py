"""Work of one stage once for a step, or for each micro-batch, on gradients, weights and optimizer states."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.measure.bounds.reduction_bounds import LayoutCommunication, Moved
from clustersim.measure.bounds.unit_costs import ISSUE, UnitCosts
from clustersim.parallel.contributors.activation_offload import offloads_activations
from clustersim.parallel.gradients import cast_blocks
from clustersim.parallel.interference import beside_blocks
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.offload import offloads
from clustersim.parallel.optimizer import offloaded_update, optimizer_update
from clustersim.parallel.shard import local_model
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.parallel.units import gather_calls, reduction_units, reductions
from clustersim.parallel.weights import NOTHING, Weights, total_weights
from clustersim.program.tasks import Block
from clustersim.workloads.shapes import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Parameters that are gathered for the passes of one micro-batch."""

    all: Moved
    """Forward and backward."""
    first_s: float
    """Wait of the first pass, in seconds."""
    beside_s: float
    """Seconds that passes lose to these collectives and to reductions, all but the first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStates:
    """State handling of one stage."""

    reduced: Moved
    """All gradients, once."""
    last_s: float
    """The bucket that is complete last."""
    casts_s: float
    """The way of gradients into buckets, once."""
    update_s: float
    after: Moved
    """The gathering of new weights."""
    gathered: Gathered | None


def states_of(plan: Plan, chunks: tuple[ModelChunk, ...], prices: UnitCosts, exchange: LayoutCommunication) -> StageStates:
    """Return what a stage with some chunks of the model does."""
    strategy, local = plan.strategy, local_model(plan)
    weights = total_weights((local.chunk_weights(chunk), 1) for chunk in chunks)
    together = [chunks] if strategy.data_parallel.no_sync else [(chunk,) for chunk in chunks]
    units = [reductions(local, strategy, of_pass) for of_pass in together] if strategy.reduces_gradients else []
    of_chunks = [reduction_units(local, strategy, chunk) for chunk in chunks] if units else []
    last = [exchange.reduced(buckets[-1]).seconds for buckets in of_chunks if buckets]
    update = offloaded_update(plan, weights) if offloads(strategy) else optimizer_update(plan, weights)
    nothing = exchange.together([])
    return StageStates(
        reduced=exchange.together([exchange.reduced(bucket) for of_pass in units for bucket in of_pass]),
        last_s=min(last, default=0.0),
        casts_s=_blocks_s(prices, cast_blocks(strategy, local.numerics, weights.total)) if units else 0.0,
        update_s=float(prices.pass_s(prices.row(update.blocks))) + (exchange.updated_s(weights) if offloads(strategy) else 0.0),
        after=exchange.gathered(weights) if strategy.zero_stage in (1, 2) else nothing,
        gathered=_gathered(local, strategy, chunks[0], prices, exchange) if layer_wise(strategy) else None,
    )


def layer_wise(strategy: Strategy) -> bool:
    """Return whether a micro-batch's gathers are bounded as a whole: those of the only stage, whose passes never wait for another."""
    kept = strategy.keeps_gathered or offloads_activations(strategy)
    return strategy.pp == 1 and strategy.gathers_weights and not kept


def pass_gathers_s(local: LocalModel, strategy: Strategy, chunk: ModelChunk, exchange: LayoutCommunication) -> float:
    """Return how long the gathering takes that a pass through a chunk of a stage cannot begin before the pass before it has ended.

    It is that of all layers but those that are gathered ahead.
    """
    ahead = strategy.prefetch if strategy.data_parallel.overlap else 0
    layers = local.layer_weights(chunk.layers)
    # The first layers are gathered ahead of a forward pass, and the last ones of a backward pass.
    ways = (layers[ahead:], layers[: len(layers) - ahead])
    return min(exchange.gathered(total_weights((each, 1) for each in way)).seconds for way in ways)


def _gathered(local: LocalModel, strategy: Strategy, chunk: ModelChunk, prices: UnitCosts, exchange: LayoutCommunication) -> Gathered:
    sharding = strategy.sharding
    layers, ends = local.layer_weights(chunk.layers), local.end_weights(chunk)
    calls, around = gather_calls(local, chunk, sharding.gather)
    of_layers = [exchange.gathered(weights, n_calls) for weights, n_calls in zip(layers, calls, strict=True)]
    of_ends = exchange.gathered(ends, around)
    again = sharding.reshard_after_forward
    back = [*of_layers, *([] if sharding.keep_ends else [of_ends])] if again else []
    first_s = of_ends.seconds + (of_layers[0].seconds if of_layers else 0.0)
    beside_s = _beside_s(strategy, local.numerics, layers, prices)
    return Gathered(all=exchange.together([of_ends, *of_layers, *back]), first_s=first_s, beside_s=beside_s)


def _beside_s(strategy: Strategy, number: Numerics, layers: tuple[Weights, ...], prices: UnitCosts) -> float:
    """Return what the passes of a micro-batch lose to what runs beside them: gathers, all but those before the first pass."""
    sharding = strategy.sharding
    if not sharding.prefetch:
        return 0.0
    forward = total_weights((each, 1) for each in layers[1:])
    again = total_weights((each, 1) for each in layers) if sharding.reshard_after_forward else NOTHING
    return _blocks_s(prices, beside_blocks(strategy, number, "forward", gathered=forward + again))


def _blocks_s(prices: UnitCosts, blocks: tuple[Block, ...]) -> float:
    return float(prices.row(blocks)[:ISSUE].sum()) if blocks else 0.0
