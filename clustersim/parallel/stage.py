"""A pipeline stage as one of its ranks has it: model, settings, passes, and the share of parameters that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from clustersim.parallel.activation_memory import ActivationMemory
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.shard import local_model
from clustersim.parallel.stages import ModelChunk, model_chunks, orders_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Plan, Strategy, micro_batches
from clustersim.parallel.weights import Weights, total_weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """A pipeline stage: its chunks of the model, and the settings under which one of its ranks holds and trains them."""

    number: int
    chunks: tuple[ModelChunk, ...]
    local: LocalModel
    training: Training
    strategy: Strategy
    weights: Weights
    """Parameters that one rank holds."""

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches of a step."""
        return micro_batches(self.training, self.strategy)

    @property
    def order(self) -> StageOrder:
        """Order of its passes."""
        return orders_of(self.strategy, self.n_micro_batches)[self.number]

    @property
    def activations(self) -> ActivationMemory:
        """Activations of one rank."""
        return ActivationMemory(local=self.local, strategy=self.strategy)

    def kept_parameters(self, shards_from: int) -> float:
        """Return the parameters of one rank, or its shard of them from some stage of ZeRO on."""
        return self.shard if self.strategy.zero_stage >= shards_from else self.weights.total

    @property
    def shard(self) -> float:
        """Parameters that one rank updates under ZeRO; of whole tensors, those of the rank with most."""
        shard = self.weights.shard(self.strategy.sharding)
        return max(shard, *self._tensors) if self.strategy.deals_tensors else shard

    @property
    def n_owners(self) -> int:
        """Ranks that own tensors where these are dealt whole."""
        return min(max(self.strategy.sharding.degree, self.strategy.sharding.expert_degree), len(self._tensors))

    @property
    def _tensors(self) -> tuple[float, ...]:
        """Parameters of each operator that has some."""
        parts = [operator for chunk in self.chunks for layer in chunk.layers for operator in self.local.layer(layer)]
        parts += [operator for chunk in self.chunks for operator in self.local.ends(chunk)]
        return tuple(operator.parameters for operator in parts if operator.parameters)

    @property
    def kept_gradients_bytes(self) -> float:
        """Gradients that stay on the accelerator of one rank, in bytes."""
        stays = self.strategy.offload.gradients == "accelerator"
        return self.kept_parameters(SHARDS_GRADIENTS) * self.local.numerics.gradient_bytes if stays else 0.0


@lru_cache(maxsize=128)
def stage_of(plan: Plan, number: int) -> Stage:
    """Return a stage of a plan."""
    local = local_model(plan.model, plan.training, plan.strategy)
    return stage_with(local, plan.training, plan.strategy, model_chunks(plan.strategy, plan.model.n_layers)[number])


def stages_of(plan: Plan) -> tuple[Stage, ...]:
    """Return all stages of a plan."""
    return tuple(stage_of(plan, number) for number in range(plan.strategy.pp))


def stage_with(local: LocalModel, training: Training, strategy: Strategy, chunks: tuple[ModelChunk, ...]) -> Stage:
    """Return the stage that holds some chunks."""
    return Stage(
        number=chunks[0].stage,
        chunks=chunks,
        local=local,
        training=training,
        strategy=strategy,
        weights=total_weights((local.chunk_weights(chunk), 1) for chunk in chunks),
    )
