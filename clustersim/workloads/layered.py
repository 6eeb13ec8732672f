"""Models that are a list of layers: convolutional and recurrent networks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, prod
from typing import Final

from clustersim.documents.text import Data
from clustersim.workloads.kinds.call import Layer, LayerCall, Shape, has_parameters
from clustersim.workloads.model import TOKEN_BYTES, Model, Sublayer
from clustersim.workloads.operators import Operator, Recorded
from clustersim.workloads.shapes import COUNTING, FP32_BYTES, LocalShape, Numerics

FORWARD_FRACTION: Final = 1.0 / 3.0
"""Forward part of a measured time: the backward pass has two products, by input and by weight, where the forward pass has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered(Model):
    """A model by its layers, in the order of the forward pass; loss included."""

    name: str
    input: Shape
    """Shape of one sample: channels, height and width of an image; tokens of a sentence; or features."""
    tokens_per_sample: int
    """Tokens that throughput counts in a sample: 1 for an image."""
    layers: tuple[Layer, ...] = field(hash=False)
    n_layers: int = field(init=False)
    max_positions: int = field(init=False)
    published_parameters: int | None = None
    measured_s_per_flop: float | None = None
    """Measured time of a forward FLOP and its two backward ones on one accelerator; None where the kernel model applies."""

    def __post_init__(self) -> None:
        """Count layers and tokens as every model does."""
        object.__setattr__(self, "n_layers", len(self.layers))
        object.__setattr__(self, "max_positions", self.tokens_per_sample)

    def layer_operators(self, layer: int, samples: int, numerics: Numerics) -> tuple[Operator, ...]:
        """Return what one layer does with some samples; up to the first that learns none needs the gradient of its input."""
        call = LayerCall(samples=samples, numerics=numerics, input_gradient=layer > self._first_that_learns)
        operators = self.layers[layer].operators(call)
        if self.measured_s_per_flop is None:
            return operators
        return tuple(_measured(operator, self.measured_s_per_flop) for operator in operators)

    def layer_input(self, layer: int) -> Shape:
        """Return the input shape of a layer."""
        return self.layers[layer - 1].output if layer else self.input

    def layer_input_bytes(self, layer: int, local: LocalShape, numerics: Numerics) -> float:
        """Return the input of a layer, in bytes."""
        return local.batch * prod(self.layer_input(layer)) * numerics.element_bytes

    def likeness(self, layer: int, seq_length: int) -> Hashable:
        """Return the layer itself, and whether the gradient of its input is needed."""
        del seq_length
        return self.layers[layer], layer > self._first_that_learns

    def sublayers(self, layer: int, local: LocalShape, numerics: Numerics) -> tuple[Sublayer, ...]:
        """Return the layer as one part, which nothing cuts."""
        return (Sublayer(name="layer", operators=self.layer_operators(layer, local.batch, numerics)),)

    def sample_bytes(self, seq_length: int) -> float:
        """Return the bytes of one sample: indices of tokens, or numbers in fp32, as data loaders give images."""
        return FP32_BYTES * prod(self.input) if len(self.input) > 1 else TOKEN_BYTES * seq_length

    def outline(self) -> Mapping[str, Data]:
        """Return the input, and what each layer does, gives and holds; names and views do nothing."""
        rows: list[Data] = [
            {
                "does": ", ".join(dict.fromkeys(operator.name for operator in does if operator.kernels("forward"))),
                "output": " x ".join(map(str, layer.output)),
                "parameters": int(fsum(operator.parameters for operator in does)),
                "forward_flops": fsum(operator.forward_flops for operator in does),
            }
            for layer, does in zip(self.layers, self.each_layer(), strict=True)
            if does
        ]
        sizes: dict[str, Data] = {"input": " x ".join(map(str, self.input)), "tokens_per_sample": self.tokens_per_sample}
        return {"name": self.name, **sizes, "forward_flops": self.forward_flops, "layers": rows}

    @property
    def _first_that_learns(self) -> int:
        call = LayerCall(samples=1, numerics=COUNTING)
        return next((index for index, layer in enumerate(self.layers) if has_parameters(layer.operators(call))), self.n_layers)

    @property
    def n_parameters(self) -> int:
        """All parameters of the model."""
        return int(fsum(operator.parameters for does in self.each_layer() for operator in does))

    @property
    def forward_flops(self) -> float:
        """FLOPs of all products of one sample's forward pass, a multiply-add counted as two."""
        return fsum(operator.forward_flops for does in self.each_layer() for operator in does)

    def each_layer(self) -> tuple[tuple[Operator, ...], ...]:
        """Return what each layer does with one sample, to count what does not depend on how numbers are stored."""
        return tuple(self.layer_operators(layer, 1, COUNTING) for layer in range(self.n_layers))


def _measured(operator: Operator, s_per_flop: float) -> Operator:
    """Return an operator that takes its share of a measured time, by FLOPs."""
    flops = operator.forward_flops
    forward_s = FORWARD_FRACTION * s_per_flop * flops
    forward, backward = Recorded(forward_s, flops), Recorded(s_per_flop * flops - forward_s, 2.0 * flops)
    return replace(operator, phases={"forward": (forward,), "input_gradient": (backward,)} if flops else {})
