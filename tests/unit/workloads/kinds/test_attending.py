"""Attention of a recurrent decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.attending import AttentionLayer
from tests.unit.parallel.factories import gemms
from tests.unit.workloads.kinds.factories import EAGER, FUSED, forward_bytes, parameters, saved_bytes

LAYER = AttentionLayer(input=(5, 8), memory=(7, 12), kind="additive", features=16, normalized=False)
PAIRS = 4 * 5 * 7


def test_what_was_found_stands_behind_each_query() -> None:
    assert LAYER.output == (5, 8 + 12)


# Of NVIDIA's GNMT: two projections without bias, a vector, and with normalisation a scalar and a bias more.
@pytest.mark.parametrize(("normalized", "more"), [(False, 16), (True, 16 + 1 + 16)])
def test_additive_attention_learns_two_projections_and_a_vector(normalized: bool, more: int) -> None:
    assert parameters(replace(LAYER, normalized=normalized).operators(FUSED)) == 8 * 16 + 12 * 16 + more


def test_a_product_of_vectors_learns_the_projections_alone() -> None:
    assert parameters(replace(LAYER, kind="dot").operators(FUSED)) == 8 * 16 + 12 * 16


def test_eager_additive_attention_writes_a_vector_for_every_pair() -> None:
    difference = forward_bytes(LAYER.operators(EAGER)) - forward_bytes(LAYER.operators(FUSED))

    assert difference == 6 * PAIRS * 16 * 2
    assert saved_bytes(LAYER.operators(EAGER)) - saved_bytes(LAYER.operators(FUSED)) == PAIRS * 16 * 2


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_flops_are_projections_comparison_and_sum(kind: str) -> None:
    layer = replace(LAYER, kind="dot") if kind == "dot" else LAYER
    rows = 4 * (5 * 8 + 7 * 12) * 16

    flops = sum(operator.forward_flops for operator in layer.operators(FUSED))

    assert flops == 2 * rows + 2 * PAIRS * 16 + 2 * PAIRS * 12


def test_the_dot_form_is_made_of_products_that_double_backward() -> None:
    operators = replace(LAYER, kind="dot").operators(FUSED)

    backward = sum(
        product.flops
        for operator in operators
        for product in gemms(operator.kernels("input_gradient") + operator.kernels("weight_gradient"))
    )
    assert backward == 2 * sum(operator.forward_flops for operator in operators)
