"""Parameters of one rank: those of a chunk, of its ends, and of a stage; and the share of them that it keeps."""

from __future__ import annotations

from functools import lru_cache

from clustersim.strategy.layers import back, front, layer_runs, tied_parameters, weights_of
from clustersim.strategy.plan import SHARDS_GRADIENTS, Plan
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.weights import Weights, total_weights


def chunk_weights(plan: Plan, chunk: ModelChunk) -> Weights:
    """Return the parameters that one rank holds of a chunk, a tied head on another stage than the embedding counted there too."""
    runs = layer_runs(plan, chunk.layers.start, chunk.layers.stop)
    return total_weights([*((weights_of(operators), count) for operators, count in runs), (end_weights(plan, chunk), 1)])


def end_weights(plan: Plan, chunk: ModelChunk) -> Weights:
    """Return the parameters of embedding and head on one rank, as far as a chunk holds them; a shared table counts once."""
    ends = (front(plan) if chunk.first else ()) + (back(plan) if chunk.last else ())
    return weights_of(ends).without(tied_parameters(plan) if chunk.last and chunk.beside_first else 0.0)


@lru_cache(maxsize=128)
def stage_weights(plan: Plan, stage: int) -> Weights:
    """Return the parameters that one rank of a stage holds."""
    return total_weights((chunk_weights(plan, chunk), 1) for chunk in model_chunks(plan)[stage])


def stage_parameters(plan: Plan, stage: int) -> float:
    """Return how many parameters one rank of a stage holds."""
    return stage_weights(plan, stage).total


def kept_parameters(plan: Plan, stage: int, shards_from: int) -> float:
    """Return the parameters of a stage, or the rank's shard of them from some stage of ZeRO on."""
    weights = stage_weights(plan, stage)
    return weights.shard(plan.strategy.sharding) if plan.strategy.zero_stage >= shards_from else weights.total


def kept_gradients_bytes(plan: Plan, stage: int) -> float:
    """Return the gradients that stay on the accelerator of a rank, in bytes."""
    stays = plan.strategy.offload.gradients == "accelerator"
    return kept_parameters(plan, stage, SHARDS_GRADIENTS) * numerics(plan).gradient_bytes if stays else 0.0
