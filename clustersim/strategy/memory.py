"""Parameters of one rank: those of a chunk, of its ends, and of a stage; and the share of them that it keeps."""

from __future__ import annotations

from functools import lru_cache

from clustersim.strategy.plan import SHARDS_GRADIENTS, Plan
from clustersim.strategy.shard import local_model, numerics
from clustersim.strategy.stages import model_chunks
from clustersim.strategy.weights import Weights, total_weights


@lru_cache(maxsize=128)
def stage_weights(plan: Plan, stage: int) -> Weights:
    """Return the parameters that one rank of a stage holds."""
    return total_weights((local_model(plan).chunk_weights(chunk), 1) for chunk in model_chunks(plan)[stage])


def kept_parameters(plan: Plan, stage: int, shards_from: int) -> float:
    """Return the parameters of a stage, or the rank's shard of them from some stage of ZeRO on."""
    weights = stage_weights(plan, stage)
    return weights.shard(plan.strategy.sharding) if plan.strategy.zero_stage >= shards_from else weights.total


def kept_gradients_bytes(plan: Plan, stage: int) -> float:
    """Return the gradients that stay on the accelerator of a rank, in bytes."""
    stays = plan.strategy.offload.gradients == "accelerator"
    return kept_parameters(plan, stage, SHARDS_GRADIENTS) * numerics(plan.training).gradient_bytes if stays else 0.0
