"""Linear layers of several experts at once: grouped products, or one product for each expert."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.workload.linear import cast_operand
from clustersim.workload.operators import GroupedGemm, Kernel, Operator, Stream
from clustersim.workload.shapes import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """One rank's linear layers of equal size, one for each of its experts."""

    rows: tuple[int, ...]
    """Of each expert."""
    inputs: int
    outputs: int
    bias: bool
    cast_rows: bool = True
    """False where rows come in the format of the product already."""
    cast_gradient: bool = True
    """False where the gradients of the results do."""


def grouped_linear(name: str, shape: GroupShape, numerics: Numerics) -> Operator:
    """Return the linear layers of all experts of a rank as one operator.

    Forward, backward and accumulation are those of a linear layer, for each expert with its own rows and its own weight. Products beside
    each other are issued one by one, on several streams, and their rows cast together [1]_; those of one kernel at once; others follow
    each other, casts to 8 bits included. An expert without rows reads no weight and has no gradient to add.

    References
    ----------
    .. [1] NVIDIA, *Transformer Engine*, ``pytorch/module/grouped_linear.py``.
    """
    total, inputs, outputs = sum(shape.rows), shape.inputs, shape.outputs
    operand, plain = numerics.gemm_element_bytes, numerics.element_bytes
    n_used = sum(1 for rows in shape.rows if rows)
    launches = 1 if numerics.fused_experts else n_used
    forward = GroupedGemm(shape.rows, outputs, inputs, element_bytes=operand, output_bytes=plain, launches=launches)
    input_gradient = GroupedGemm(shape.rows, inputs, outputs, element_bytes=operand, output_bytes=plain, launches=launches)
    fused = numerics.fused_gradient_accumulation
    weight_gradient = GroupedGemm(
        shape.rows,
        outputs,
        inputs,
        over_rows=True,
        element_bytes=operand,
        output_bytes=numerics.gradient_bytes if fused else plain,
        accumulates=fused,
        launches=launches,
    )
    accumulate = n_used * inputs * outputs * (plain + (2 + numerics.gradient_passes) * numerics.gradient_bytes)
    weights = _kernels(weight_gradient, numerics) + (() if fused else (Stream(accumulate, launches=n_used),))
    if shape.bias:
        weights += (Stream(total * outputs * plain),)
    return Operator(
        name=name,
        phases={
            "forward": (*(_casts(shape, inputs, numerics) if shape.cast_rows else ()), *_kernels(forward, numerics)),
            "input_gradient": (*(_casts(shape, outputs, numerics) if shape.cast_gradient else ()), *_kernels(input_gradient, numerics)),
            "weight_gradient": weights,
        },
        expert=True,
        parameters=float(len(shape.rows) * (inputs * outputs + (outputs if shape.bias else 0))),
        saved_bytes=total * inputs * operand,
        forward_flops=forward.flops,
    )


def _casts(shape: GroupShape, width: int, numerics: Numerics) -> tuple[Kernel, ...]:
    groups = (sum(shape.rows),) if numerics.grouped_experts else tuple(rows for rows in shape.rows if rows)
    return tuple(kernel for rows in groups for kernel in cast_operand(rows * width, numerics))


def _kernels(product: GroupedGemm, numerics: Numerics) -> tuple[Kernel, ...]:
    return (product,) if numerics.grouped_experts else product.products
