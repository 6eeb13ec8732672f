"""Forward and backward passes of a model chunk as blocks of work and of the collectives that interrupt it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from clustersim.parallel.layers import PHASES, ForwardPhase, Gradients
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.recomputation import recomputed_layers
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.sublayers import LayerTechnique, backward_runs, forward_runs, joined
from clustersim.parallel.training_plan import Strategy
from clustersim.program.tasks import Block, Item
from clustersim.workloads.model import HEAD, Sublayer
from clustersim.workloads.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPasses:
    """The passes of chunks: runs of equal layers as blocks, and the two ends of the model, as parallel techniques divide them.

    A model without a front or a back has no block of that name.
    """

    local: LocalModel
    strategy: Strategy
    techniques: tuple[LayerTechnique, ...] = ()
    gradients: Gradients = "all"
    """Gradients that backward passes compute. Recomputation and the collectives of input gradients belong to the input; to the weight,
    the gathering of an input that was kept as a slice."""
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
        border = max(start, min(stop, recomputed_layers(self.strategy, chunk)))
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
        key = "F", self.local.first_alike(layer), False, self.gradients
        if key not in self._layers:
            self._layers[key] = self._forward_of(self.local.sublayers(layer), layer)
        return self._layers[key]

    def layer_backward(self, layer: int = 0, *, again: bool = True) -> tuple[Item, ...]:
        """Return one layer backward, after its recomputation where ``again`` is set."""
        again = again and self.gradients != "weight"
        key = "B", self.local.first_alike(layer), again, self.gradients
        if key not in self._layers:
            self._layers[key] = self._backward_of(self.local.sublayers(layer), layer, again=again)
        return self._layers[key]

    def embedding_forward(self) -> tuple[Item, ...]:
        """Return the embedding; each rank looks up its part of the vocabulary, and the parts are summed."""
        return self._forward_of(self._end("embedding", self.local.front))

    def embedding_backward(self) -> tuple[Item, ...]:
        """Return the addition of gradients into the embedding table."""
        return self._backward_of(self._end("embedding", self.local.front))

    def head_forward(self) -> tuple[Item, ...]:
        """Return final normalisation, logits and loss, and then the modules that predict further tokens."""
        last = self.local.model.n_layers - 1
        further = (
            (
                *self._forward_of(self._end("mtp", module.joining)),
                *self.layer_forward(last),
                *self._forward_of(self._end(HEAD, module.head)),
            )
            for module in self.local.predictions
        )
        return (*self._forward_of(self._head), *chain.from_iterable(further))

    def head_backward(self) -> tuple[Item, ...]:
        """Return the gradients of the modules that predict further tokens, and of loss, logits and final normalisation.

        Further predictions keep everything and repeat nothing, like the head.
        """
        last = self.local.model.n_layers - 1
        further = (
            (
                *self._backward_of(self._end(HEAD, module.head)),
                *self.layer_backward(last, again=False),
                *self._backward_of(self._end("mtp", module.joining)),
            )
            for module in self.local.predictions
        )
        return (*chain.from_iterable(further), *self._backward_of(self._head))

    @property
    def _head(self) -> tuple[Sublayer, ...]:
        return self._end(HEAD, self.local.head)

    def _end(self, name: str, operators: tuple[Operator, ...]) -> tuple[Sublayer, ...]:
        """Return an end of the model as a sublayer; nothing where the model has none."""
        return (Sublayer(name=name, operators=operators, entering_width=self.local.model.hidden_size),) if operators else ()

    def _forward_of(self, parts: Sequence[Sublayer], layer: int = 0) -> tuple[Item, ...]:
        """Return sublayers forward, in sequence."""
        return tuple(item for part in parts for item in self._run(part, part.operators, layer, "forward"))

    def _run(self, part: Sublayer, operators: Sequence[Operator], layer: int, phase: ForwardPhase) -> tuple[Item, ...]:
        """Return operators of a sublayer forward, with the tasks of parallel techniques."""
        entries = forward_runs(operators, phase)
        for technique in self.techniques:
            entries = technique.forward(part, entries, phase=phase, layer=layer)
        return joined(part, entries, phase)

    def _backward_of(self, parts: Sequence[Sublayer], layer: int = 0, *, again: bool = False) -> tuple[Item, ...]:
        """Return sublayers backward, the last one first, with their recomputation where required."""
        items: list[Item] = []
        for part in parts if again else ():
            items += self._run(part, _chosen(each.repeated_before_layer(part) for each in self.techniques), layer, "recompute")
        for part in reversed(parts):
            if again:
                items += self._run(part, _chosen(each.repeated_before_sublayer(part) for each in self.techniques), layer, "recompute")
            entries = backward_runs(part.operators, self.gradients)
            for technique in self.techniques:
                entries = technique.backward(part, entries, gradients=self.gradients, layer=layer)
            items += joined(part, entries, PHASES[self.gradients])
        return tuple(items)

    def _equal(self, chunk: ModelChunk, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        return self.local.equal_layers(range(chunk.start + start, chunk.start + stop))


def _chosen(repeated: Iterable[tuple[Operator, ...]]) -> tuple[Operator, ...]:
    return tuple(chain.from_iterable(repeated))
