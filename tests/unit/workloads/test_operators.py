from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.operators import Convolution, ConvolutionProduct, FlashAttention, Gemm, Stream, reach


def attention(*, backward: bool = False, causal: bool = False, n_kv_heads: int = 8) -> FlashAttention:
    return FlashAttention(2, 8, n_kv_heads, 100, 300, 64, causal, backward)


def test_a_product_does_two_operations_for_each_inner_element() -> None:
    assert Gemm(3, 5, 7).flops == 2 * 3 * 5 * 7


def test_a_batch_of_products_is_so_many_products() -> None:
    one, many = Gemm(3, 5, 7), Gemm(3, 5, 7, batch=11)

    assert many.flops == 11 * one.flops
    assert many.traffic_bytes == 11 * one.traffic_bytes


def test_a_product_reads_each_operand_and_writes_its_result_once() -> None:
    assert Gemm(3, 5, 7, element_bytes=1.0, output_bytes=10.0).traffic_bytes == (3 * 7 + 7 * 5) + 10 * 3 * 5


def test_a_product_that_is_added_to_memory_reads_it_too() -> None:
    plain = Gemm(3, 5, 7, output_bytes=4.0)
    added = Gemm(3, 5, 7, output_bytes=4.0, accumulates=True)

    assert added.traffic_bytes - plain.traffic_bytes == 4 * 3 * 5
    assert added.flops == plain.flops


def test_attention_is_two_products_of_queries_keys_and_values() -> None:
    scores = Gemm(100, 300, 64, batch=16)
    context = Gemm(100, 64, 300, batch=16)

    assert attention().flops == scores.flops + context.flops


def test_attention_backward_does_five_products_for_two() -> None:
    assert attention(backward=True).flops == 2.5 * attention().flops


def test_causal_attention_counts_in_full() -> None:
    assert attention(causal=True).flops == attention().flops
    assert attention(causal=True).traffic_bytes == attention().traffic_bytes


def test_shared_key_heads_save_traffic_but_no_operations() -> None:
    assert attention(n_kv_heads=2).flops == attention().flops

    fewer_keys = 2 * (8 - 2) * 300 * 64
    assert attention().traffic_bytes - attention(n_kv_heads=2).traffic_bytes == 2 * (fewer_keys + fewer_keys)


@pytest.mark.parametrize("backward", [False, True])
def test_attention_moves_queries_keys_values_and_output_but_no_scores(backward: bool) -> None:
    queries, keys = 2 * 8 * 100 * 64, 2 * 8 * 300 * 64
    once = 2 * (queries + keys + keys + queries)

    assert attention(backward=backward).traffic_bytes == (2.5 * once if backward else once)


def test_a_stream_has_traffic_and_by_default_no_operations() -> None:
    stream = Stream(1e6, launches=3)

    assert (stream.traffic_bytes, stream.launches, stream.flops) == (1e6, 3, 0.0)


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
def test_both_gradients_have_the_flops_of_the_forward_pass(product: ConvolutionProduct) -> None:
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
