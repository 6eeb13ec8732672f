"""Normalisation, activation and dropout, counted in passes over what comes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.normalization import Activation, Dropout, NormKind, NormLayer
from tests.unit.workloads.kinds.factories import EAGER, FUSED, backward_bytes, forward_bytes, parameters, saved_bytes

IMAGE = (16, 8, 8)
SIZE_BYTES = 4 * 16 * 8 * 8 * 2


@pytest.mark.parametrize(("kind", "forward", "backward"), [("batch", 3, 5), ("layer", 2, 5)])
def test_a_normalisation_makes_its_passes(kind: NormKind, forward: int, backward: int) -> None:
    operators = NormLayer(input=IMAGE, kind=kind).operators(EAGER)

    assert forward_bytes(operators) == forward * SIZE_BYTES
    assert backward_bytes(operators) == backward * SIZE_BYTES


def test_an_image_has_scale_and_shift_for_each_channel_and_a_row_for_each_feature() -> None:
    assert parameters(NormLayer(input=IMAGE, kind="batch").operators(FUSED)) == 32
    assert parameters(NormLayer(input=(6, 8), kind="layer").operators(FUSED)) == 16


def test_an_activation_behind_it_is_free_where_kernels_fuse_and_makes_five_passes_where_not() -> None:
    layer = NormLayer(input=IMAGE, kind="batch", activated=True)

    assert forward_bytes(layer.operators(FUSED)) + backward_bytes(layer.operators(FUSED)) == 8 * SIZE_BYTES
    assert forward_bytes(layer.operators(EAGER)) + backward_bytes(layer.operators(EAGER)) == 13 * SIZE_BYTES


def test_it_keeps_its_input_and_the_activation_keeps_nothing() -> None:
    assert saved_bytes(NormLayer(input=IMAGE, kind="batch", activated=True).operators(EAGER)) == SIZE_BYTES
    assert saved_bytes(Activation(input=IMAGE).operators(EAGER)) == 0


def test_the_mask_of_dropout_is_one_byte_for_each_number() -> None:
    operators = Dropout(input=IMAGE).operators(FUSED)

    assert saved_bytes(operators) == SIZE_BYTES / 2
    assert forward_bytes(operators) == backward_bytes(operators) == 2.5 * SIZE_BYTES


def test_without_a_gradient_of_the_input_nothing_that_learns_nothing_works_backward() -> None:
    first = replace(FUSED, input_gradient=False)

    assert backward_bytes(Activation(input=IMAGE).operators(first)) == 0
    assert backward_bytes(Dropout(input=IMAGE).operators(first)) == 0
    assert Activation(input=IMAGE).output == Dropout(input=IMAGE).output == NormLayer(input=IMAGE, kind="batch").output == IMAGE
