"""Layers over sequences: tables of tokens, recurrent layers, attention of a decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.sequences import AttentionLayer, CellKind, EmbeddingLayer, RecurrentLayer
from tests.unit.parallel.factories import gemms
from tests.unit.workloads.kinds.factories import EAGER, FUSED, forward_bytes, parameters, saved_bytes

RECURRENT = RecurrentLayer(input=(10, 6), cell="lstm", features=8, bidirectional=False)


# Parameters as PyTorch counts them: weights of input and state, and two biases.
@pytest.mark.parametrize(
    ("cell", "bidirectional", "expected"),
    [("lstm", False, 4 * 8 * (6 + 8 + 2)), ("lstm", True, 2 * 4 * 8 * (6 + 8 + 2)), ("gru", False, 3 * 8 * (6 + 8 + 2))],
)
def test_each_gate_has_a_matrix_for_input_and_state_and_two_biases(cell: CellKind, bidirectional: bool, expected: int) -> None:
    (operator,) = replace(RECURRENT, cell=cell, bidirectional=bidirectional).operators(FUSED)

    assert operator.parameters == expected


def test_the_input_enters_in_one_product_and_the_state_in_one_for_each_token() -> None:
    (operator,) = RECURRENT.operators(FUSED)

    entering, *steps = gemms(operator.kernels("forward"))
    assert (entering.m, entering.n, entering.k) == (4 * 10, 32, 6)
    assert [(step.m, step.n, step.k) for step in steps] == [(4, 32, 8)] * 10


def test_directions_run_beside_each_other_and_both_give_features() -> None:
    both = replace(RECURRENT, bidirectional=True)
    (operator,) = both.operators(FUSED)

    assert both.output == (10, 16)
    assert RECURRENT.output == (10, 8)
    assert [step.batch for step in gemms(operator.kernels("forward"))] == [1, *[2] * 10]
    assert operator.forward_flops == 2 * RECURRENT.operators(FUSED)[0].forward_flops


def test_backward_does_twice_the_products_of_forward() -> None:
    (operator,) = RECURRENT.operators(FUSED)

    backward = sum(product.flops for product in gemms(operator.kernels("input_gradient") + operator.kernels("weight_gradient")))
    assert backward == 2 * operator.forward_flops == 2 * sum(product.flops for product in gemms(operator.kernels("forward")))


def test_without_a_gradient_of_the_input_the_state_s_remains() -> None:
    (operator,) = RECURRENT.operators(replace(FUSED, input_gradient=False))

    assert len(gemms(operator.kernels("input_gradient"))) == 10


def test_gates_and_cell_states_are_kept_with_the_input() -> None:
    (operator,) = RECURRENT.operators(FUSED)

    assert operator.saved_bytes == 4 * 10 * (6 + 4 * 8 + 8) * 2


ATTENDING = AttentionLayer(input=(5, 8), memory=(7, 12), kind="additive", features=16, normalized=False)
PAIRS = 4 * 5 * 7


def test_what_was_found_stands_behind_each_query() -> None:
    assert ATTENDING.output == (5, 8 + 12)


# Of NVIDIA's GNMT: two projections without bias, a vector, and with normalisation a scalar and a bias more.
@pytest.mark.parametrize(("normalized", "more"), [(False, 16), (True, 16 + 1 + 16)])
def test_additive_attention_learns_two_projections_and_a_vector(normalized: bool, more: int) -> None:
    assert parameters(replace(ATTENDING, normalized=normalized).operators(FUSED)) == 8 * 16 + 12 * 16 + more


def test_a_product_of_vectors_learns_the_projections_alone() -> None:
    assert parameters(replace(ATTENDING, kind="dot").operators(FUSED)) == 8 * 16 + 12 * 16


def test_eager_additive_attention_writes_a_vector_for_every_pair() -> None:
    difference = forward_bytes(ATTENDING.operators(EAGER)) - forward_bytes(ATTENDING.operators(FUSED))

    assert difference == 6 * PAIRS * 16 * 2
    assert saved_bytes(ATTENDING.operators(EAGER)) - saved_bytes(ATTENDING.operators(FUSED)) == PAIRS * 16 * 2


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_flops_are_projections_comparison_and_sum(kind: str) -> None:
    layer = replace(ATTENDING, kind="dot") if kind == "dot" else ATTENDING
    rows = 4 * (5 * 8 + 7 * 12) * 16

    flops = sum(operator.forward_flops for operator in layer.operators(FUSED))

    assert flops == 2 * rows + 2 * PAIRS * 16 + 2 * PAIRS * 12


def test_the_dot_form_is_made_of_products_that_double_backward() -> None:
    operators = replace(ATTENDING, kind="dot").operators(FUSED)

    backward = sum(
        product.flops
        for operator in operators
        for product in gemms(operator.kernels("input_gradient") + operator.kernels("weight_gradient"))
    )
    assert backward == 2 * sum(operator.forward_flops for operator in operators)


TABLE = EmbeddingLayer(input=(6,), rows=100, features=8, shared=False)


def test_every_token_becomes_a_row_of_the_table() -> None:
    assert TABLE.output == (6, 8)
    assert parameters(TABLE.operators(FUSED)) == 800
    assert forward_bytes(TABLE.operators(FUSED)) == 2 * 4 * 6 * 8 * 2


def test_a_shared_table_is_counted_once() -> None:
    again = EmbeddingLayer(input=(6,), rows=100, features=8, shared=True)

    assert parameters(again.operators(FUSED)) == 0
    assert forward_bytes(again.operators(FUSED)) == forward_bytes(TABLE.operators(FUSED))
