"""Forward and backward passes of a model chunk as blocks of work and of the collectives that interrupt it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from clustersim.program.tasks import Block, Collective, Item
from clustersim.strategy.halves import Halves, ParallelGroups, own_operators
from clustersim.strategy.layers import (
    Gradients,
    Operators,
    backward_work,
    equal_layers,
    first_alike,
    forward_work,
    front,
    predictions_of,
    recomputed_layers,
)
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, local_shape, numerics
from clustersim.workload.operators import Operator, Role
from clustersim.workload.shapes import FP32_BYTES

LOSS_REDUCTIONS = 3
"""All-reduces of one fp32 number a token in the vocabulary-parallel loss: maximum, predicted logit, sum of exponentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPasses:
    """The passes of chunks: what runs of equal layers and the two ends of the model do, and how tensor parallelism cuts the ends.

    Runs of equal layers become blocks. A model without a front or a back has no block of that name.
    """

    plan: Plan
    groups: ParallelGroups
    gradients: Gradients = "all"
    """What backward passes compute."""
    left_out: frozenset[Role] = frozenset()
    """Roles of operators that a contributor computes itself."""
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
        equal = self._equal(chunk, start, stop)
        blocks = [Block(name="layer", body=self.layer_forward(layer), repeat=count) for layer, count in equal]
        if chunk.first and start == 0 and (body := self.embedding_forward()):
            blocks.insert(0, Block(name="embedding", body=body))
        if chunk.last and stop == chunk.n_layers and (body := self.head_forward()):
            blocks.append(Block(name="head", body=body))
        return tuple(blocks)

    def backward(self, chunk: ModelChunk) -> tuple[Block, ...]:
        """Return the backward pass of a whole chunk, last layer first."""
        return self.backward_slice(chunk, 0, chunk.n_layers)

    def backward_slice(self, chunk: ModelChunk, start: int, stop: int) -> tuple[Block, ...]:
        """Return the part of the backward pass that covers layers ``start`` to ``stop``, with the ends that adjoin them."""
        border = max(start, min(stop, recomputed_layers(self.plan, chunk)))
        parts = [
            (*run, again)
            for first, last, again in ((start, border, True), (border, stop, False))
            for run in self._equal(chunk, first, last)
        ]
        blocks = [
            Block(name="layer", body=self.layer_backward(layer, again=again), repeat=count) for layer, count, again in reversed(parts)
        ]
        if chunk.last and stop == chunk.n_layers and (body := self.head_backward()):
            blocks.insert(0, Block(name="head", body=body))
        # Rows of a table, whose gradient nothing follows, are no product to be put off.
        if chunk.first and start == 0 and self.gradients != "weight" and (body := self.embedding_backward()):
            blocks.append(Block(name="embedding", body=body))
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
        operators = front(self.plan)
        if not operators:
            return ()
        return (
            forward_work("embedding", operators),
            *self.halves.collective("reduce_scatter" if self._sequence_parallel else "all_reduce"),
        )

    def embedding_backward(self) -> tuple[Item, ...]:
        """Return the gradient's way into the embedding table."""
        operators = front(self.plan)
        if not operators:
            return ()
        gather = self.halves.collective("all_gather") if self._sequence_parallel else ()
        return (*gather, backward_work("embedding", operators, self.gradients))

    def head_forward(self) -> tuple[Item, ...]:
        """Return final normalisation, logits and loss, and then the modules that predict further tokens."""
        last = self.plan.model.n_layers - 1
        further = (
            (forward_work("mtp", module.joining), *self.layer_forward(last), *self._head_forward(module.head))
            for module in predictions_of(self.plan)
        )
        return (*self._head_forward(self._head), *chain.from_iterable(further))

    def head_backward(self) -> tuple[Item, ...]:
        """Return the gradients of the modules that predict further tokens, and of loss, logits and final normalisation."""
        last = self.plan.model.n_layers - 1
        # Further predictions keep everything and repeat nothing, like the head.
        further = (
            (
                *self._head_backward(module.head),
                *self.halves.backward(last, repeats=False),
                *self.halves.backward_works("mtp", module.joining),
            )
            for module in predictions_of(self.plan)
        )
        return (*chain.from_iterable(further), *self._head_backward(self._head))

    @property
    def halves(self) -> Halves:
        """The layers."""
        return Halves(plan=self.plan, groups=self.groups, gradients=self.gradients, left_out=self.left_out)

    @property
    def _sequence_parallel(self) -> bool:
        return self.plan.strategy.sequence_parallel

    def _head_forward(self, operators: Sequence[Operator]) -> tuple[Item, ...]:
        operators = own_operators(operators, self.left_out)
        if not operators:
            return ()
        if self.plan.strategy.tp == 1:
            return (forward_work("head", operators),)
        if not self.plan.model.lm_head:
            return (forward_work("final_norm", operators),)
        norm = operators[:-2]
        gather, reductions = self.halves.collective("all_gather") if self._sequence_parallel else (), self._small_reductions()
        return (forward_work("final_norm", norm), *gather, forward_work("logits", operators[len(norm) :]), *reductions)

    def _head_backward(self, operators: Sequence[Operator]) -> tuple[Item, ...]:
        operators = own_operators(operators, self.left_out)
        if not operators:
            return ()
        if self.plan.strategy.tp == 1 or not self.plan.model.lm_head:
            return (backward_work("head", operators, self.gradients),)
        *norm, logits, loss = operators
        columns = replace(logits, column=True), loss
        works = self.halves.backward_works("final_norm", norm)
        return (*self.halves.column_backward(columns, self.plan.model.hidden_size), *works)

    @property
    def _head(self) -> Operators:
        return self.plan.model.head(local_shape(self.plan), numerics(self.plan))

    def _equal(self, chunk: ModelChunk, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        return equal_layers(self.plan, chunk.start + start, chunk.start + stop)

    def _small_reductions(self) -> tuple[Collective, ...]:
        size_bytes = LOSS_REDUCTIONS * local_shape(self.plan).rows * FP32_BYTES
        return (Collective(op="all_reduce", group=self.groups.tp, bytes=size_bytes, pieces=LOSS_REDUCTIONS),)
