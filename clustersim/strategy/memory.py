"""Parameters of one rank: those of a chunk, of its ends, and of a stage."""

from __future__ import annotations

from functools import lru_cache

from clustersim.strategy.layers import back, front, layer_runs, tied_parameters, weights_of
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, model_chunks
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
