"""A pipeline stage as seen by one of its ranks: model, settings, passes, and its share of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from operator import itemgetter
from typing import Final

from clustersim.parallel.expert_shares import expected_nodes
from clustersim.parallel.layers import Operators, waiting_bytes
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.recomputation import recomputation_of, recomputed_layers
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.shard import local_model
from clustersim.parallel.stages import ModelChunk, model_chunks, orders_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, SHARDS_PARAMETERS, Plan, Strategy, micro_batches
from clustersim.parallel.weights import Weights, total_weights
from clustersim.workloads.attention import exchanged_bytes, kept_keys_bytes
from clustersim.workloads.shapes import FP32_BYTES, ContextShare, ExpertShare

BLOCKS_OF_RING: Final = 2
"""Keys and values, or their gradients: one block is computed with while the next one comes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationMemory:
    """Activations of the ranks of a strategy, in bytes."""

    local: LocalModel
    strategy: Strategy

    def end_activation_bytes(self, chunk: ModelChunk) -> float:
        """Return the activations that embedding and head of a chunk store for one micro-batch, in bytes."""
        return fsum(operator.saved_bytes for operator in self.local.ends(chunk))

    def kept_by_layer(self, chunk: ModelChunk, place: int | None = None) -> tuple[float, ...]:
        """Return the activations that each layer of a chunk stores for one micro-batch."""
        return tuple(kept for kept, _, count in self._activations(chunk, place) for _ in range(count))

    def fullest_place(self, chunks: Sequence[ModelChunk]) -> int | None:
        """Return the place of expert parallelism whose experts get most rows in all layers of some chunks; None where all get as many."""
        model, strategy = self.local.model, self.strategy
        if model.experts is None or strategy.ep == 1 or strategy.expert_load.kind == "balanced":
            return None
        layers = [layer for chunk in chunks for layer in chunk.layers if model.has_experts(layer)]
        received = [sum(each) for each in zip(*(self.local.expert_spread.dispatch(layer).received for layer in layers), strict=True)]
        return received.index(max(received)) if received else None

    def expert_buffer_bytes(self, layer: int, place: int | None = None) -> float:
        """Return the buffers of one exchange of rows between experts: rows that are sent, and rows that are received.

        A row that goes once to each node is sent once to each.
        """
        model = self.local.model
        if not model.has_experts(layer):
            return 0.0
        share = self.local.shape(layer, place).experts
        if share is None or share.n_ranks == 1:
            return 0.0
        return (self._sent_rows(share) + share.received_rows) * model.hidden_size * self.local.numerics.element_bytes

    def context_buffer_bytes(self) -> float:
        """Return the buffers of context-parallel attention, in either direction.

        Gathered keys and values are there whole, and so are their gradients; a ring has of each the block that is in use and the one that
        comes in; Ulysses has what it sends and what it receives.
        """
        model, number, shape = self.local.model, self.local.numerics, self.local.whole
        match shape.context:
            case ContextShare(kind="ring"):
                return 2.0 * BLOCKS_OF_RING * kept_keys_bytes(model, shape, number)
            case ContextShare(kind="all_gather", degree=degree):
                return 2.0 * degree * kept_keys_bytes(model, shape, number)
            case ContextShare() as share:
                return 2.0 * max(exchanged_bytes(model, shape, number, share))
            case None:
                return 0.0

    def exchange_buffer(self, layer: int, place: int | None = None) -> tuple[str, float]:
        """Return the buffers of the exchanges of a layer, with their technique: the larger ones, as sublayers run one by one."""
        return max(("context", self.context_buffer_bytes()), ("experts", self.expert_buffer_bytes(layer, place)), key=itemgetter(1))

    def _sent_rows(self, share: ExpertShare) -> float:
        """Return the rows that a rank sends: one of each token for each of its experts, or each node or rank with some of them."""
        strategy, experts = self.strategy, self.local.model.experts
        if experts is None or strategy.dispatch == "all_to_all":
            return share.dispatched_rows
        n_nodes = strategy.ep * strategy.expert_tp // strategy.domain_size
        return share.dispatched_rows / experts.top_k * expected_nodes(n_nodes if n_nodes > 1 else strategy.ep, experts)

    def chunk_weight_bytes(self, chunk: ModelChunk, place: int | None = None) -> float:
        """Return the tensors that a chunk stores for one micro-batch from its input gradient to its weight gradients.

        For each product that has a weight, its input and the gradient of its output; nothing is recomputed any more.
        """
        layers = fsum(count * waiting_bytes(operators) for operators, count in self.local.runs(chunk.layers, place))
        return layers + waiting_bytes(self.local.ends(chunk))

    def _activations(self, chunk: ModelChunk, place: int | None = None) -> list[tuple[float, float, int]]:
        """Return the stored activations of layers, their working memory, and the number of such consecutive layers."""
        first, found = chunk.start, list[tuple[float, float, int]]()
        border = first + recomputed_layers(self.strategy, chunk)
        for start, stop, repeated in ((first, border, True), (border, first + chunk.n_layers, False)):
            layer = start
            for operators, count in self.local.runs(range(start, stop), place):
                kept, whole = self._kept_and_whole(layer, operators)
                found.append((kept if repeated else whole, whole, count))
                layer += count
        return found

    def _kept_and_whole(self, layer: int, operators: Operators) -> tuple[float, float]:
        whole = fsum(operator.saved_bytes for operator in operators)
        return recomputation_of(self.strategy).kept_bytes(self.local, layer, operators), whole

    def backward_bytes(self, chunk: ModelChunk, place: int | None = None) -> Mapping[str, float]:
        """Return the largest working memory of a backward pass, by technique: one layer, or the gradient of the logits.

        The layer is whole again, with the buffers of its exchanges.

        That gradient is made in fp32, in a copy of the probabilities (PyTorch) or in their place (Megatron-LM, vocabulary-parallel cross
        entropy), and cast; a fused kernel writes it as the logits are, in a copy (Apex) or in their place (Transformer Engine).
        """
        extra = [whole - kept for kept, whole, count in self._activations(chunk, place) for _ in range(count)]
        alike = self.local.equal_layers(chunk.layers)
        buffers = [buffer for first, count in alike for buffer in (self.exchange_buffer(first, place),) * count]
        layers = [{"recomputation": more, owner: size} for more, (owner, size) in zip(extra, buffers, strict=True)]
        replicas = self.strategy.dp if self.strategy.data_parallel.single_process else 1
        numerics = self.local.numerics
        casts = 0.0 if numerics.fused_loss else numerics.element_bytes / FP32_BYTES
        copies = 0.0 if numerics.loss_in_place else 1.0
        loss_bytes = replicas * self.head_loss_bytes(chunk) * (copies + casts)
        return max([*layers, {"loss": loss_bytes}], key=lambda sizes: fsum(sizes.values()))

    def head_loss_bytes(self, chunk: ModelChunk) -> float:
        """Return the tensors stored by the loss of one replica: the logits in fp32."""
        operators = (*self.local.layer(chunk.layers.stop - 1), *self.local.back) if chunk.last else ()
        return fsum(operator.saved_bytes for operator in operators if operator.role == "loss")


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
    def held_parameters(self) -> float:
        """Parameters in the memory of one rank, frozen ones included, or its shard of them."""
        held = self.weights.held
        return held.shard(self.strategy.sharding) if self.strategy.zero_stage == SHARDS_PARAMETERS else held.total

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
