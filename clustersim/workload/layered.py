"""Models that are a list of layers: convolutional and recurrent networks."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, prod
from typing import Final

from clustersim.workload.kinds.call import Call, Layer, Shape, has_parameters
from clustersim.workload.operators import Operator
from clustersim.workload.shapes import Numerics

_COUNTING: Final = Numerics(
    element_bytes=2.0,
    elementwise_bytes=2.0,
    gemm_element_bytes=2.0,
    gradient_bytes=4.0,
    fused_gradient_accumulation=True,
    kernels="fused",
    fused_loss=True,
    attention="unfused",
)
"""Parameters and FLOPs do not depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """A model by its layers, in the order of the forward pass; loss included."""

    name: str
    input: Shape
    """Of one sample: channels, height and width of an image; tokens of a sentence; or features."""
    tokens_per_sample: int
    """What throughput counts in a sample: 1 for an image."""
    layers: tuple[Layer, ...]
    published_parameters: int | None = None

    @property
    def n_layers(self) -> int:
        """Layers of the list."""
        return len(self.layers)

    def layer_operators(self, layer: int, samples: int, numerics: Numerics) -> tuple[Operator, ...]:
        """Return what one layer does with some samples; up to the first that learns none needs the gradient of its input."""
        return self.layers[layer].operators(Call(samples=samples, numerics=numerics, input_gradient=layer > self._first_that_learns))

    def layer_input(self, layer: int) -> Shape:
        """Return the shape of what a layer receives."""
        return self.layers[layer - 1].output if layer else self.input

    def layer_input_bytes(self, layer: int, samples: int, numerics: Numerics) -> float:
        """Return what a layer receives, in bytes."""
        return samples * prod(self.layer_input(layer)) * numerics.element_bytes

    @property
    def _first_that_learns(self) -> int:
        call = Call(samples=1, numerics=_COUNTING)
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
        return tuple(self.layer_operators(layer, 1, _COUNTING) for layer in range(self.n_layers))
