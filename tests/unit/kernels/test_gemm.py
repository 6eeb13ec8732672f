from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.calibration import GemmCalibration
from clustersim.kernels.gemm import gemm_compute_s
from clustersim.workloads.operators import Gemm, GroupedGemm

PEAK = 1e15
N_MULTIPROCESSORS = 100
SQUARE = ((128, 128, 1.0),)
FULL_WAVE = Gemm(128 * 10, 128 * 10, 4096)
"""As many tiles as multiprocessors."""

SIZES = st.integers(1, 20_000)


def calibration(tiles: tuple[tuple[int, int, float], ...] = SQUARE, *, depth_overhead: float = 0.0) -> GemmCalibration:
    return GemmCalibration(sustained_fraction={"default": 1.0}, under_load={"default": 1.0}, depth_overhead=depth_overhead, tiles=tiles)


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
    both = calibration(((256, 128, 1.0), (64, 64, 0.9)))

    # An eighth of the large tile's work at nine tenths of its rate.
    assert seconds(Gemm(64, 64, 1024), both) == seconds(Gemm(64, 64, 1024), calibration(((64, 64, 0.9),)))
    assert seconds(Gemm(2560, 1280, 1024), both) == seconds(Gemm(2560, 1280, 1024), calibration(((256, 128, 1.0),)))


def test_a_small_tile_is_slower_by_its_share() -> None:
    small = calibration(((128, 128, 0.5),))

    assert seconds(FULL_WAVE, small) == pytest.approx(2 * seconds(FULL_WAVE), rel=1e-12)


def test_rows_and_columns_of_a_tile_are_not_the_same() -> None:
    tall = calibration(((256, 64, 1.0),))

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
    tiles = ((256, 128, 1.0), (128, 128, 0.9), (64, 64, 0.8))

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
