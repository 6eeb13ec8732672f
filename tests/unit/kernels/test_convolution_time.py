"""A convolution takes as long as the matrix product that it is, or as the best other way that a library has."""

from __future__ import annotations

from dataclasses import replace
from math import isclose

import pytest

from clustersim.kernels.gemm import convolution_s, implicit_products, rounded_channels, takes_winograd, winograd_products
from clustersim.workloads.operators import Convolution, ConvolutionProduct, Gemm

CONV = Convolution(batch=8, channels=64, height=56, width=56, filters=128, kernel=(3, 3), padding=(1, 1))
PLACES = 8 * 56 * 56
NEVER = float("inf")


def seconds(convolution: Convolution, precision: str = "fp16", *, bytes_per_s: float = NEVER, direct_s: float = NEVER) -> float:
    """Return the time where products run at one FLOP/s."""
    return convolution_s(
        convolution,
        precision=precision,
        product_s=lambda gemm: gemm.flops,
        direct_s=direct_s,
        stream_s=lambda size_bytes: size_bytes / bytes_per_s,
    )


def shapes(convolution: Convolution, precision: str = "fp16") -> list[tuple[int, int, int, int]]:
    return [(gemm.m, gemm.n, gemm.k, gemm.batch) for gemm in implicit_products(convolution, precision)]


def test_forward_is_places_by_filters_and_as_deep_as_channels_times_taps() -> None:
    assert shapes(CONV) == [(PLACES, 128, 64 * 9, 1)]


def test_the_gradient_of_the_input_is_places_by_channels() -> None:
    assert shapes(replace(CONV, product="input_gradient")) == [(PLACES, 64, 128 * 9, 1)]


def test_a_stride_parts_the_gradient_of_the_input_into_phases() -> None:
    strided = replace(CONV, stride=(2, 2), product="input_gradient")

    assert shapes(strided) == [(8 * 28 * 28, 64, 128 * 9 // 4, 4)]


def test_a_stride_beyond_the_kernel_leaves_the_rest_of_the_image_without_work() -> None:
    projection = replace(CONV, kernel=(1, 1), padding=(0, 0), stride=(2, 2), product="input_gradient")

    assert shapes(projection) == [(8 * 28 * 28, 64, 128, 1)]


def test_the_gradient_of_filters_is_deep_and_may_be_cut() -> None:
    cuts = shapes(replace(CONV, product="weight_gradient"))

    assert cuts[0] == (128, 64 * 9, PLACES, 1)
    assert [cut[3] for cut in cuts] == [1, 2, 4, 8, 16, 32, 64]
    assert all(cut[2] * cut[3] >= PLACES for cut in cuts)


def test_groups_are_products_of_their_own() -> None:
    assert shapes(replace(CONV, groups=4)) == [(PLACES, 32, 16 * 9, 4)]


@pytest.mark.parametrize(
    ("channels", "precision", "rounded"),
    [(3, "fp16", 4), (3, "tf32", 4), (3, "fp32", 3), (10, "fp16", 16), (10, "tf32", 12), (64, "bf16", 64), (20, "fp8", 32)],
)
def test_matrix_units_take_channels_in_multiples(channels: int, precision: str, rounded: int) -> None:
    assert rounded_channels(replace(CONV, channels=channels), precision) == rounded


@pytest.mark.parametrize("product", ["forward", "input_gradient", "weight_gradient"])
def test_with_endless_bandwidth_only_flops_count(product: ConvolutionProduct) -> None:
    convolution = replace(CONV, product=product)

    assert isclose(seconds(convolution), convolution.flops, rel_tol=1e-12)


def test_no_convolution_is_faster_than_its_traffic() -> None:
    assert seconds(CONV, bytes_per_s=1e-6) == CONV.traffic_bytes / 1e-6


def test_cutting_the_depth_is_paid_for_with_the_reading_of_sums() -> None:
    """A device whose products cost a fixed time takes as many cuts as help it, and no more."""
    deep = replace(CONV, product="weight_gradient")

    def cut_s(bandwidth: float) -> float:
        return convolution_s(
            deep,
            precision="fp16",
            product_s=lambda gemm: 256.0 / gemm.batch,
            direct_s=NEVER,
            stream_s=lambda size_bytes: size_bytes / bandwidth,
        )

    sums_bytes = 128 * 64 * 9 * 8
    assert cut_s(1e12) == pytest.approx(4.0 + 64 * sums_bytes / 1e12)
    # 256 / n s of products and n s of sums are least for 16 parts.
    assert cut_s(sums_bytes) == pytest.approx(16.0 + 16.0)


def test_a_depthwise_convolution_runs_without_tiles_where_that_is_faster() -> None:
    depthwise = replace(CONV, filters=64, groups=64)

    assert seconds(depthwise, direct_s=1.0) == 1.0
    assert seconds(CONV, direct_s=1.0) > 1.0


@pytest.mark.parametrize(
    ("change", "takes"),
    [({}, True), ({"stride": (2, 2)}, False), ({"kernel": (5, 5)}, False), ({"groups": 2}, False)],
)
def test_winograd_s_algorithm_is_for_small_filters_without_stride(change: dict[str, tuple[int, int] | int], takes: bool) -> None:
    convolution = Convolution(
        **{"batch": 8, "channels": 64, "height": 56, "width": 56, "filters": 128, "kernel": (3, 3), "padding": (1, 1)} | change  # pyright: ignore[reportArgumentType] - fields by name
    )

    assert takes_winograd(convolution, "fp32") is takes
    assert not takes_winograd(convolution, "fp16")


@pytest.mark.parametrize("product", ["forward", "input_gradient", "weight_gradient"])
def test_winograd_s_algorithm_multiplies_a_quarter_as_often(product: ConvolutionProduct) -> None:
    convolution = replace(CONV, product=product)

    products, transformed_bytes = winograd_products(convolution)

    assert products.batch == 36
    assert products.flops == convolution.flops / 4
    assert transformed_bytes > 36 / 16 * convolution.traffic_bytes
    assert isclose(seconds(convolution, "fp32"), convolution.flops / 4, rel_tol=1e-12)


def test_edges_that_do_not_fill_a_tile_are_multiplied_all_the_same() -> None:
    small = replace(CONV, height=7, width=7)

    products, _ = winograd_products(small)

    assert products.m == 8 * 2 * 2


def test_where_transforms_cost_more_than_they_save_the_direct_way_is_taken() -> None:
    slow_memory = seconds(CONV, "fp32", bytes_per_s=CONV.traffic_bytes / (0.9 * CONV.flops))

    assert slow_memory == CONV.flops


def test_a_product_that_only_memory_bounds_is_read_as_often_as_it_says() -> None:
    free = convolution_s(CONV, precision="fp16", product_s=_nothing, direct_s=NEVER, stream_s=lambda size_bytes: size_bytes)

    assert free == CONV.traffic_bytes


def _nothing(gemm: Gemm) -> float:
    return 0.0 * gemm.m
