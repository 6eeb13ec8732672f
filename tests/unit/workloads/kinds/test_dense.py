"""Linear layers on features and on sequences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.call import Shape
from clustersim.workloads.kinds.normalization import LinearLayer, SoftmaxLoss
from tests.unit.parallel.factories import gemms
from tests.unit.workloads.kinds.factories import FUSED, NUMERICS, backward_bytes, forward_bytes, saved_bytes


@pytest.mark.parametrize(("shape", "rows", "output"), [((8,), 4, (10,)), ((6, 8), 24, (6, 10))])
def test_every_sample_or_token_is_a_row(shape: Shape, rows: int, output: Shape) -> None:
    layer = LinearLayer(input=shape, features=10, bias=True)
    (operator,) = layer.operators(FUSED)

    (product,) = gemms(operator.kernels("forward"))
    assert (product.m, product.n, product.k) == (rows, 10, 8)
    assert layer.output == output
    assert operator.parameters == 90
    assert operator.saved_bytes == rows * 8 * 2


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    (operator,) = LinearLayer(input=(8,), features=10, bias=True).operators(replace(FUSED, input_gradient=False))

    assert operator.kernels("input_gradient") == ()
    assert operator.kernels("weight_gradient")


LOSS = SoftmaxLoss(input=(6, 100))
LOGITS = 4 * 6 * 100


def test_logits_of_16_bits_are_widened_first() -> None:
    operators = LOSS.operators(FUSED)

    assert forward_bytes(operators) == LOGITS * (2 + 4 + 4 + 4)
    assert backward_bytes(operators) == LOGITS * (3 * 4 + 4 + 2)
    assert saved_bytes(operators) == LOGITS * 4


def test_logits_of_32_bits_are_not() -> None:
    operators = LOSS.operators(replace(FUSED, numerics=replace(NUMERICS, element_bytes=4.0)))

    assert forward_bytes(operators) == LOGITS * 8
    assert backward_bytes(operators) == LOGITS * 12


def test_a_fused_loss_makes_two_passes_each_way() -> None:
    operators = LOSS.operators(replace(FUSED, numerics=replace(NUMERICS, fused_loss=True)))

    assert forward_bytes(operators) == backward_bytes(operators) == LOGITS * 2 * 2
    assert saved_bytes(operators) == LOGITS * 2
    assert LOSS.output == (6, 100)
