from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.hardware.calibration import AttentionCalibration, AttentionPass, Calibration, LaunchCalibration
from clustersim.kernels.kernel_model import KernelModel, attention_fraction, has_vectors
from clustersim.workloads.operators import FlashAttention, Gemm, GroupedGemm, Interference, Kernel, Recorded, Stream
from tests.unit.engine.factories import make_calibration
from tests.unit.topology.factories import make_node

PEAK = 1e15
MEMORY = 3e12
LAUNCH = LaunchCalibration(kernel_s=2e-6, further_s=15e-6, product_s=4.5e-6, dispatch_s=5e-6, step_s=0.0)
FREE = LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=0.0)
RATES = AttentionCalibration(
    forward=AttentionPass(fraction=0.8, half_length=200.0, causal_half_length=500.0),
    backward=AttentionPass(fraction=0.6, half_length=900.0, causal_half_length=1800.0),
    half_head_dim=32.0,
)


def model(launch: LaunchCalibration = FREE, *, precision: str = "bf16", attention: AttentionCalibration | None = None) -> KernelModel:
    card = replace(make_node().accelerator, peak_flops_per_s={"bf16": PEAK, "fp8": 2 * PEAK})
    calibration = make_calibration(launch=launch)
    if attention is not None:
        calibration = replace(calibration, attention={"flash": attention})
    return KernelModel(accelerator=card, calibration=calibration, precision=precision, attention_precision="bf16")


def with_calibration(of: KernelModel, calibration: Calibration) -> KernelModel:
    return KernelModel(
        accelerator=of.accelerator, calibration=calibration, precision=of.precision, attention_precision=of.attention_precision
    )


def attention(length: int = 1000, *, head_dim: int = 96, causal: bool = False, backward: bool = False) -> FlashAttention:
    return FlashAttention(
        batch=2,
        n_heads=16,
        n_kv_heads=16,
        query_length=length,
        key_length=length,
        head_dim=head_dim,
        causal=causal,
        backward=backward,
    )


def test_a_stream_takes_bytes_over_bandwidth() -> None:
    assert model().kernel_s(Stream(6e12)) == pytest.approx(2.0, rel=1e-12)


def test_streams_reach_a_share_of_the_bandwidth() -> None:
    ideal = model()
    worn = with_calibration(ideal, replace(ideal.calibration, memory_fraction=0.75))

    assert worn.kernel_s(Stream(6e12)) == pytest.approx(2.0 / 0.75, rel=1e-12)


def test_every_launch_of_a_stream_costs_its_gap() -> None:
    assert model(LAUNCH).kernel_s(Stream(3e6, launches=4)) == pytest.approx(1e-6 + 4 * 2e-6, rel=1e-12)


def test_a_deep_product_is_bound_by_compute() -> None:
    gemm = Gemm(12800, 12800, 8192)

    assert gemm.traffic_bytes / MEMORY < gemm.flops / PEAK
    assert model().kernel_s(gemm) == pytest.approx(gemm.flops / PEAK, rel=1e-12)


def test_a_thin_product_is_bound_by_memory() -> None:
    gemm = Gemm(1, 12800, 12800)

    assert model().kernel_s(gemm) == pytest.approx(gemm.traffic_bytes / MEMORY, rel=1e-12)


def test_a_narrower_precision_has_its_own_peak() -> None:
    gemm = Gemm(12800, 12800, 8192, element_bytes=1.0)

    assert model(precision="fp8").kernel_s(gemm) == pytest.approx(gemm.flops / (2 * PEAK), rel=1e-12)


def test_fill_and_drain_take_as_long_in_fp8_as_in_sixteen_bits() -> None:
    def added_s(precision: str) -> float:
        ideal = model(precision=precision)
        deep = with_calibration(ideal, replace(ideal.calibration, gemm=replace(ideal.calibration.gemm, depth_overhead=64.0)))
        gemm = Gemm(12800, 12800, 8192)
        return deep.kernel_s(gemm) - ideal.kernel_s(gemm)

    assert added_s("fp8") == pytest.approx(added_s("bf16"), rel=1e-9)


def test_a_precision_that_was_measured_has_its_own_share() -> None:
    ideal = model(precision="fp8")
    shares = replace(ideal.calibration.gemm, sustained_fraction={"default": 1.0, "fp8": 0.5})
    measured = with_calibration(ideal, replace(ideal.calibration, gemm=shares))
    gemm = Gemm(12800, 12800, 8192, element_bytes=1.0)

    assert measured.kernel_s(gemm) == pytest.approx(2 * ideal.kernel_s(gemm), rel=1e-12)


def test_attention_takes_its_flops_over_its_rate() -> None:
    kernel = attention()

    # 4 b h s^2 d: two products of s x s x d for every head.
    assert kernel.flops == 4 * 2 * 16 * 1000 * 1000 * 96
    assert model().kernel_s(kernel) == pytest.approx(kernel.flops / PEAK, rel=1e-12)


def test_a_causal_mask_halves_the_work() -> None:
    long_s = model().kernel_s(attention(8192))

    assert model().kernel_s(attention(8192, causal=True)) == pytest.approx(long_s / 2, rel=1e-12)


def test_a_window_leaves_the_band_below_the_diagonal() -> None:
    whole, window = attention(8192, causal=True), replace(attention(8192, causal=True), window=1024)
    pairs = sum(min(query + 1, 1024) for query in range(8192))

    assert window.flops * window.done_fraction == pytest.approx(4 * 2 * 16 * 96 * pairs, rel=1e-12)
    assert model().kernel_s(window) / model().kernel_s(whole) == pytest.approx(pairs / (8192 * 8192 / 2), rel=1e-12)


@pytest.mark.parametrize("window", [None, 1, 250])
@pytest.mark.parametrize(("queries", "keys"), [(300, 300), (1, 300), (100, 300), (280, 300), (300, 100)])
def test_queries_are_the_last_tokens_and_see_those_before_them(queries: int, keys: int, window: int | None) -> None:
    kernel = replace(attention(keys, causal=True), query_length=queries, window=window)
    seen = [max(0, keys - queries + query + 1) for query in range(queries)]
    pairs = sum(count if window is None else min(count, window) for count in seen)

    # Without a window the diagonal counts half.
    diagonal = min(queries, keys) / 2 if window is None or window >= keys else 0
    assert kernel.flops * kernel.done_fraction == pytest.approx(4 * 2 * 16 * 96 * (pairs - diagonal), rel=1e-12)


def test_queries_that_lie_evenly_over_the_keys_see_half_of_them() -> None:
    kernel = replace(attention(8192, causal=True), query_length=1024, spread=True)

    assert kernel.done_fraction == 0.5


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    whole = attention(8192, causal=True)

    assert model().kernel_s(replace(whole, window=8192)) == model().kernel_s(replace(whole, window=9000)) == model().kernel_s(whole)


def test_narrow_values_take_less_work_at_the_rate_of_the_mean_width() -> None:
    wide, narrow = attention(4096, head_dim=192), replace(attention(4096, head_dim=192), value_dim=128)

    assert narrow.flops == wide.flops * 320 / 384
    assert model().kernel_s(narrow) == pytest.approx(model().kernel_s(attention(4096, head_dim=160)), rel=1e-12)


def test_experts_in_one_kernel_are_launched_once() -> None:
    experts = GroupedGemm((1280,) * 10, 12800, 8192)

    assert model(LAUNCH).kernel_s(experts) - model().kernel_s(experts) == pytest.approx(2e-6, rel=1e-6)
    assert model().kernel_s(experts) == pytest.approx(experts.flops / PEAK, rel=1e-12)


def test_experts_of_few_rows_are_bound_by_reading_their_weights() -> None:
    experts = GroupedGemm((1,) * 64, 4096, 4096)

    assert model().kernel_s(experts) == pytest.approx(experts.traffic_bytes / MEMORY, rel=1e-12)
    assert experts.traffic_bytes >= 64 * 2 * 4096 * 4096


def test_the_backward_pass_has_five_products_instead_of_two() -> None:
    assert model().kernel_s(attention(backward=True)) == pytest.approx(2.5 * model().kernel_s(attention()), rel=1e-12)


def test_attention_stays_at_sixteen_bits_under_fp8() -> None:
    assert model(precision="fp8").kernel_s(attention()) == model().kernel_s(attention())


def test_attention_over_one_key_is_bound_by_memory() -> None:
    kernel = attention(1)

    assert model().kernel_s(kernel) == pytest.approx(kernel.traffic_bytes / MEMORY, rel=1e-12)


def test_the_rate_of_attention_is_halved_at_the_half_length() -> None:
    kernel = attention(200, head_dim=96)

    assert attention_fraction(kernel, RATES) == pytest.approx(0.8 * 0.5 * 96 / (96 + 32), rel=1e-12)


def test_a_causal_mask_needs_longer_sequences() -> None:
    assert attention_fraction(attention(500, causal=True), RATES) == pytest.approx(0.8 * 0.5 * 96 / 128, rel=1e-12)


def test_narrow_heads_halve_the_rate() -> None:
    long = attention(10**9, head_dim=32)

    assert attention_fraction(long, RATES) == pytest.approx(0.8 * 0.5, rel=1e-6)  # the sequence is long, not endless


def test_the_backward_pass_has_a_rate_and_lengths_of_its_own() -> None:
    plain, masked = (attention_fraction(attention(900, causal=causal, backward=True), RATES) for causal in (False, True))

    assert plain == pytest.approx(0.6 * 0.5 * 96 / 128, rel=1e-12)
    assert masked == pytest.approx(0.6 * 900 / 2700 * 96 / 128, rel=1e-12)


def test_each_generation_of_attention_has_its_own_rate() -> None:
    card = model()
    slow = AttentionPass(fraction=0.25, half_length=0.0, causal_half_length=0.0)
    older = AttentionCalibration(forward=slow, backward=slow, half_head_dim=0.0)
    both = with_calibration(card, replace(card.calibration, attention={**card.calibration.attention, "flash_1": older}))
    new, old = attention(8192), replace(attention(8192), generation="flash_1")

    assert both.kernel_s(old) == pytest.approx(4 * both.kernel_s(new), rel=1e-12)


def test_what_bursts_reach_is_not_kept_up_under_load() -> None:
    burst = model()
    gemm = replace(burst.calibration.gemm, under_load={"default": 0.8, "fp8": 1.0})
    loaded = with_calibration(burst, replace(burst.calibration, gemm=gemm))
    narrow = with_calibration(model(precision="fp8"), loaded.calibration)
    product, in_bytes = Gemm(12800, 12800, 8192), Gemm(12800, 12800, 8192, element_bytes=1.0)

    assert loaded.kernel_s(product) == pytest.approx(burst.kernel_s(product) / 0.8, rel=1e-12)
    assert narrow.kernel_s(in_bytes) == model(precision="fp8").kernel_s(in_bytes)


def test_a_product_that_stays_in_16_bits_under_fp8_is_as_fast_as_without() -> None:
    product = Gemm(12800, 12800, 8192)

    assert model(precision="fp8").kernel_s(product) == model().kernel_s(product)
    assert model(precision="fp8").kernel_s(replace(product, element_bytes=1.0)) < model().kernel_s(product)


def test_bytes_sent_beside_computation_take_the_share_of_the_multiprocessors_that_send_them() -> None:
    card = model()
    held = replace(card.calibration.network, multiprocessors=27, efficiency={**card.calibration.network.efficiency, "nvlink": 0.5})
    sending = with_calibration(card, replace(card.calibration, network=held))
    sent_s = 3e9 / (0.5 * card.accelerator.scale_up_bandwidth_bytes_per_s)

    assert sending.kernel_s(Interference(3e9)) == pytest.approx(sent_s * 27 / card.accelerator.n_multiprocessors, rel=1e-12)
    assert sending.work_s([Interference(3e9)]) == sending.kernel_s(Interference(3e9))  # nothing is issued for it
    assert Interference(3e9).flops == Interference(3e9).traffic_bytes == 0.0


def test_without_links_of_its_own_an_accelerator_loses_nothing_to_them() -> None:
    card = model()
    alone = replace(card.accelerator, scale_up_bandwidth_bytes_per_s=0.0)
    held = replace(card.calibration.network, multiprocessors=27)
    calibration = replace(card.calibration, network=held)

    assert KernelModel(alone, calibration, "bf16", "bf16").kernel_s(Interference(3e9)) == 0.0


@given(st.integers(1, 10**6), st.integers(1, 1024), st.booleans(), st.booleans())
def test_attention_never_beats_its_limit(length: int, head_dim: int, causal: bool, backward: bool) -> None:
    fraction = attention_fraction(attention(length, head_dim=head_dim, causal=causal, backward=backward), RATES)

    assert 0.0 < fraction < (0.6 if backward else 0.8)


def test_work_is_the_sum_of_its_kernels() -> None:
    kernels: tuple[Kernel, ...] = (Stream(3e9), Gemm(12800, 12800, 8192), attention(8192), Stream(6e9))
    card = model()

    assert card.work_s(kernels) == pytest.approx(sum(card.kernel_s(kernel) for kernel in kernels), rel=1e-12)


@pytest.mark.parametrize(("k", "slower"), [(8192, 1.0), (8196, 16.0)])
def test_a_batch_of_products_whose_rows_are_no_whole_vectors_runs_without_matrix_units(k: int, slower: float) -> None:
    heads, card = Gemm(1280, 1280, k, batch=100), model()
    rates = {**card.accelerator.peak_flops_per_s, "fp32": PEAK / 16}
    with_vectors = KernelModel(replace(card.accelerator, peak_flops_per_s=rates), card.calibration, "bf16", "bf16")

    assert with_vectors.kernel_s(heads) / card.kernel_s(heads) == pytest.approx(slower, rel=1e-2)


def test_the_rows_of_the_left_operand_may_be_any_number() -> None:
    assert has_vectors(Gemm(1, 512, 512, batch=8))
    assert has_vectors(Gemm(13, 12, 20, batch=8, element_bytes=4.0))
    assert not has_vectors(Gemm(16, 16, 24, batch=8, element_bytes=1.0))


@pytest.mark.parametrize(
    ("precision", "at_once", "slower"),
    [("bf16", 16, 1.0), ("bf16", 8, 2.0), ("bf16", 4, 2.0), ("bf16", 2, 4.0), ("tf32", 4, 2.0), ("fp8", 1, 4.0), ("fp32", 4, 1.0)],
)
def test_a_product_by_itself_whose_rows_are_no_whole_vectors_is_slower_on_matrix_units(precision: str, at_once: int, slower: float) -> None:
    card = model()
    gemm = replace(card.calibration.gemm, unaligned_fraction={"whole": 1.0, "even": 0.5, "odd": 0.25})
    peaks = dict.fromkeys(("bf16", "tf32", "fp32", "fp8"), PEAK)
    accelerator = replace(card.accelerator, peak_flops_per_s=peaks)
    slow = replace(card, calibration=replace(card.calibration, gemm=gemm), precision=precision, accelerator=accelerator)
    whole = Gemm(12800, 12800, 8192, element_bytes=1.0)

    assert slow.kernel_s(replace(whole, vector_bytes=at_once)) / slow.kernel_s(whole) == pytest.approx(slower, rel=1e-9)


def test_fill_drain_and_the_power_limit_do_not_slow_unaligned_products_further() -> None:
    card = model()
    whole, k_0 = Gemm(12800, 12800, 1024, element_bytes=2.0), 256.0
    gemm = replace(
        card.calibration.gemm, depth_overhead=k_0, unaligned_fraction={"whole": 1.0, "even": 0.9, "odd": 0.25}, under_load={"default": 0.8}
    )
    slow = replace(card, calibration=replace(card.calibration, gemm=gemm))
    whole_s, even_s, odd_s = (slow.kernel_s(replace(whole, vector_bytes=size)) for size in (16, 4, 2))

    assert even_s == whole_s  # above what the power limit leaves
    assert odd_s / whole_s == pytest.approx((1024 / 0.25 + k_0 / 0.8) / ((1024 + k_0) / 0.8), rel=1e-9)


def test_without_measurements_of_such_products_they_are_as_fast_as_others() -> None:
    whole = Gemm(12800, 12800, 8192)

    assert model().kernel_s(replace(whole, vector_bytes=2)) == model().kernel_s(whole)


def test_the_host_issues_kernels_and_collectives_one_by_one() -> None:
    tiny = [Stream(3.0)] * 100

    assert model(LAUNCH).issue_s(tiny) == pytest.approx(100 * 5e-6, rel=1e-12)
    assert model(LAUNCH).issue_s(tiny, 7) == pytest.approx(107 * 5e-6, rel=1e-12)


def test_all_launches_of_a_stream_are_issued() -> None:
    assert model(LAUNCH).issue_s([Stream(3.0, launches=40), Gemm(128, 128, 128)]) == pytest.approx(41 * 5e-6, rel=1e-12)


def test_large_kernels_take_their_time_and_the_gaps_between_them() -> None:
    large = [Stream(3e9)] * 100

    assert model(LAUNCH).work_s(large) == pytest.approx(100 * (1e-3 + 2e-6), rel=1e-12)


def test_a_shape_is_remembered() -> None:
    card = model()
    before_s = card.kernel_s(Gemm(128, 128, 128))

    card.precision = "a precision that the card does not know"

    assert card.kernel_s(Gemm(128, 128, 128)) == before_s


def test_shapes_that_differ_in_anything_are_told_apart() -> None:
    card = model()

    assert card.kernel_s(Gemm(1, 12800, 12800)) < card.kernel_s(Gemm(1, 12800, 12800, element_bytes=4.0))
    assert card.kernel_s(attention()) < card.kernel_s(attention(backward=True))


def test_recorded_work_takes_what_was_recorded_and_not_a_launch_more() -> None:
    assert model(LAUNCH).kernel_s(Recorded(1e-9)) == 1e-9
    assert model(LAUNCH).work_s((Recorded(1e-9), Recorded(2e-9))) == pytest.approx(3e-9, rel=1e-15)


def test_recorded_work_is_issued_for_nothing() -> None:
    assert model(LAUNCH).issue_s((Recorded(1e-9), Stream(0.0))) == LAUNCH.dispatch_s


def test_products_of_one_call_are_issued_together() -> None:
    grouped = GroupedGemm((64,) * 8, 256, 256, launches=8)

    assert model(LAUNCH).issue_s((grouped,)) == pytest.approx(LAUNCH.dispatch_s + 7 * LAUNCH.further_s)
    assert model(LAUNCH).issue_s((replace(grouped, launches=1),)) == LAUNCH.dispatch_s
    assert model(LAUNCH).issue_s((Stream(0.0, launches=8, one_call=True),)) == pytest.approx(LAUNCH.dispatch_s + 7 * LAUNCH.further_s)


@pytest.mark.parametrize(("peaks", "times"), [({}, 2.0), ({"fp4": 6 * PEAK}, 3.0)])
def test_products_of_4_bits_run_at_their_own_rate_or_twice_that_of_8(peaks: dict[str, float], times: float) -> None:
    of = model(precision="fp8")
    card = replace(of.accelerator, peak_flops_per_s={**of.accelerator.peak_flops_per_s, **peaks})
    wide, narrow = (Gemm(65536, 65536, 65536, element_bytes=size) for size in (1.0, 0.5))

    assert replace(of, accelerator=card).kernel_s(wide) == pytest.approx(
        times * replace(of, accelerator=card, _times_s={}).kernel_s(narrow), rel=0.01
    )


def test_a_new_tensor_is_filled_by_one_more_kernel_of_the_call_that_writes_it() -> None:
    plain = model(LAUNCH)
    fills = replace(plain, fills=True, _times_s={})
    new, added = Gemm(4096, 4096, 512), Gemm(4096, 4096, 512, accumulates=True)

    assert fills.issue_s((new, Stream(2e6), added)) == pytest.approx(plain.issue_s((new, Stream(2e6), added)) + 2 * LAUNCH.further_s)
    assert fills.kernel_s(added) == plain.kernel_s(added)
    # The result is written once more: half of what a kernel moves that reads one tensor and writes another.
    assert fills.kernel_s(Stream(2e9)) == pytest.approx(1.5 * plain.kernel_s(Stream(2e9)), rel=0.01)
    assert fills.kernel_s(new) == pytest.approx(plain.kernel_s(new) + plain.kernel_s(Stream(4096 * 4096 * 2.0)))


def test_a_framework_that_does_more_around_its_kernels_issues_them_more_slowly() -> None:
    light = model(LAUNCH)
    heavy = replace(light, launch_overhead=1.7)

    assert heavy.issue_s((Stream(0.0), Gemm(8, 8, 8))) == pytest.approx(1.7 * light.issue_s((Stream(0.0), Gemm(8, 8, 8))))
    assert heavy.kernel_s(Gemm(8, 8, 8)) == light.kernel_s(Gemm(8, 8, 8))
