"""Layers over images: shapes, parameters, what passes move, and what indices of pooling cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.kinds.images import ConvolutionLayer, PoolLayer
from clustersim.workloads.operators import Convolution, Stream
from tests.unit.workloads.kinds.factories import EAGER, FUSED, NUMERICS, backward_bytes, forward_bytes, saved_bytes

LAYER = ConvolutionLayer(input=(16, 8, 8), filters=32, kernel=(3, 3), stride=(2, 2), padding=(1, 1), groups=1, bias=False)
IN_BYTES, OUT_BYTES = 4 * 16 * 8 * 8 * 2, 4 * 32 * 4 * 4 * 2


def test_filters_become_channels_and_the_stride_divides_the_image() -> None:
    assert LAYER.output == (32, 4, 4)


@pytest.mark.parametrize(("groups", "bias", "parameters"), [(1, False, 32 * 16 * 9), (1, True, 32 * 16 * 9 + 32), (16, False, 32 * 9)])
def test_each_filter_has_a_weight_for_each_channel_of_its_group_and_tap(groups: int, bias: bool, parameters: int) -> None:
    (operator,) = replace(LAYER, groups=groups, bias=bias).operators(FUSED)

    assert operator.parameters == parameters


def test_the_three_products_are_those_of_one_convolution() -> None:
    (operator,) = LAYER.operators(FUSED)

    products = [
        kernel
        for kernel in (*operator.kernels("forward"), *operator.kernels("input_gradient"), *operator.kernels("weight_gradient"))
        if isinstance(kernel, Convolution)
    ]
    assert [product.product for product in products] == ["forward", "input_gradient", "weight_gradient"]
    assert {product.flops for product in products} == {operator.forward_flops}
    assert (products[2].output_bytes, products[2].accumulates) == (4.0, True)


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    (operator,) = LAYER.operators(replace(FUSED, input_gradient=False))

    assert operator.kernels("input_gradient") == ()
    assert operator.kernels("weight_gradient")


def test_a_gradient_that_is_not_added_by_the_product_is_added_by_a_kernel() -> None:
    separate = replace(FUSED, numerics=replace(NUMERICS, fused_gradient_accumulation=False))

    (operator,) = LAYER.operators(separate)

    assert operator.kernels("weight_gradient")[1] == Stream(32 * 16 * 9 * (2 + 4 + 4))


def test_gradients_that_are_clipped_alone_are_read_and_written_before_they_are_added() -> None:
    clipped = replace(FUSED, numerics=replace(NUMERICS, fused_gradient_accumulation=False, gradient_passes=3))

    assert LAYER.operators(clipped)[0].kernels("weight_gradient")[1] == Stream(32 * 16 * 9 * (2 + 4 + 4 + 3 * 4))


def test_an_eager_bias_reads_and_writes_the_result_once_more() -> None:
    biased = replace(LAYER, bias=True)

    assert biased.operators(EAGER)[0].kernels("forward")[1:] == (Stream(2 * OUT_BYTES),)
    assert biased.operators(FUSED)[0].kernels("forward")[1:] == ()
    assert biased.operators(FUSED)[0].kernels("weight_gradient")[-1] == Stream(OUT_BYTES)


def test_images_stored_channel_by_channel_are_transposed_for_every_product() -> None:
    (operator,) = LAYER.operators(replace(FUSED, numerics=replace(NUMERICS, transposes_images=True)))

    turned = Stream(2 * (IN_BYTES + OUT_BYTES), launches=2)
    assert [
        kernels[0] for kernels in (operator.kernels("forward"), operator.kernels("input_gradient"), operator.kernels("weight_gradient"))
    ] == [turned] * 3


def test_the_input_is_kept_unless_another_layer_keeps_it() -> None:
    assert LAYER.operators(FUSED)[0].saved_bytes == IN_BYTES
    assert LAYER.operators(replace(FUSED, input_kept=True))[0].saved_bytes == 0


MEAN = PoolLayer(input=(16, 8, 8), kind="average", places=(4, 2))
LARGEST = replace(MEAN, kind="max")
POOLED_BYTES, GIVEN_BYTES, N_OUT = 4 * 16 * 64 * 2, 4 * 16 * 8 * 2, 4 * 16 * 8


def test_an_eager_maximum_keeps_an_index_of_eight_bytes_and_scatters_into_zeros() -> None:
    operators = LARGEST.operators(EAGER)

    assert forward_bytes(operators) == POOLED_BYTES + GIVEN_BYTES + 8 * N_OUT
    assert backward_bytes(operators) == 2 * POOLED_BYTES + GIVEN_BYTES + 8 * N_OUT
    assert saved_bytes(operators) == POOLED_BYTES + 8 * N_OUT


def test_a_maximum_without_indices_reads_input_and_result_again() -> None:
    operators = LARGEST.operators(FUSED)

    assert backward_bytes(operators) == 2 * (POOLED_BYTES + GIVEN_BYTES)
    assert saved_bytes(operators) == POOLED_BYTES
    assert backward_bytes(LARGEST.operators(replace(FUSED, input_gradient=False))) == 0
