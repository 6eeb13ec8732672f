from __future__ import annotations

from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.calibration import GemmCalibration, Tile
from clustersim.kernels.gemm import convolution_s, gemm_compute_s, implicit_products, rounded_channels, takes_winograd, winograd_products
from clustersim.workloads.operators import Convolution, ConvolutionProduct, Gemm, GroupedGemm

PEAK = 1e15
N_MULTIPROCESSORS = 100
SQUARE = (Tile(128, 128, 1.0),)
FULL_WAVE = Gemm(128 * 10, 128 * 10, 4096)
"""As many tiles as multiprocessors."""

SIZES = st.integers(1, 20_000)


def calibration(tiles: tuple[Tile, ...] = SQUARE, *, depth_overhead: float = 0.0) -> GemmCalibration:
    return GemmCalibration(
        sustained_fraction={"default": 1.0}, under_load={"default": 1.0}, power_exponent=0.7, depth_overhead=depth_overhead, tiles=tiles
    )


def seconds(gemm: Gemm | GroupedGemm, constants: GemmCalibration | None = None, *, fraction: float = 1.0) -> float:
    return gemm_compute_s(gemm, constants or calibration(), peak_flops_per_s=PEAK, fraction=fraction, n_multiprocessors=N_MULTIPROCESSORS)


def test_full_waves_of_full_tiles_run_at_the_peak() -> None:
    assert seconds(FULL_WAVE) == pytest.approx(FULL_WAVE.flops / PEAK, rel=1e-12)


def test_the_sustained_fraction_divides_the_rate() -> None:
    assert seconds(FULL_WAVE, fraction=0.8) == pytest.approx(FULL_WAVE.flops / (0.8 * PEAK), rel=1e-12)


def test_one_tile_more_than_a_full_wave_takes_twice_as_long() -> None:
    one_more = Gemm(128, 128 * 101, 4096)

    assert seconds(one_more) == pytest.approx(2 * seconds(Gemm(128, 128 * 100, 4096)), rel=1e-12)


def test_one_row_more_than_a_tile_takes_a_whole_tile() -> None:
    assert seconds(Gemm(129, 128, 4096)) == seconds(Gemm(256, 128, 4096))


def test_a_lone_tile_takes_as_long_as_a_full_wave() -> None:
    assert seconds(Gemm(128, 128, 4096)) == seconds(FULL_WAVE)


def test_tiles_of_a_batch_fill_waves_together() -> None:
    assert seconds(Gemm(128, 128, 4096, batch=100)) == seconds(FULL_WAVE)
    assert seconds(Gemm(128, 128, 4096, batch=101)) == pytest.approx(2 * seconds(FULL_WAVE), rel=1e-12)


def test_fill_and_drain_lengthen_every_tile() -> None:
    overhead = calibration(depth_overhead=64.0)

    assert seconds(Gemm(1280, 1280, 4096), overhead) / seconds(FULL_WAVE) == pytest.approx((4096 + 64) / 4096, rel=1e-12)


def test_fill_and_drain_hurt_a_shallow_product_most() -> None:
    overhead = calibration(depth_overhead=64.0)

    assert seconds(Gemm(1280, 1280, 64), overhead) == pytest.approx(2 * seconds(Gemm(1280, 1280, 64)), rel=1e-12)


def test_the_best_tile_is_taken() -> None:
    both = calibration((Tile(256, 128, 1.0), Tile(64, 64, 0.9)))

    # An eighth of the large tile's work at nine tenths of its rate.
    assert seconds(Gemm(64, 64, 1024), both) == seconds(Gemm(64, 64, 1024), calibration((Tile(64, 64, 0.9),)))
    assert seconds(Gemm(2560, 1280, 1024), both) == seconds(Gemm(2560, 1280, 1024), calibration((Tile(256, 128, 1.0),)))


def test_a_small_tile_is_slower_by_its_share() -> None:
    small = calibration((Tile(128, 128, 0.5),))

    assert seconds(FULL_WAVE, small) == pytest.approx(2 * seconds(FULL_WAVE), rel=1e-12)


def test_rows_and_columns_of_a_tile_are_not_the_same() -> None:
    tall = calibration((Tile(256, 64, 1.0),))

    # One tile of 256 rows, or four that are a quarter full, for each of 100 multiprocessors.
    lying_s, upright_s = seconds(Gemm(64, 256, 1024, batch=100), tall), seconds(Gemm(256, 64, 1024, batch=100), tall)
    assert lying_s == pytest.approx(4 * upright_s, rel=1e-12)


@given(SIZES, SIZES, SIZES)
def test_no_product_is_faster_than_the_peak(m: int, n: int, k: int) -> None:
    gemm = Gemm(m, n, k)

    assert seconds(gemm) >= gemm.flops / PEAK * (1.0 - 1e-12)


@given(SIZES, SIZES, SIZES, st.integers(1, 300))
def test_a_larger_product_never_takes_less(m: int, n: int, k: int, more: int) -> None:
    before_s = seconds(Gemm(m, n, k))

    assert all(
        after_s >= before_s for after_s in (seconds(Gemm(m + more, n, k)), seconds(Gemm(m, n + more, k)), seconds(Gemm(m, n, k + more)))
    )


@given(SIZES, SIZES, SIZES)
def test_a_choice_of_tiles_is_never_worse_than_one_of_them(m: int, n: int, k: int) -> None:
    tiles = (Tile(256, 128, 1.0), Tile(128, 128, 0.9), Tile(64, 64, 0.8))

    best_s = seconds(Gemm(m, n, k), calibration(tiles))

    assert best_s == min(seconds(Gemm(m, n, k), calibration((tile,))) for tile in tiles)


def test_tiles_of_all_groups_fill_waves_together() -> None:
    together = GroupedGemm((128,) * 10, 1280, 4096)

    assert seconds(together) == seconds(FULL_WAVE)
    assert seconds(Gemm(128, 1280, 4096)) * 10 == pytest.approx(10 * seconds(together), rel=1e-12)


def test_a_group_of_few_rows_takes_whole_tiles() -> None:
    assert seconds(GroupedGemm((1,) * 100, 128, 4096)) == seconds(FULL_WAVE)


def test_one_group_is_the_product_itself() -> None:
    for rows in (1, 500, 4096):
        assert seconds(GroupedGemm((rows,), 3000, 777)) == seconds(Gemm(rows, 3000, 777))
        assert seconds(GroupedGemm((rows,), 3000, 777, over_rows=True)) == seconds(Gemm(777, 3000, rows))


def test_deep_groups_go_first_and_a_wave_lasts_as_long_as_its_deepest_tile() -> None:
    # 100 multiprocessors: 60 tiles of depth 1000 and 60 of depth 100 make one deep wave and one shallow one.
    mixed = GroupedGemm((100, 1000), 128 * 60, 128, over_rows=True)

    deep, shallow = (seconds(Gemm(128, 128, depth)) for depth in (1000, 100))
    assert seconds(mixed) == pytest.approx(deep + shallow, rel=1e-12)


@given(st.lists(SIZES, min_size=1, max_size=5), SIZES, SIZES, st.booleans())
def test_a_grouped_product_takes_no_longer_than_its_parts_and_no_less_than_its_work(rows: list[int], n: int, k: int, over: bool) -> None:
    grouped = GroupedGemm(tuple(rows), n, k, over_rows=over)

    assert seconds(grouped) <= sum(seconds(product) for product in grouped.products) * (1 + 1e-12)
    assert seconds(grouped) >= grouped.flops / PEAK * (1 - 1e-12)


CONV = Convolution(batch=8, channels=64, height=56, width=56, filters=128, kernel=(3, 3), padding=(1, 1))
PLACES = 8 * 56 * 56
NEVER = float("inf")


def convolved_s(convolution: Convolution, precision: str = "fp16", *, bytes_per_s: float = NEVER, direct_s: float = NEVER) -> float:
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

    assert isclose(convolved_s(convolution), convolution.flops, rel_tol=1e-12)


def test_no_convolution_is_faster_than_its_traffic() -> None:
    assert convolved_s(CONV, bytes_per_s=1e-6) == CONV.traffic_bytes / 1e-6


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

    assert convolved_s(depthwise, direct_s=1.0) == 1.0
    assert convolved_s(CONV, direct_s=1.0) > 1.0


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
    assert isclose(convolved_s(convolution, "fp32"), convolution.flops / 4, rel_tol=1e-12)


def test_edges_that_do_not_fill_a_tile_are_multiplied_all_the_same() -> None:
    small = replace(CONV, height=7, width=7)

    products, _ = winograd_products(small)

    assert products.m == 8 * 2 * 2


def test_where_transforms_cost_more_than_they_save_the_direct_way_is_taken() -> None:
    slow_memory = convolved_s(CONV, "fp32", bytes_per_s=CONV.traffic_bytes / (0.9 * CONV.flops))

    assert slow_memory == CONV.flops


def test_a_product_that_only_memory_bounds_is_read_as_often_as_it_says() -> None:
    free = convolution_s(CONV, precision="fp16", product_s=_nothing, direct_s=NEVER, stream_s=lambda size_bytes: size_bytes)

    assert free == CONV.traffic_bytes


def _nothing(gemm: Gemm) -> float:
    return 0.0 * gemm.m
