"""The kernel of a convolution: places, FLOPs and traffic of its three products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.convolution import Convolution, Product, reach

STEM = Convolution(batch=2, channels=3, height=224, width=224, filters=64, kernel=(7, 7), stride=(2, 2), padding=(3, 3))
"""The first layer of ResNet."""


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "places"),
    [(224, 7, 2, 3, 112), (56, 3, 1, 1, 56), (55, 3, 2, 0, 27), (5, 5, 1, 0, 1), (4, 5, 1, 0, 0)],
)
def test_a_window_takes_as_many_places_as_fit(size: int, kernel: int, stride: int, padding: int, places: int) -> None:
    assert reach(size, kernel, stride, padding) == places


def test_each_place_and_filter_is_a_sum_over_channels_and_taps() -> None:
    assert STEM.places == (112, 112)
    assert STEM.depth == 3 * 49
    assert STEM.flops == 2 * 2 * 64 * 112 * 112 * 147


@pytest.mark.parametrize("product", ["input_gradient", "weight_gradient"])
def test_both_gradients_have_the_flops_of_the_forward_pass(product: Product) -> None:
    assert replace(STEM, product=product).flops == STEM.flops


def test_groups_divide_the_flops() -> None:
    whole = replace(STEM, channels=32)

    assert replace(whole, groups=4).flops == whole.flops / 4


def test_every_operand_is_read_once_and_the_result_written_once() -> None:
    image, weights, result = 2 * 3 * 224 * 224, 64 * 147, 2 * 64 * 112 * 112

    assert STEM.traffic_bytes == 2 * (image + weights + result)
    assert replace(STEM, product="input_gradient").traffic_bytes == STEM.traffic_bytes


def test_a_weight_gradient_that_is_added_moves_its_buffer_twice() -> None:
    added = replace(STEM, product="weight_gradient", output_bytes=4.0, accumulates=True)

    assert added.traffic_bytes == 2 * (2 * 3 * 224 * 224 + 2 * 64 * 112 * 112) + 8 * 64 * 147
