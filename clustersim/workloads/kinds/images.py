"""Layers over images: convolution and pooling."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from math import prod
from typing import Literal

from clustersim.workloads.kinds.call import InputLayer, LayerCall, Shape
from clustersim.workloads.operators import Convolution, Kernel, Operator, Pair, Stream, reach


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLayer(InputLayer):
    """Filters over an image of channels, height and width."""

    filters: int
    kernel: Pair
    stride: Pair
    padding: Pair
    groups: int
    bias: bool

    @property
    def output(self) -> Shape:
        """One channel for each filter."""
        _, *image = self.input
        rows, columns = (reach(*side) for side in zip(image, self.kernel, self.stride, self.padding, strict=True))
        return self.filters, rows, columns

    @property
    def weights(self) -> int:
        """Numbers in all filters."""
        return self.filters * (self.input[0] // self.groups) * self.kernel[0] * self.kernel[1]

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the convolution, whose gradients are convolutions too.

        Kernels that fuse add the bias while they write the result; otherwise a kernel of its own reads and writes the result. As
        in a linear layer the gradient of the filters is added to its buffer by the product itself or by a further kernel.
        """
        numbers = call.numerics
        result_bytes = call.stored_bytes(self.output)
        forward = self._product(call)
        turned = (Stream(2.0 * (call.stored_bytes(self.input) + result_bytes), launches=2),) if numbers.transposes_images else ()
        bias: tuple[Kernel, ...] = (Stream(2.0 * result_bytes),) if self.bias and numbers.kernels == "eager" else ()
        return (
            Operator(
                name="convolution",
                phases={
                    "forward": (*turned, forward, *bias),
                    "input_gradient": (*turned, changed(forward, product="input_gradient")) if call.input_gradient else (),
                    "weight_gradient": (*turned, *self._weight_gradient(forward, call), *((Stream(result_bytes),) if self.bias else ())),
                },
                parameters=float(self.weights + (self.filters if self.bias else 0)),
                saved_bytes=call.kept_input_bytes(self.input),
                forward_flops=forward.flops,
            ),
        )

    def _product(self, call: LayerCall) -> Convolution:
        channels, height, width = self.input
        return Convolution(
            batch=call.samples,
            channels=channels,
            height=height,
            width=width,
            filters=self.filters,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            groups=self.groups,
            element_bytes=call.numerics.gemm_element_bytes,
            output_bytes=call.numerics.element_bytes,
        )

    def _weight_gradient(self, forward: Convolution, call: LayerCall) -> tuple[Kernel, ...]:
        numbers = call.numerics
        if numbers.fused_gradient_accumulation:
            return (changed(forward, product="weight_gradient", output_bytes=numbers.gradient_bytes, accumulates=True),)
        added_bytes = self.weights * (numbers.element_bytes + (2 + numbers.gradient_passes) * numbers.gradient_bytes)
        return changed(forward, product="weight_gradient"), Stream(added_bytes)


INDEX_BYTES = 8.0
"""PyTorch stores the position of each maximum as a 64-bit index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayer(InputLayer):
    """Windows over an image, each of which becomes one number."""

    kind: Literal["max", "average"]
    places: Pair
    """Rows and columns of the result."""

    @property
    def output(self) -> Shape:
        """As many channels, fewer places."""
        return self.input[0], *self.places

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return one read and one write in each direction.

        For the largest of each window an eager framework keeps indices; one that fuses reads input and result again.
        """
        taken, given = call.stored_bytes(self.input), call.stored_bytes(self.output)
        forward_bytes = backward_bytes = taken + given
        index_bytes = 0.0
        if self.kind == "max" and call.numerics.kernels == "eager":
            index_bytes = call.samples * prod(self.output) * INDEX_BYTES
            forward_bytes += index_bytes
            # The gradient is scattered into zeros.
            backward_bytes += index_bytes + taken
        elif self.kind == "max":
            backward_bytes += taken + given
        return (
            Operator(
                name=f"{self.kind}_pool",
                phases={"forward": (Stream(forward_bytes),), "input_gradient": (Stream(backward_bytes),) if call.input_gradient else ()},
                saved_bytes=call.kept_input_bytes(self.input) + index_bytes,
            ),
        )
