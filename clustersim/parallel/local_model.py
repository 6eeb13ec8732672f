"""The model on one rank: its share of operators and parameters under a layout."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from clustersim.parallel.expert_shares import ExpertSpread
from clustersim.parallel.layers import Operators, weights_of
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.weights import Weights, total_weights
from clustersim.workloads.adapters import Adapters
from clustersim.workloads.ends import Prediction
from clustersim.workloads.model import Model, Sublayer
from clustersim.workloads.operators import GraphPart, Operator, captured
from clustersim.workloads.shapes import LocalShape, Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """The operators that one rank runs on one micro-batch, and the parameters that they need."""

    model: Model
    numerics: Numerics
    whole: LocalShape
    """Share of a micro-batch and of a layer on one rank, experts aside."""
    spread: ExpertSpread | None
    """Spread of tokens over experts; None for a model without any."""
    seq_length: int
    """Tokens of a whole sequence."""
    captured: tuple[GraphPart, ...] = ()
    """Parts of a layer that were captured in graphs."""
    wide_layers: tuple[int, int] = (0, 0)
    """Layers at the start and at the end whose products stay in 16 bits under fp8."""
    adapters: Adapters | None = None
    """Low-rank adapters that are trained in the place of the model."""

    @property
    def expert_spread(self) -> ExpertSpread:
        """Spread of tokens over the experts of a model that has some."""
        assert self.spread is not None, self.model.name
        return self.spread

    def shape(self, layer: int = 0, place: int | None = None) -> LocalShape:
        """Return the share of a rank in a micro-batch and in a layer.

        Parameters
        ----------
        layer
            Where tokens spread over experts differently in every layer.
        place
            Of expert parallelism; the mean of all when left out.
        """
        return self.whole if self.spread is None else replace(self.whole, experts=self.spread.share(layer, place))

    @property
    def front(self) -> Operators:
        """Operators of the first stage before the first layer."""
        return self._frozen(self.model.front(self.shape(), self.numerics))

    @property
    def head(self) -> Operators:
        """Operators of the last stage after the last layer, without multi-token prediction."""
        return self._frozen(self.model.head(self.shape(), self.numerics))

    @property
    def back(self) -> Operators:
        """Operators of the last stage after the last layer, losses and multi-token prediction included."""
        return (*self.head, *(operator for module in self.predictions for operator in module.operators))

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Modules that predict a further token; their layers are like the last one, experts and their rows included."""
        modules = self.model.predictions(self.shape(self.model.n_layers - 1), self.numerics)
        return tuple(
            Prediction(joining=self._frozen(each.joining), layer=self._frozen(each.layer), head=self._frozen(each.head)) for each in modules
        )

    def _frozen(self, operators: Operators) -> Operators:
        return operators if self.adapters is None else tuple(self.adapters.frozen(each, self.numerics) for each in operators)

    def ends(self, chunk: ModelChunk) -> Operators:
        """Return the operators of embedding and head, as far as a chunk holds them."""
        return (self.front if chunk.first else ()) + (self.back if chunk.last else ())

    def sublayers(self, layer: int, place: int | None = None) -> tuple[Sublayer, ...]:
        """Return the sublayers of one layer, in execution order.

        Parameters
        ----------
        place
            Of expert parallelism, where some experts get more tokens than others; the mean of all when left out.
        """
        first = self.first_alike(layer)
        parts = _sublayers(self.model, self.shape(first, place), self._numerics(first), first, self.adapters)
        return _in_graphs(parts, self.captured) if self.captured else parts

    def _numerics(self, layer: int) -> Numerics:
        start, end = self.wide_layers
        wide = layer < start or layer >= self.model.n_layers - end
        return replace(self.numerics, gemm_element_bytes=self.numerics.element_bytes) if wide else self.numerics

    def layer(self, layer: int, place: int | None = None) -> Operators:
        """Return the operators of one layer, in execution order; see ``sublayers``."""
        return tuple(operator for part in self.sublayers(layer, place) for operator in part.operators)

    def runs(self, layers: range, place: int | None = None) -> tuple[tuple[Operators, int], ...]:
        """Return consecutive layers as (operators, how many equal ones in a row)."""
        return tuple((self.layer(first, place), count) for first, count in self.equal_layers(layers))

    def equal_layers(self, layers: range) -> tuple[tuple[int, int], ...]:
        """Return consecutive layers as (first of a row of equal ones, how many they are)."""
        apart = self.spread is not None and self.spread.load.by_layer
        alike = _first_alike(self.model, self.seq_length, self.wide_layers)
        together = (tuple(run) for _, run in groupby(layers, key=self.first_alike if apart else alike.__getitem__))
        return tuple((run[0], len(run)) for run in together)

    def first_alike(self, layer: int) -> int:
        """Return the first layer of the model that does the same as one."""
        if self.spread is not None and self.spread.load.by_layer and self.model.has_experts(layer):
            return layer
        return _first_alike(self.model, self.seq_length, self.wide_layers)[layer]

    def layer_weights(self, layers: range | None = None) -> tuple[Weights, ...]:
        """Return the parameters of each of some layers, or of all."""
        runs = [(weights_of(operators), count) for operators, count in self.runs(range(self.model.n_layers) if layers is None else layers)]
        return tuple(weights for weights, count in runs for _ in range(count))

    def chunk_weights(self, chunk: ModelChunk) -> Weights:
        """Return the parameters of a chunk, a tied head on another stage than the embedding counted there too."""
        runs = self.runs(chunk.layers)
        return total_weights([*((weights_of(operators), count) for operators, count in runs), (self.end_weights(chunk), 1)])

    def end_weights(self, chunk: ModelChunk) -> Weights:
        """Return the parameters of embedding and head, as far as a chunk holds them; a shared table counts once."""
        tied = self.model.tied_parameters(self.shape()) if chunk.last and chunk.beside_first else 0.0
        return weights_of(self.ends(chunk)).without(tied)

    @property
    def tied_parameters(self) -> float:
        """Trained parameters of the logits that are the embedding's, so that a rank with both holds them once."""
        return 0.0 if self.adapters else self.model.tied_parameters(self.shape())

    def layer_input_bytes(self, layer: int) -> float:
        """Return the input of one layer for a micro-batch, in bytes, as full recomputation stores it."""
        return self.model.layer_input_bytes(layer, self.shape(), self.numerics)

    @property
    def boundary_bytes(self) -> float:
        """Activations between two layers, of all ranks of tensor parallelism together, in bytes."""
        return self.whole.rows * self.model.hidden_size * self.numerics.element_bytes


@lru_cache(maxsize=256)
def _sublayers(model: Model, local: LocalShape, number: Numerics, layer: int, adapters: Adapters | None) -> tuple[Sublayer, ...]:
    parts = model.sublayers(layer, local, number)
    if adapters is None:
        return parts

    def adapted(operator: Operator) -> Operator:
        return adapters.adapted(operator, local, number, gated=model.gated_mlp)

    halves = [part.experts and part.experts.mapped(adapted) for part in parts]
    return tuple(
        replace(part, operators=half.operators if half else tuple(map(adapted, part.operators)), experts=half)
        for part, half in zip(parts, halves, strict=True)
    )


@lru_cache(maxsize=256)
def _in_graphs(parts: tuple[Sublayer, ...], names: tuple[GraphPart, ...]) -> tuple[Sublayer, ...]:
    """Return sublayers with the kernels of some parts captured in graphs."""
    found: list[Sublayer] = []
    for part in parts:
        if part.experts and ("experts" in names or "router" in names):
            half = part.experts.captured(whole="experts" in names)
            found.append(replace(part, operators=half.operators, experts=half))
        else:
            found.append(replace(part, operators=captured(part.operators)) if part.name in names else part)
    return tuple(found)


@lru_cache(maxsize=64)
def _first_alike(model: Model, seq_length: int, wide_layers: tuple[int, int]) -> tuple[int, ...]:
    known: dict[Hashable, int] = {}
    start, end = wide_layers
    n_layers = model.n_layers
    return tuple(
        known.setdefault((model.likeness(layer, seq_length), layer < start or layer >= n_layers - end), layer) for layer in range(n_layers)
    )
