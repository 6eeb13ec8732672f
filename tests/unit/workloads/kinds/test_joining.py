"""Paths side by side: shapes, sums, copies, and an input that is kept once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.images import ConvolutionLayer
from clustersim.workloads.kinds.joining import Auxiliary, Chain, Concatenation, Join, ResidualPath
from clustersim.workloads.kinds.normalization import NormLayer
from clustersim.workloads.operators import Operator
from tests.unit.workloads.kinds.factories import EAGER, FUSED, backward_bytes, forward_bytes, saved_bytes

IMAGE = (16, 8, 8)
SIZE_BYTES = 4 * 16 * 8 * 8 * 2
CONV = ConvolutionLayer(input=IMAGE, filters=16, kernel=(1, 1), stride=(1, 1), padding=(0, 0), groups=1, bias=False)
NORM = NormLayer(input=IMAGE, kind="batch")
BLOCK = ResidualPath(input=IMAGE, layers=(CONV,), shortcut=(), activated=True)


def more_than(operators: tuple[Operator, ...], *without: tuple[Operator, ...]) -> tuple[float, float]:
    """Return what operators move forward and backward beyond others."""
    forward = forward_bytes(operators) - sum(map(forward_bytes, without))
    backward = backward_bytes(operators) - sum(map(backward_bytes, without))
    return forward / SIZE_BYTES, backward / SIZE_BYTES


def test_an_eager_sum_makes_three_passes_and_its_activation_two_and_three() -> None:
    # Backward the gradients of both paths are added up: three passes.
    assert more_than(BLOCK.operators(EAGER), CONV.operators(EAGER)) == (3 + 2, 3 + 3)
    assert more_than(replace(BLOCK, activated=False).operators(EAGER), CONV.operators(EAGER)) == (3, 3)


def test_a_fused_sum_does_its_activation_on_the_way() -> None:
    assert more_than(BLOCK.operators(FUSED), CONV.operators(FUSED)) == (3, 3 + 3)


@pytest.mark.parametrize("path", [(CONV, NORM), (Chain(layers=(CONV, NORM)),)])
def test_a_fused_sum_behind_a_normalisation_costs_one_pass_each_way(path: tuple[ConvolutionLayer | NormLayer | Chain, ...]) -> None:
    block = replace(BLOCK, layers=path)

    assert more_than(block.operators(FUSED), CONV.operators(FUSED), NORM.operators(FUSED)) == (1, 3 + 1)


def test_a_shortcut_does_not_keep_the_input_once_more() -> None:
    block = replace(BLOCK, shortcut=(CONV,))

    assert saved_bytes(block.operators(FUSED)) == SIZE_BYTES
    assert block.output == IMAGE


def test_gradients_are_not_added_up_where_none_is_needed() -> None:
    first = replace(FUSED, input_gradient=False)

    fork = BLOCK.operators(first)[0]

    assert fork.kernels("input_gradient") == ()


def test_paths_are_joined_channel_by_channel_by_a_copy() -> None:
    joined = Concatenation(input=IMAGE, paths=((CONV,), (CONV, NORM), ()))
    parts = CONV.operators(EAGER), CONV.operators(EAGER), NORM.operators(EAGER)

    assert joined.output == (48, 8, 8)
    # The copy reads and writes three images each way; backward two sums of three passes come on top.
    assert more_than(joined.operators(EAGER), *parts) == (6, 6 + 6)
    # A fused sum reads all three and writes one.
    assert more_than(joined.operators(FUSED), *parts) == (6, 6 + 4)


def test_layers_aside_leave_the_input_as_it_is() -> None:
    aside = Auxiliary(input=IMAGE, layers=(CONV,))

    assert aside.output == IMAGE
    assert saved_bytes(aside.operators(FUSED)) == 0
    assert more_than(aside.operators(EAGER), CONV.operators(EAGER)) == (0, 3)


def test_what_was_kept_is_put_behind_the_features() -> None:
    join = Join(input=(6, 8), kept=(6, 24))
    operators = join.operators(FUSED)

    assert join.output == (6, 32)
    assert forward_bytes(operators) == 2 * 4 * 6 * 32 * 2
    assert backward_bytes(operators) == 2 * 4 * 6 * 32 * 2 + 3 * 4 * 6 * 24 * 2
