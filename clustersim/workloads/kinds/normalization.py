"""Dense layers and the loss, and batch and layer normalisation, counted in passes over their input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from clustersim.workloads.ends import FUSED_LOSS_PASSES
from clustersim.workloads.kinds.call import IMAGE_SIDES, InputLayer, LayerCall, Shape
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator, Stream
from clustersim.workloads.shapes import FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayer(InputLayer):
    """A matrix that maps the last dimension of the input to ``features``."""

    features: int
    bias: bool

    @property
    def output(self) -> Shape:
        """The input with another last side."""
        return (*self.input[:-1], self.features)

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the matrix product, one row for each sample or token."""
        rows = call.samples * prod(self.input[:-1])
        shape = LinearShape(
            rows=rows, inputs=self.input[-1], outputs=self.features, bias=self.bias, saved_rows=0 if call.input_kept else rows
        )
        operator = linear("linear", shape, call.numerics)
        return (operator if call.input_gradient else replace(operator, phases={**operator.phases, "input_gradient": ()}),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxLoss(InputLayer):
    """Cross entropy of the softmax, in fp32."""

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return log-softmax and loss: logits to fp32, a read and a write, stored; backward two reads and a write.

        A fused loss works on the logits as they are.
        """
        logits, e = float(call.samples * prod(self.input)), call.numerics.element_bytes
        if call.numerics.fused_loss:
            once = Stream(logits * FUSED_LOSS_PASSES * e)
            return (Operator(name="loss", role="loss", phases={"forward": (once,), "input_gradient": (once,)}, saved_bytes=logits * e),)
        cast_bytes = e + FP32_BYTES if e < FP32_BYTES else 0.0
        launches = 2 if cast_bytes else 1
        return (
            Operator(
                name="loss",
                role="loss",
                phases={
                    "forward": (Stream(logits * (cast_bytes + 2.0 * FP32_BYTES), launches=launches + 1),),
                    "input_gradient": (Stream(logits * (cast_bytes + 3.0 * FP32_BYTES), launches=launches + 1),),
                },
                saved_bytes=logits * FP32_BYTES,
            ),
        )


NormKind = Literal["batch", "layer"]

FORWARD_PASSES = {"batch": 3.0, "layer": 2.0}
"""Batch statistics need the whole batch before the first result: one read for them, then a read and a write. The row of a layer
normalisation stays on chip."""

BACKWARD_PASSES = {"batch": 5.0, "layer": 5.0}
"""Batch: two sums over input and gradient, then both again and the result. Layer: input, gradient and result, and the first two once
more for scale and shift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLayer(InputLayer):
    """Normalisation with scale and shift: of each channel over batch and image, or of each row over its features."""

    kind: NormKind
    activated: bool = False
    """True where an activation follows; fused kernels apply it in the same pass, and restore its sign in the backward pass."""

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return the normalisation; one of batches saves its input, and what follows saves the result."""
        size_bytes = call.stored_bytes(self.input)
        separate = (Activation(input=self.input).operators(call)) if self.activated and call.numerics.kernels == "eager" else ()
        channels = self.input[0] if len(self.input) == IMAGE_SIDES else self.input[-1]
        backward = Stream(BACKWARD_PASSES[self.kind] * size_bytes, launches=2)
        own = Operator(
            name=f"{self.kind}_norm",
            phases={
                "forward": (Stream(FORWARD_PASSES[self.kind] * size_bytes, launches=2 if self.kind == "batch" else 1),),
                # Scale and shift learn from the same passes.
                "weight_gradient": (backward,),
            },
            parameters=2.0 * channels,
            saved_bytes=call.kept_input_bytes(self.input),
        )
        return (own, *separate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation(InputLayer):
    """An elementwise function, such as ReLU."""

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return a read and a write in place; backward the result and two gradients. The next layer stores the result."""
        size_bytes = call.stored_bytes(self.input)
        return (
            Operator(
                name="activation",
                phases={
                    "forward": (Stream(2.0 * size_bytes),),
                    "input_gradient": (Stream(3.0 * size_bytes),) if call.input_gradient else (),
                },
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout(InputLayer):
    """Dropout; the mask is stored, one byte per number."""

    def operators(self, call: LayerCall) -> tuple[Operator, ...]:
        """Return a read and a write with the mask, and the same backward."""
        mask_bytes = float(call.samples * prod(self.input))
        kernel = Stream(2.0 * call.stored_bytes(self.input) + mask_bytes)
        return (
            Operator(
                name="dropout",
                phases={"forward": (kernel,), "input_gradient": (kernel,) if call.input_gradient else ()},
                saved_bytes=mask_bytes,
            ),
        )
