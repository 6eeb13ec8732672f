"""Forward and backward passes of a model chunk as blocks of work and of the collectives that interrupt it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from clustersim.program.tasks import Block, Collective, Item, Work
from clustersim.strategy.halves import Halves, ParallelGroups
from clustersim.strategy.layers import (
    Gradients,
    Operators,
    backward_work,
    equal_layers,
    first_alike,
    forward_work,
    layer_runs,
    prediction_of,
    recomputed_layers,
)
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, local_shape, numerics, transformer
from clustersim.workload.ends import embedding_operators, head_operators
from clustersim.workload.layered import Layered
from clustersim.workload.operators import Operator
from clustersim.workload.shapes import FP32_BYTES, LocalShape, Numerics
from clustersim.workload.transformer import Transformer

LOSS_REDUCTIONS = 3
"""All-reduces of one fp32 number a token in the vocabulary-parallel loss: maximum, predicted logit, sum of exponentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPasses:
    """The passes of chunks: what runs of equal layers and the two ends of the model do, and how tensor parallelism cuts the ends.

    A model that is a list of layers has no ends and is not cut: runs of equal layers become blocks.
    """

    plan: Plan
    groups: ParallelGroups
    gradients: Gradients = "all"
    """What backward passes compute."""
    left_out: frozenset[str] = frozenset()
    """Names of operators that a contributor computes itself."""
    _layers: dict[tuple[str, int, bool, Gradients], tuple[Item, ...]] = field(
        default_factory=dict[tuple[str, int, bool, Gradients], tuple[Item, ...]], repr=False, compare=False
    )
    """Layers that do the same are the same object, so that they are made and priced once, whichever gradients others compute."""

    def of(self, gradients: Gradients) -> ChunkPasses:
        """Return the same passes, of which the backward ones compute these gradients."""
        return self if gradients == self.gradients else replace(self, gradients=gradients)

    def forward(self, chunk: ModelChunk) -> tuple[Block, ...]:
        """Return the forward pass of a whole chunk."""
        return self.forward_slice(chunk, 0, chunk.n_layers)

    def forward_slice(self, chunk: ModelChunk, start: int, stop: int) -> tuple[Block, ...]:
        """Return the part of the forward pass that covers layers ``start`` to ``stop``, with the ends that adjoin them."""
        if isinstance(self.plan.model, Layered):
            runs = self._runs(chunk, start, stop)
            return tuple(Block(name="layer", body=(forward_work("layer", operators),), repeat=count) for operators, count in runs)
        equal = self._equal(chunk, start, stop)
        blocks = [Block(name="layer", body=self.layer_forward(layer), repeat=count) for layer, count in equal]
        if chunk.first and start == 0:
            blocks.insert(0, Block(name="embedding", body=self.embedding_forward()))
        if chunk.last and stop == chunk.n_layers:
            blocks.append(Block(name="head", body=self.head_forward()))
        return tuple(blocks)

    def backward(self, chunk: ModelChunk) -> tuple[Block, ...]:
        """Return the backward pass of a whole chunk, last layer first."""
        return self.backward_slice(chunk, 0, chunk.n_layers)

    def backward_slice(self, chunk: ModelChunk, start: int, stop: int) -> tuple[Block, ...]:
        """Return the part of the backward pass that covers layers ``start`` to ``stop``, with the ends that adjoin them."""
        border = max(start, min(stop, recomputed_layers(self.plan, chunk)))
        if isinstance(self.plan.model, Layered):
            again = [self._plain_backward(operators, count, again=True) for operators, count in self._runs(chunk, start, border)]
            once = [self._plain_backward(operators, count, again=False) for operators, count in self._runs(chunk, border, stop)]
            return (*reversed(once), *reversed(again))
        parts = [
            (*run, again)
            for first, last, again in ((start, border, True), (border, stop, False))
            for run in self._equal(chunk, first, last)
        ]
        blocks = [
            Block(name="layer", body=self.layer_backward(layer, again=again), repeat=count) for layer, count, again in reversed(parts)
        ]
        if chunk.last and stop == chunk.n_layers:
            blocks.insert(0, Block(name="head", body=self.head_backward()))
        # Rows of a table, whose gradient nothing follows, are no product to be put off.
        if chunk.first and start == 0 and self.gradients != "weight":
            blocks.append(Block(name="embedding", body=self.embedding_backward()))
        return tuple(blocks)

    def layer_forward(self, layer: int = 0) -> tuple[Item, ...]:
        """Return one layer forward."""
        key = "F", first_alike(self.plan, layer), False, self.gradients
        if key not in self._layers:
            self._layers[key] = self.halves.forward(layer)
        return self._layers[key]

    def layer_backward(self, layer: int = 0, *, again: bool = True) -> tuple[Item, ...]:
        """Return one layer backward, with what is recomputed before it; full recomputation repeats it where it is to run ``again``."""
        full = again and self.plan.strategy.recompute == "full" and self.gradients != "weight"
        key = "B", first_alike(self.plan, layer), full, self.gradients
        if key not in self._layers:
            self._layers[key] = (*(self.halves.again(layer) if full else ()), *self.halves.backward(layer))
        return self._layers[key]

    def embedding_forward(self) -> tuple[Item, ...]:
        """Return the embedding; each rank looks up its part of the vocabulary, and the parts are summed."""
        work = forward_work("embedding", embedding_operators(*self._shapes()))
        return (work, *self.halves.collective("reduce_scatter" if self._sequence_parallel else "all_reduce"))

    def embedding_backward(self) -> tuple[Item, ...]:
        """Return the gradient's way into the embedding table."""
        gather = self.halves.collective("all_gather") if self._sequence_parallel else ()
        return (*gather, backward_work("embedding", embedding_operators(*self._shapes()), self.gradients))

    def head_forward(self) -> tuple[Item, ...]:
        """Return final normalisation, logits and loss, and then the modules that predict further tokens."""
        further: tuple[Item, ...] = ()
        if transformer(self.plan).n_mtp:
            module, last = prediction_of(self.plan), transformer(self.plan).n_layers - 1
            join = forward_work("mtp", module.joining)
            further = (join, *self.layer_forward(last), *self._head_forward(module.head)) * transformer(self.plan).n_mtp
        return self._head_forward(head_operators(*self._shapes())) + further

    def head_backward(self) -> tuple[Item, ...]:
        """Return the gradients of the modules that predict further tokens, and of loss, logits and final normalisation."""
        further: tuple[Item, ...] = ()
        if transformer(self.plan).n_mtp:
            module, last = prediction_of(self.plan), transformer(self.plan).n_layers - 1
            join = self.halves.backward_works("mtp", module.joining)
            # They keep everything and repeat nothing, like the head.
            layer = self.halves.backward(last, repeats=False)
            further = (*self._head_backward(module.head), *layer, *join) * transformer(self.plan).n_mtp
        return further + self._head_backward(head_operators(*self._shapes()))

    @property
    def halves(self) -> Halves:
        """The layers."""
        return Halves(plan=self.plan, groups=self.groups, gradients=self.gradients)

    @property
    def _sequence_parallel(self) -> bool:
        return self.plan.strategy.sequence_parallel

    def _head_forward(self, operators: Sequence[Operator]) -> tuple[Item, ...]:
        if self.plan.strategy.tp == 1 or not operators:
            return (forward_work("head", self._own(operators)),)
        lm_head = transformer(self.plan).lm_head
        norm = operators[: len(operators) - 2] if lm_head else operators
        if not lm_head:
            return (forward_work("final_norm", norm),)
        gather, reductions = self.halves.collective("all_gather") if self._sequence_parallel else (), self._small_reductions()
        return (forward_work("final_norm", norm), *gather, forward_work("logits", operators[len(norm) :]), *reductions)

    def _head_backward(self, operators: Sequence[Operator]) -> tuple[Item, ...]:
        if self.plan.strategy.tp == 1 or not transformer(self.plan).lm_head:
            return (backward_work("head", self._own(operators), self.gradients),)
        *norm, logits, loss = operators
        columns = replace(logits, column=True), loss
        works = self.halves.backward_works("final_norm", norm)
        return (*self.halves.column_backward(columns, transformer(self.plan).hidden_size), *works)

    def _shapes(self) -> tuple[Transformer, LocalShape, Numerics]:
        return transformer(self.plan), local_shape(self.plan), numerics(self.plan)

    def _runs(self, chunk: ModelChunk, start: int, stop: int) -> tuple[tuple[Operators, int], ...]:
        runs = layer_runs(self.plan, chunk.start + start, chunk.start + stop)
        return tuple((self._own(operators), count) for operators, count in runs)

    def _own(self, operators: Sequence[Operator]) -> Operators:
        return tuple(operator for operator in operators if operator.name not in self.left_out)

    def _equal(self, chunk: ModelChunk, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        return equal_layers(self.plan, chunk.start + start, chunk.start + stop)

    def _plain_backward(self, operators: Operators, count: int, *, again: bool) -> Block:
        """Return equal layers that nothing cuts, backward, each as one stretch of work and one of recomputation where it is repeated."""
        repeated: tuple[Work, ...] = (forward_work("layer", operators, "recompute"),) if again and self.gradients != "weight" else ()
        return Block(name="layer", body=(*repeated, backward_work("layer", operators, self.gradients)), repeat=count)

    def _small_reductions(self) -> tuple[Collective, ...]:
        size_bytes = LOSS_REDUCTIONS * local_shape(self.plan).rows * FP32_BYTES
        return (Collective(op="all_reduce", group=self.groups.tp, bytes=size_bytes, pieces=LOSS_REDUCTIONS),)
