"""Scores, softmax and context: with s tokens, b sequences, a heads of width d, and h = a d."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.attention import core_attention, counted_pairs
from clustersim.workloads.operators import FlashAttention, Gemm, Operator, Stream
from clustersim.workloads.shapes import Numerics
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Window
from tests.unit.parallel.factories import GPT, LLAMA, gemms, make_shape, traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

B, S, A, D = 3, 32, 8, 64
SCORES = B * A * S * S
FLASH = replace(NUMERICS, attention="flash")
DRY = replace(GPT, dropout=False)


def attention(model: Transformer = GPT, numerics: Numerics = NUMERICS, **changes: int) -> Operator:
    return core_attention(model, make_shape(model, batch=B, seq_length=S, **changes), numerics)


@pytest.mark.parametrize("numerics", [NUMERICS, FLASH], ids=["unfused", "flash"])
def test_attention_has_no_parameters(numerics: Numerics) -> None:
    operator = attention(numerics=numerics)

    assert operator.parameters == 0
    assert operator.kernels("weight_gradient") == ()


@pytest.mark.parametrize("numerics", [NUMERICS, FLASH], ids=["unfused", "flash"])
def test_the_model_s_work_is_four_s_squared_h_a_sequence_however_it_is_written(numerics: Numerics) -> None:
    assert attention(numerics=numerics).forward_flops == B * 4 * S**2 * A * D


def test_flash_attention_is_one_kernel_each_way() -> None:
    operator = attention(LLAMA, FLASH)

    assert operator.kernels("forward") == (FlashAttention(B, A, 4, S, S, D, causal=True, backward=False, element_bytes=2.0),)
    assert operator.kernels("input_gradient") == (FlashAttention(B, A, 4, S, S, D, causal=True, backward=True, element_bytes=2.0),)


def test_flash_attention_keeps_projections_and_one_number_a_row() -> None:
    operator = attention(numerics=FLASH)

    assert operator.saved_bytes == 3 * 2 * B * S * A * D + 4 * B * S * A
    assert operator.selective_bytes == 4 * B * S * A


def test_keys_and_values_of_shared_heads_are_kept_once() -> None:
    assert attention(LLAMA, FLASH).saved_bytes == 2 * B * S * (A + 2 * 4) * D + 4 * B * S * A


def test_unfused_attention_keeps_probabilities_mask_and_what_is_left() -> None:
    # Korthikanti et al., section 4.1: 5 a s^2 b bytes with dropout, of which 2 are the output of the softmax.
    assert attention().selective_bytes == 5 * SCORES
    assert attention(DRY).selective_bytes == 2 * SCORES


def test_selective_recomputation_spares_the_projections() -> None:
    operator = attention()

    assert operator.saved_bytes - operator.selective_bytes == 6 * B * S * A * D


def test_unfused_attention_multiplies_twice_forward_and_four_times_backward() -> None:
    operator = attention()

    assert gemms(operator.kernels("forward")) == [Gemm(S, S, D, batch=B * A), Gemm(S, D, S, batch=B * A)]
    assert sum(product.flops for product in gemms(operator.kernels("input_gradient"))) == 2 * operator.forward_flops


def test_a_fused_softmax_reads_and_writes_the_scores_once() -> None:
    (softmax,) = [kernel for kernel in attention(DRY).kernels("forward") if isinstance(kernel, Stream)]

    assert softmax == Stream(2 * 2 * SCORES, launches=1)


def test_an_eager_softmax_reads_and_writes_them_three_times() -> None:
    (softmax,) = [kernel for kernel in attention(DRY, replace(NUMERICS, kernels="eager")).kernels("forward") if isinstance(kernel, Stream)]

    assert softmax == Stream(6 * 2 * SCORES, launches=3)


@pytest.mark.parametrize(("batch", "heads", "launches"), [(1, 2, 3), (2, 2, 1), (4, 3, 1), (3, 5, 3)])
def test_a_fused_softmax_takes_heads_in_fours(batch: int, heads: int, launches: int) -> None:
    local = replace(make_shape(DRY, batch=batch, seq_length=S), n_heads=heads)
    (softmax,) = [kernel for kernel in core_attention(DRY, local, NUMERICS).kernels("forward") if isinstance(kernel, Stream)]

    assert softmax.launches == launches


def test_backward_the_softmax_reads_one_array_more() -> None:
    forward = [kernel.traffic_bytes for kernel in attention(DRY).kernels("forward") if isinstance(kernel, Stream)]
    backward = [kernel.traffic_bytes for kernel in attention(DRY).kernels("input_gradient") if isinstance(kernel, Stream)]

    assert sum(backward) - sum(forward) == 2 * SCORES


def test_dropout_reads_and_writes_the_probabilities_and_their_mask() -> None:
    assert traffic_bytes(attention().kernels("forward")) - traffic_bytes(attention(DRY).kernels("forward")) == (2 + 2 + 1) * SCORES
    assert (
        traffic_bytes(attention().kernels("input_gradient")) - traffic_bytes(attention(DRY).kernels("input_gradient"))
        == (2 + 2 + 1) * SCORES
    )


@pytest.mark.parametrize("numerics", [NUMERICS, FLASH], ids=["unfused", "flash"])
def test_half_the_heads_are_half_of_everything(numerics: Numerics) -> None:
    whole, half = attention(numerics=numerics), attention(numerics=numerics, n_heads=4, n_kv_heads=4)

    assert half.forward_flops == whole.forward_flops / 2
    assert half.saved_bytes == whole.saved_bytes / 2
    assert half.selective_bytes == whole.selective_bytes / 2
    assert traffic_bytes(half.kernels("forward")) == traffic_bytes(whole.kernels("forward")) / 2


def test_wider_numbers_widen_what_is_kept_but_not_the_mask() -> None:
    wide = attention(numerics=replace(NUMERICS, element_bytes=4.0, elementwise_bytes=4.0))

    assert wide.selective_bytes == (4 + 4 + 1) * SCORES


def test_a_softmax_in_fp32_leaves_the_products_as_they_are_and_keeps_wider_probabilities() -> None:
    plain, cast = attention(), attention(numerics=replace(NUMERICS, elementwise_bytes=4.0))

    assert gemms(cast.kernels("forward") + cast.kernels("input_gradient")) == gemms(
        plain.kernels("forward") + plain.kernels("input_gradient")
    )
    assert traffic_bytes(cast.kernels("forward")) - traffic_bytes(plain.kernels("forward")) == (2 + 2) * 2 * SCORES
    # Probabilities of the softmax are kept as it gave them; what is dropped out is cast for the product.
    assert cast.selective_bytes == (4 + 2 + 1) * SCORES


def test_a_window_counts_for_every_query_as_many_keys_as_it_holds() -> None:
    local = replace(LLAMA, window=Window(tokens=8))

    assert windowed(local).forward_flops == B * A * 4 * S * 8 * D
    assert windowed(local, NUMERICS).forward_flops == B * A * 4 * S * 8 * D


def test_chunks_are_short_sequences_of_their_own_and_what_is_left_a_shorter_one() -> None:
    local = replace(LLAMA, window=Window(tokens=12, chunked=True))

    whole, rest = windowed(local).kernels("forward")

    assert whole == FlashAttention(B * 2, A, 4, 12, 12, D, causal=True, backward=False)
    assert rest == FlashAttention(B, A, 4, 8, 8, D, causal=True, backward=False)
    assert windowed(local).forward_flops == B * A * 4 * (2 * 12 * 12 + 8 * 8) * D


@pytest.mark.parametrize("tokens", [S, S + 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_window_that_no_sequence_exceeds_changes_nothing(tokens: int, chunked: bool) -> None:
    local = replace(LLAMA, window=Window(tokens=tokens, chunked=chunked))

    assert windowed(local) == attention(LLAMA, FLASH)


def test_separate_kernels_compute_what_a_window_hides() -> None:
    local = replace(LLAMA, window=Window(tokens=8))

    assert gemms(windowed(local, NUMERICS).kernels("forward")) == gemms(attention(LLAMA).kernels("forward"))


def test_a_layer_outside_the_window_s_pattern_sees_the_whole_sequence() -> None:
    local = replace(LLAMA, n_layers=4, window=Window(tokens=8, global_layers=(1, 3)))

    assert [local.layer_kind(layer).windowed for layer in range(4)] == [True, False, True, False]


def test_learned_sinks_are_one_number_a_head() -> None:
    assert attention(replace(LLAMA, attention_sinks=True), FLASH, n_heads=2).parameters == 2


@pytest.mark.parametrize(("tokens", "pairs"), [(1, 10), (9, 90), (10, 100), (11, 100)])
def test_pairs_in_a_window_never_exceed_all_pairs(tokens: int, pairs: int) -> None:
    assert counted_pairs(10, Window(tokens=tokens)) == pairs


def windowed(model: Transformer, numerics: Numerics = FLASH) -> Operator:
    """Return core attention in a layer whose queries see a window."""
    return core_attention(model, make_shape(model, batch=B, seq_length=S), numerics, windowed=True)
