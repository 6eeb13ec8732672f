"""Latent attention: down, up, and heads whose values are narrower than their keys."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.latent import entering_width
from clustersim.workloads.layer import attention_operators, layer_operators
from clustersim.workloads.operators import FlashAttention, Gemm, Operator
from clustersim.workloads.parameters import attention_parameters, layer_parameters
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import LatentAttention
from tests.unit.parallel.factories import LLAMA, NUMERICS, gemms, make_shape

ROWS, H, HEADS = 96, 512, 8
LATENT = LatentAttention(q_lora_rank=192, kv_lora_rank=128, qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=40)
MLA = replace(LLAMA, latent=LATENT, n_kv_heads=HEADS, head_dim=64)
LITE = replace(MLA, latent=replace(LATENT, q_lora_rank=None))
FLASH = replace(NUMERICS, attention="flash_3")


def parts(model: Transformer = MLA, **changes: int) -> dict[str, Operator]:
    return {operator.name: operator for operator in attention_operators(model, make_shape(model, **changes), FLASH)}


def test_rows_go_down_and_up_before_the_heads_attend() -> None:
    names = ["norm_1", "q_down", "q_norm", "kv_down", "kv_norm", "q_up", "kv_up", "rotary", "attention", "projection", "residual_1"]

    assert list(parts()) == names
    assert list(parts(LITE)) == ["norm_1", "kv_down", "kv_norm", "q", *names[6:]]


def test_products_have_the_shapes_of_the_paper() -> None:
    operators = parts()

    assert operators["q_down"].kernels("forward") == (Gemm(ROWS, 192, H),)
    assert operators["kv_down"].kernels("forward") == (Gemm(ROWS, 128 + 16, H),)
    assert operators["q_up"].kernels("forward") == (Gemm(ROWS, HEADS * 64, 192),)
    assert operators["kv_up"].kernels("forward") == (Gemm(ROWS, HEADS * (48 + 40), 128),)
    assert operators["projection"].kernels("forward") == (Gemm(ROWS, H, HEADS * 40),)
    assert parts(LITE)["q"].kernels("forward") == (Gemm(ROWS, HEADS * 64, H),)


def test_scores_and_context_have_widths_of_their_own() -> None:
    (kernel,) = parts()["attention"].kernels("forward")

    assert isinstance(kernel, FlashAttention)
    assert kernel.flops == 2 * 3 * HEADS * 32 * 32 * (64 + 40)
    assert kernel.traffic_bytes == 2 * 2 * ROWS * HEADS * (64 + 40)


def test_backward_three_products_are_as_wide_as_keys_and_two_as_values() -> None:
    (kernel,) = parts()["attention"].kernels("input_gradient")

    assert kernel.flops == 2 * 3 * HEADS * 32 * 32 * (3 * 64 + 2 * 40)


def test_separate_kernels_multiply_as_much() -> None:
    operators = {operator.name: operator for operator in attention_operators(MLA, make_shape(MLA), NUMERICS)}
    attention, fused = operators["attention"], parts()["attention"]

    assert attention.forward_flops == fused.forward_flops == sum(product.flops for product in gemms(attention.kernels("forward")))
    assert sum(product.flops for product in gemms(attention.kernels("input_gradient"))) == 2 * attention.forward_flops


def test_whole_heads_are_kept_and_the_normalised_input_once() -> None:
    operators = parts()

    assert operators["q_down"].saved_bytes == 2 * ROWS * H
    assert operators["kv_down"].saved_bytes == 0
    assert parts(LITE)["q"].saved_bytes == 2 * ROWS * H
    assert operators["attention"].saved_bytes == 2 * ROWS * HEADS * (64 + 64 + 40) + 4 * ROWS * HEADS


def test_tensor_parallelism_divides_the_way_up_and_not_the_way_down() -> None:
    whole, part = parts(), parts(n_heads=2, n_kv_heads=2)

    for name in ("q_down", "kv_down", "q_norm", "kv_norm"):
        assert part[name] == whole[name]
    for name in ("q_up", "kv_up", "projection"):
        assert part[name].parameters == whole[name].parameters / 4
        assert part[name].forward_flops == whole[name].forward_flops / 4


def test_sequence_parallelism_divides_the_way_down_by_rows() -> None:
    whole, part = parts(), parts(sequence_rows=24)

    for name in ("q_down", "kv_down"):
        assert part[name].forward_flops == whole[name].forward_flops / 4
        assert part[name].parameters == whole[name].parameters


def test_latent_rows_are_what_sequence_parallelism_gathers() -> None:
    assert entering_width(MLA) == 192 + 128 + 16
    assert entering_width(LITE) == H + 128 + 16
    assert entering_width(LLAMA) == H


def test_parameters_are_counted_projection_by_projection() -> None:
    down = H * 192 + 192 + H * (128 + 16) + 128
    up = 192 * HEADS * 64 + 128 * HEADS * (48 + 40)

    assert attention_parameters(MLA) == down + up + HEADS * 40 * H
    assert attention_parameters(LITE) == H * HEADS * 64 + H * (128 + 16) + 128 + 128 * HEADS * 88 + HEADS * 40 * H
    assert sum(operator.parameters for operator in layer_operators(LITE, make_shape(LITE), NUMERICS)) == layer_parameters(LITE)
