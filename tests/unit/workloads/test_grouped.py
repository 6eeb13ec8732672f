"""Linear layers of several experts: the linear layer of each, in one kernel or one after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.experts import GroupShape, grouped_linear
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import GroupedGemm, Operator, Stream
from clustersim.workloads.shapes import Numerics
from tests.unit.parallel.factories import traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

ROWS = (5, 0, 7)
SHAPE = GroupShape(rows=ROWS, inputs=32, outputs=48, bias=False)
APART = replace(NUMERICS, fused_gradient_accumulation=False)
FP8 = replace(NUMERICS, gemm_element_bytes=1.0)


def singles(numerics: Numerics, *, bias: bool) -> list[Operator]:
    """Return the linear layer of each expert that has rows."""
    shapes = [LinearShape(rows=rows, inputs=32, outputs=48, bias=bias, saved_rows=rows) for rows in ROWS if rows]
    return [linear("one", shape, numerics) for shape in shapes]


@pytest.mark.parametrize("numerics", [NUMERICS, APART, FP8, replace(NUMERICS, kernels="eager")])
@pytest.mark.parametrize("bias", [False, True])
def test_experts_together_move_and_multiply_what_they_do_one_by_one(numerics: Numerics, bias: bool) -> None:
    together = grouped_linear("all", replace(SHAPE, bias=bias), numerics)

    assert list(together.phases) == ["forward", "input_gradient", "weight_gradient"]
    for phase, kernels in together.phases.items():
        alone = [kernel for single in singles(numerics, bias=bias) for kernel in single.kernels(phase)]
        assert sum(kernel.flops for kernel in kernels) == sum(kernel.flops for kernel in alone)
        assert traffic_bytes(kernels) == traffic_bytes(tuple(alone))


def test_parameters_count_for_experts_without_rows_too() -> None:
    assert grouped_linear("all", SHAPE, NUMERICS).parameters == 3 * 32 * 48
    assert grouped_linear("all", replace(SHAPE, bias=True), NUMERICS).parameters == 3 * (32 * 48 + 48)


def test_kept_are_the_rows_that_came() -> None:
    assert grouped_linear("all", SHAPE, NUMERICS).saved_bytes == 2 * 12 * 32


def test_accumulation_apart_is_a_kernel_for_each_expert_that_has_rows() -> None:
    product, accumulation = grouped_linear("all", SHAPE, APART).kernels("weight_gradient")

    assert isinstance(product, GroupedGemm)
    assert not product.accumulates
    assert accumulation == Stream(2 * 32 * 48 * (2 + 2 * 4.0), launches=2)
