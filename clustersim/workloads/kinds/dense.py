"""Linear layers, on features or on each token of a sequence, and the loss after the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from clustersim.workloads.ends import FUSED_LOSS_PASSES
from clustersim.workloads.kinds.call import InputLayer, LayerCall, Shape
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
