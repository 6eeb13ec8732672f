"""Linear layers: three matrix products and the accumulation of the gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.workloads.operators import Gemm, Kernel, Operator, Stream, vector_bytes
from clustersim.workloads.shapes import SCALINGS, LocalShape, Numerics

VECTOR_LAUNCHES = 2
"""Kernels of the gradient of a bias: the sum over rows, and its accumulation, which no product does by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearShape:
    """One rank's part of a linear layer."""

    rows: int
    inputs: int
    outputs: int
    bias: bool
    saved_rows: int
    """Rows of the input stored for the backward pass: fewer than ``rows`` where the input is gathered again."""
    own_input: int | None = None
    """Rows of the input that this rank has before they are gathered; None for all."""
    own_result: int | None = None
    """Rows of the result that this rank has after they are scattered; None for all."""

    def share(self, own: int | None) -> float:
        """Return rows of this rank as a share of all."""
        return 1.0 if own is None else own / self.rows


def linear(name: str, shape: LinearShape, numerics: Numerics) -> Operator:
    """Return a linear layer as an operator.

    The forward product is (rows, inputs) x (inputs, outputs); backward, one product gives the gradient of the input and
    one that of the weight. A weight gradient is either added to its buffer by the product itself (fused accumulation), or by a
    kernel of its own that reads the gradient and reads and writes the buffer. Where gradients of a micro-batch are clipped first, other
    kernels read and write them before.

    Operands in 8 bits are cast before they are used, the input forward and the gradient of the output backward: a kernel reads them as
    they are and writes the cast and its transpose, which the weight gradient takes (NVIDIA Transformer Engine, ``fp8_cast_transpose``).
    Weights are cast once a step, by the optimizer. Kept until then is the cast.

    All three products have matrices whose rows are as long as the inputs or the outputs are many.
    """
    rows, inputs, outputs = shape.rows, shape.inputs, shape.outputs
    operand, plain = numerics.gemm_element_bytes, numerics.element_bytes
    at_once = vector_bytes(operand, inputs, outputs)
    forward = Gemm(rows, outputs, inputs, element_bytes=operand, output_bytes=plain, vector_bytes=at_once)
    input_gradient = replace(forward, n=inputs, k=outputs)
    summed = Gemm(inputs, outputs, rows, element_bytes=operand, output_bytes=plain, vector_bytes=at_once)
    weight_gradient: tuple[Kernel, ...]
    if numerics.fused_gradient_accumulation:
        weight_gradient = (replace(summed, output_bytes=numerics.gradient_bytes, accumulates=True),)
    else:
        accumulate = inputs * outputs * (plain + (2 + numerics.gradient_passes) * numerics.gradient_bytes)
        weight_gradient = (summed, Stream(accumulate))
    if shape.bias:
        weight_gradient += (Stream(rows * outputs * plain, launches=VECTOR_LAUNCHES),)
    return Operator(
        name=name,
        phases={
            "forward": (*cast_operand(rows * inputs, numerics, own=shape.share(shape.own_input)), forward),
            "input_gradient": (*cast_operand(rows * outputs, numerics, own=shape.share(shape.own_result)), input_gradient),
            "weight_gradient": weight_gradient,
        },
        parameters=float(inputs * outputs + (outputs if shape.bias else 0)),
        saved_bytes=shape.saved_rows * inputs * operand,
        forward_flops=forward.flops,
    )


def gathered_input(inputs: int, outputs: int, local: LocalShape, *, bias: bool) -> LinearShape:
    """Return the shape of a column-split layer, whose input sequence parallelism keeps in slices and gathers."""
    own = local.sequence_rows
    return LinearShape(rows=local.rows, inputs=inputs, outputs=outputs, bias=bias, saved_rows=own, own_input=own)


def scattered_result(inputs: int, outputs: int, local: LocalShape, *, bias: bool) -> LinearShape:
    """Return the shape of a row-split layer, whose result sequence parallelism scatters, and the gradient of it gathers."""
    return LinearShape(rows=local.rows, inputs=inputs, outputs=outputs, bias=bias, saved_rows=local.rows, own_result=local.sequence_rows)


def cast_operand(elements: int, numerics: Numerics, n_groups: int = 1, own: float = 1.0) -> tuple[Kernel, ...]:
    """Return the cast of an operand to 8 bits and its transpose, in one call; nothing where operands need none.

    Of groups of rows that are products of their own, each has its own kernels, unless the scaling has some for all. A rank may have but
    a share of its ``own``, and gather the others.
    """
    operand, plain, scales = numerics.gemm_element_bytes, numerics.element_bytes, SCALINGS[numerics.scaling]
    if operand >= plain:
        return ()
    launches = scales.launches * (1 if scales.casts_groups else n_groups) + scales.orders
    return (Stream(elements * scales.cast_bytes(plain, operand, own), launches=launches, one_call=True),)
