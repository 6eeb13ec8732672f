"""Forward and backward passes of a model chunk as blocks of work and tensor-parallel collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.hardware.communication import CollectiveOp
from clustersim.program.tasks import Block, Collective, Group, Item, Overlapped, Phase, Work
from clustersim.strategy.alternate import repeated_operators
from clustersim.strategy.chunking import beside_chunks
from clustersim.strategy.layers import Operators, chunk_layers, layer_runs, recomputed_layers
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import ModelChunk, local_shape, numerics, transformer
from clustersim.workload.ends import embedding_operators, head_operators
from clustersim.workload.layer import attention_operators, mlp_operators
from clustersim.workload.layered import Layered
from clustersim.workload.operators import Operator
from clustersim.workload.shapes import FP32_BYTES, LocalShape, Numerics
from clustersim.workload.transformer import Transformer

LOSS_REDUCTIONS = 3
"""All-reduces of one fp32 number a token in the vocabulary-parallel loss: maximum, predicted logit, sum of exponentials."""


def forward_work(name: str, operators: Sequence[Operator], phase: Phase = "forward") -> Work:
    """Return some operators forward, one after the other."""
    return Work(name=name, phase=phase, kernels=tuple(kernel for operator in operators for kernel in operator.forward))


def backward_work(name: str, operators: Sequence[Operator]) -> Work:
    """Return some operators backward, the last one first."""
    kernels = tuple(kernel for operator in reversed(operators) for kernel in (*operator.backward_input, *operator.backward_weight))
    return Work(name=name, phase="backward", kernels=kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPasses:
    """The passes of chunks: what a layer and the two ends of the model do, and how tensor parallelism cuts in.

    As in Megatron-LM, attention and MLP are each a column-split layer followed by a row-split one. Without sequence
    parallelism the row-split layer's output is all-reduced forward, and the gradient of the column-split layer's input
    backward. With it, activations are gathered before and scattered after the pair, and the other way round backward.
    The backward collective of the column-split layer runs beside its weight gradient where the plan overlaps them, and the others
    beside chunks of the products next to them where it cuts these.

    A model that is a list of layers has no ends and is not cut: runs of equal layers become blocks.
    """

    plan: Plan
    group: Group
    """Tensor-parallel groups of the stage."""

    def forward(self, chunk: ModelChunk) -> tuple[Block, ...]:
        """Return the forward pass of a whole chunk."""
        return self.forward_slice(chunk, 0, chunk.n_layers)

    def forward_slice(self, chunk: ModelChunk, start: int, stop: int) -> tuple[Block, ...]:
        """Return the part of the forward pass that covers layers ``start`` to ``stop``, with the ends that adjoin them."""
        if isinstance(self.plan.model, Layered):
            runs = self._runs(chunk, start, stop)
            return tuple(Block(name="layer", body=(forward_work("layer", operators),), repeat=count) for operators, count in runs)
        blocks = [Block(name="layer", body=self.layer_forward(), repeat=stop - start)]
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
        parts = ((stop - border, False), (border - start, True))
        blocks = [Block(name="layer", body=self.layer_backward(again=again), repeat=count) for count, again in parts if count]
        if chunk.last and stop == chunk.n_layers:
            blocks.insert(0, Block(name="head", body=self.head_backward()))
        if chunk.first and start == 0:
            blocks.append(Block(name="embedding", body=self.embedding_backward()))
        return tuple(blocks)

    def layer_forward(self, phase: Phase = "forward") -> tuple[Item, ...]:
        """Return one layer forward."""
        halves = self._halves()
        return tuple(item for name, operators in halves for item in self._half_forward(name, operators, phase))

    def layer_backward(self, *, again: bool = True) -> tuple[Item, ...]:
        """Return one layer backward, with what is recomputed before it; nothing is where a layer is not to be repeated."""
        recompute = self.plan.strategy.recompute
        halves = self._halves()
        repeated: tuple[Item, ...] = ()
        if recompute == "alternate":
            repeated = tuple(item for half in halves for item in self._half_alternate(*half))
        elif again and recompute == "full":
            repeated = tuple(item for half in halves for item in self._half_again(*half))
        return repeated + tuple(
            item
            for name, operators in reversed(halves)
            for item in self._half_backward(name, operators, selective=recompute == "selective")
        )

    def embedding_forward(self) -> tuple[Item, ...]:
        """Return the embedding; each rank looks up its part of the vocabulary, and the parts are summed."""
        work = forward_work("embedding", embedding_operators(*self._shapes()))
        return (work, *self._collective("reduce_scatter" if self._sequence_parallel else "all_reduce"))

    def embedding_backward(self) -> tuple[Item, ...]:
        """Return the gradient's way into the embedding table."""
        gather = self._collective("all_gather") if self._sequence_parallel else ()
        return (*gather, backward_work("embedding", embedding_operators(*self._shapes())))

    def head_forward(self) -> tuple[Item, ...]:
        """Return final normalisation, logits and loss."""
        operators = head_operators(*self._shapes())
        if self.plan.strategy.tp == 1 or not operators:
            return (forward_work("head", operators),)
        lm_head = transformer(self.plan).lm_head
        norm = operators[: len(operators) - 2] if lm_head else operators
        if not lm_head:
            return (forward_work("final_norm", norm),)
        gather, reductions = self._collective("all_gather") if self._sequence_parallel else (), self._small_reductions()
        return (forward_work("final_norm", norm), *gather, forward_work("logits", operators[len(norm) :]), *reductions)

    def head_backward(self) -> tuple[Item, ...]:
        """Return the gradients of loss, logits and final normalisation."""
        operators = head_operators(*self._shapes())
        if self.plan.strategy.tp == 1 or not transformer(self.plan).lm_head:
            return (backward_work("head", operators),)
        *norm, logits, loss = operators
        return (*self._column_backward(logits, [loss]), backward_work("final_norm", norm))

    @property
    def _sequence_parallel(self) -> bool:
        return self.plan.strategy.sequence_parallel

    @property
    def _chunked(self) -> bool:
        return self.plan.strategy.overlap_tp == "gemm_chunks"

    def _shapes(self) -> tuple[Transformer, LocalShape, Numerics]:
        return transformer(self.plan), local_shape(self.plan), numerics(self.plan)

    def _runs(self, chunk: ModelChunk, start: int, stop: int) -> tuple[tuple[Operators, int], ...]:
        first = chunk_layers(self.plan, chunk).start
        return layer_runs(self.plan, first + start, first + stop)

    def _plain_backward(self, operators: Operators, count: int, *, again: bool) -> Block:
        """Return equal layers that nothing cuts, backward, each as one stretch of work and one of recomputation where it is repeated."""
        repeated = (forward_work("layer", operators, "recompute"),) if again else ()
        return Block(name="layer", body=(*repeated, backward_work("layer", operators)), repeat=count)

    def _halves(self) -> tuple[tuple[str, tuple[Operator, ...]], ...]:
        shapes = self._shapes()
        return (("attention", attention_operators(*shapes)), ("mlp", mlp_operators(*shapes)))

    def _collective(self, op: CollectiveOp) -> tuple[Collective, ...]:
        if self.plan.strategy.tp == 1:
            return ()
        rows = self.plan.training.micro_batch_size * self.plan.training.seq_length
        size_bytes = rows * transformer(self.plan).hidden_size * numerics(self.plan).element_bytes
        return (Collective(op=op, group=self.group, bytes=size_bytes),)

    def _small_reductions(self) -> tuple[Collective, ...]:
        rows = self.plan.training.micro_batch_size * self.plan.training.seq_length
        return (Collective(op="all_reduce", group=self.group, bytes=LOSS_REDUCTIONS * rows * FP32_BYTES, pieces=LOSS_REDUCTIONS),)

    def _half_forward(self, name: str, operators: Sequence[Operator], phase: Phase) -> tuple[Item, ...]:
        if self.plan.strategy.tp == 1:
            return (forward_work(name, operators, phase),)
        norm, *inner, residual = operators
        return (
            forward_work(f"{name} norm", [norm], phase),
            *self._split_pair(name, inner, phase, self._collective("reduce_scatter" if self._sequence_parallel else "all_reduce")),
            forward_work(f"{name} residual", [residual], phase),
        )

    def _half_again(self, name: str, operators: Sequence[Operator]) -> tuple[Item, ...]:
        """Return the forward pass of half a layer as recomputation repeats it: to its end, or without what nothing needs."""
        kept = [operator for operator in operators if not (operator.needless and self.plan.strategy.recompute_stops_early)]
        if len(kept) == len(operators):
            return self._half_forward(name, operators, "recompute")
        if self.plan.strategy.tp == 1:
            return (forward_work(name, kept, "recompute"),)
        norm, *inner = kept
        return (forward_work(f"{name} norm", [norm], "recompute"), *self._split_pair(name, inner, "recompute", ()))

    def _half_alternate(self, name: str, operators: Sequence[Operator]) -> tuple[Item, ...]:
        """Return what is repeated of half a layer whose every second product is kept, and what its row-split layer scatters or reduces."""
        kept = [operator for operator in repeated_operators(self.plan, operators) if not operator.needless]
        if self.plan.strategy.tp == 1:
            return (forward_work(name, kept, "recompute"),)
        norm, *inner = kept
        return (forward_work(f"{name} norm", [norm], "recompute"), *self._split_pair(name, inner, "recompute", ()))

    def _split_pair(self, name: str, inner: Sequence[Operator], phase: Phase, close: tuple[Collective, ...]) -> tuple[Item, ...]:
        """Return a column-split layer, what follows it and, unless nothing closes it, the row-split layer, with their collectives."""
        gather = self._collective("all_gather") if self._sequence_parallel else ()
        if not self._chunked:
            return (*gather, forward_work(name, inner, phase), *close)
        column, *between = inner
        row = (between.pop(),) if close else ()
        return (
            *beside_chunks(column.name, phase, column.forward, gather),
            forward_work(name, between, phase),
            *(item for each in row for item in beside_chunks(each.name, phase, each.forward, close)),
        )

    def _half_backward(self, name: str, operators: Sequence[Operator], *, selective: bool) -> tuple[Item, ...]:
        dropped = [operator for operator in operators if operator.selective] if selective else []
        again = (forward_work(f"{name} again", dropped, "recompute"),) if dropped else ()
        if self.plan.strategy.tp == 1:
            return (*again, backward_work(name, operators))
        norm, column, *inner, residual = operators
        gather = self._collective("all_gather") if self._sequence_parallel else ()
        opened: tuple[Item, ...] = (*gather, *again)
        if self._chunked:
            row = inner.pop()
            weight_gradient = Work(name=f"{row.name} weight gradient", phase="backward", kernels=row.backward_weight)
            opened = (*beside_chunks(f"{row.name} input gradient", "backward", row.backward_input, gather), weight_gradient, *again)
        return (
            backward_work(f"{name} residual", [residual]),
            *opened,
            *self._column_backward(column, inner),
            backward_work(f"{name} norm", [norm]),
        )

    def _column_backward(self, column: Operator, inner: Sequence[Operator]) -> tuple[Item, ...]:
        """Return the backward pass of what follows a column-split layer, of the layer, and the collective of its input gradient."""
        before = backward_work(column.name, inner)
        input_gradient = Work(name=f"{column.name} input gradient", phase="backward", kernels=column.backward_input)
        weight_gradient = Work(name=f"{column.name} weight gradient", phase="backward", kernels=column.backward_weight)
        # Under sequence parallelism the saved input is a slice, gathered again while the input gradient is computed, or before, to be
        # used twice.
        has_gathered = self.plan.strategy.recompute == "alternate"
        regather = self._collective("all_gather") if self._sequence_parallel and not has_gathered else ()
        close = self._collective("reduce_scatter" if self._sequence_parallel else "all_reduce")
        if self.plan.strategy.overlap_tp == "none":
            return (before, *regather, input_gradient, *close, weight_gradient)
        first: tuple[Item, ...] = tuple(Overlapped(collective=each, work=input_gradient) for each in regather) or (input_gradient,)
        return (before, *first, *(Overlapped(collective=each, work=weight_gradient) for each in close))
