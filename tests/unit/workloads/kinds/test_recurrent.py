"""Recurrent layers: one product for all tokens, one for each token after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.recurrent import CellKind, RecurrentLayer
from tests.unit.parallel.factories import gemms
from tests.unit.workloads.kinds.factories import FUSED

LAYER = RecurrentLayer(input=(10, 6), cell="lstm", features=8, bidirectional=False)


# Parameters as PyTorch counts them: weights of input and state, and two biases.
@pytest.mark.parametrize(
    ("cell", "bidirectional", "expected"),
    [("lstm", False, 4 * 8 * (6 + 8 + 2)), ("lstm", True, 2 * 4 * 8 * (6 + 8 + 2)), ("gru", False, 3 * 8 * (6 + 8 + 2))],
)
def test_each_gate_has_a_matrix_for_input_and_state_and_two_biases(cell: CellKind, bidirectional: bool, expected: int) -> None:
    (operator,) = replace(LAYER, cell=cell, bidirectional=bidirectional).operators(FUSED)

    assert operator.parameters == expected


def test_the_input_enters_in_one_product_and_the_state_in_one_for_each_token() -> None:
    (operator,) = LAYER.operators(FUSED)

    entering, *steps = gemms(operator.kernels("forward"))
    assert (entering.m, entering.n, entering.k) == (4 * 10, 32, 6)
    assert [(step.m, step.n, step.k) for step in steps] == [(4, 32, 8)] * 10


def test_directions_run_beside_each_other_and_both_give_features() -> None:
    both = replace(LAYER, bidirectional=True)
    (operator,) = both.operators(FUSED)

    assert both.output == (10, 16)
    assert LAYER.output == (10, 8)
    assert [step.batch for step in gemms(operator.kernels("forward"))] == [1, *[2] * 10]
    assert operator.forward_flops == 2 * LAYER.operators(FUSED)[0].forward_flops


def test_backward_does_twice_the_products_of_forward() -> None:
    (operator,) = LAYER.operators(FUSED)

    backward = sum(product.flops for product in gemms(operator.kernels("input_gradient") + operator.kernels("weight_gradient")))
    assert backward == 2 * operator.forward_flops == 2 * sum(product.flops for product in gemms(operator.kernels("forward")))


def test_without_a_gradient_of_the_input_the_state_s_remains() -> None:
    (operator,) = LAYER.operators(replace(FUSED, input_gradient=False))

    assert len(gemms(operator.kernels("input_gradient"))) == 10


def test_gates_and_cell_states_are_kept_with_the_input() -> None:
    (operator,) = LAYER.operators(FUSED)

    assert operator.saved_bytes == 4 * 10 * (6 + 4 * 8 + 8) * 2
