"""The operators of one layer: order, shapes, what they keep and what they move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.workloads.elementwise import activation, normalization, qk_normalization, residual, rotary
from clustersim.workloads.layer import attention_operators, entering_width, layer_operators
from clustersim.workloads.operators import FlashAttention, Gemm, Operator, Stream
from clustersim.workloads.shapes import Numerics
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import LatentAttention
from tests.unit.parallel.factories import GPT, LLAMA, gemms, layer_parameters, make_shape, traffic_bytes
from tests.unit.workloads.kinds.factories import NUMERICS

ROWS, H = 96, 512
EAGER = replace(NUMERICS, kernels="eager")
SLICED = make_shape(sequence_rows=12)


def by_name(operators: tuple[Operator, ...]) -> dict[str, Operator]:
    return {operator.name: operator for operator in operators}


def layer(model: Transformer = GPT, **changes: int) -> dict[str, Operator]:
    return by_name(layer_operators(model, make_shape(model, **changes), NUMERICS))


def activated(model: Transformer, numerics: Numerics) -> Operator:
    return activation(model, numerics, rows=ROWS, width=model.intermediate_size)


def test_a_gpt_layer_runs_in_the_order_of_the_forward_pass() -> None:
    assert list(layer()) == [
        *("norm_1", "qkv", "attention", "projection", "residual_1"),
        *("norm_2", "mlp_up", "activation", "mlp_down", "residual_2"),
    ]


def test_rotation_and_head_norms_stand_between_projection_and_attention() -> None:
    names = list(layer(replace(LLAMA, qk_normalization=True)))

    assert names[1:5] == ["qkv", "qk_norm", "rotary", "attention"]


def test_each_half_runs_from_its_normalisation_to_its_residual_addition() -> None:
    attention = ["norm_1", "qkv", "rotary", "attention", "projection", "residual_1"]

    assert list(layer(LLAMA)) == [*attention, "norm_2", "mlp_up", "activation", "mlp_down", "residual_2"]


def test_products_of_a_gpt_layer_do_24_s_h_squared_and_4_s_squared_h_a_sequence() -> None:
    flops = sum(operator.forward_flops for operator in layer(batch=1, seq_length=32).values())

    assert flops == 24 * 32 * H**2 + 4 * 32**2 * H


def test_backward_multiplies_twice_as_much_as_forward() -> None:
    operators = layer(LLAMA).values()

    forward = sum(product.flops for operator in operators for product in gemms(operator.kernels("forward")))
    backward = sum(
        product.flops
        for operator in operators
        for product in gemms(operator.kernels("input_gradient") + operator.kernels("weight_gradient"))
    )

    assert backward == 2 * forward


def test_a_gate_doubles_the_way_up_and_not_the_way_down() -> None:
    operators = layer(LLAMA)

    assert operators["mlp_up"].kernels("forward") == (Gemm(ROWS, 2 * 1536, H),)
    assert operators["mlp_down"].kernels("forward") == (Gemm(ROWS, H, 1536),)


def test_grouped_heads_narrow_the_joint_projection() -> None:
    assert layer(LLAMA)["qkv"].kernels("forward") == (Gemm(ROWS, (8 + 2 * 4) * 64, H),)


def test_heads_may_be_wider_than_the_hidden_size() -> None:
    wide = replace(LLAMA, head_dim=128)

    assert layer(wide)["projection"].kernels("forward") == (Gemm(ROWS, H, 8 * 128),)


@pytest.mark.parametrize("norms", [1, 2, 4])
def test_each_norm_of_a_layer_has_its_parameters(norms: int) -> None:
    model = replace(LLAMA, norms_per_layer=norms)

    assert sum(operator.parameters for operator in layer(model).values()) == layer_parameters(model)


def test_a_shared_norm_costs_nothing_the_second_time() -> None:
    second = layer(replace(LLAMA, norms_per_layer=1))["norm_2"]

    assert (second.kernels("forward"), second.kernels("input_gradient"), second.parameters, second.saved_bytes) == ((), (), 0.0, 0.0)


def test_norms_after_the_halves_work_and_keep_their_input() -> None:
    four, two = layer(replace(LLAMA, norms_per_layer=4))["residual_1"], layer(LLAMA)["residual_1"]

    assert four.saved_bytes - two.saved_bytes == 2 * ROWS * H
    assert traffic_bytes(four.kernels("forward")) - traffic_bytes(two.kernels("forward")) == 2 * 2 * ROWS * H
    assert len(four.kernels("weight_gradient")) == 1


def test_a_norm_reads_and_writes_once_forward_and_reads_two_arrays_backward() -> None:
    norm = normalization(GPT, make_shape(), NUMERICS, name="norm")

    assert norm.kernels("forward") == (Stream(2 * 2 * ROWS * H),)
    assert norm.kernels("input_gradient") == (Stream(3 * 2 * ROWS * H),)
    assert norm.kernels("weight_gradient") == (Stream(2 * 2 * ROWS * H, launches=3),)  # and one to add up the gradient of each vector
    assert norm.saved_bytes == 2 * ROWS * H


def test_an_eager_rms_norm_is_six_kernels_and_a_layer_norm_still_one() -> None:
    rms, full = (normalization(model, make_shape(), EAGER, name="norm") for model in (LLAMA, GPT))

    assert rms.kernels("forward") == (Stream(8 * 2 * ROWS * H, launches=6),)
    assert full.kernels("forward") == (Stream(2 * 2 * ROWS * H),)


def test_sequence_parallelism_divides_norms_and_residuals() -> None:
    for build in (normalization, residual):
        whole, part = (build(GPT, shape, NUMERICS, name="part") for shape in (make_shape(), SLICED))

        assert part.saved_bytes == whole.saved_bytes / 8
        assert traffic_bytes(part.kernels("forward")) == traffic_bytes(whole.kernels("forward")) / 8
        assert traffic_bytes(part.kernels("input_gradient")) == traffic_bytes(whole.kernels("input_gradient")) / 8
        assert part.parameters == whole.parameters


def test_a_residual_keeps_the_mask_of_its_dropout_alone() -> None:
    dry = replace(GPT, dropout=False)

    assert residual(GPT, make_shape(), NUMERICS, name="r").saved_bytes == ROWS * H
    assert residual(dry, make_shape(), NUMERICS, name="r").saved_bytes == 0


def test_a_residual_reads_two_arrays_and_writes_one() -> None:
    dry = replace(GPT, dropout=False)

    assert residual(dry, make_shape(), NUMERICS, name="r").kernels("forward") == (Stream(3 * 2 * ROWS * H),)
    assert residual(GPT, make_shape(), NUMERICS, name="r").kernels("forward") == (Stream((3 * 2 + 1) * ROWS * H),)


def test_backward_a_residual_joins_two_gradients_and_takes_the_dropout_back() -> None:
    dry = replace(GPT, dropout=False)

    assert residual(dry, make_shape(), NUMERICS, name="r").kernels("input_gradient") == (Stream(3 * 2 * ROWS * H),)
    assert residual(GPT, make_shape(), NUMERICS, name="r").kernels("input_gradient") == (Stream((5 * 2 + 1) * ROWS * H, launches=2),)


def test_eager_dropout_is_a_kernel_of_its_own() -> None:
    assert residual(GPT, make_shape(), EAGER, name="r").kernels("forward") == (Stream((5 * 2 + 1) * ROWS * H, launches=2),)
    assert residual(LLAMA, make_shape(LLAMA), EAGER, name="r").kernels("forward") == (Stream(3 * 2 * ROWS * H),)


def test_rotation_moves_queries_and_keys_and_keeps_nothing() -> None:
    operator = rotary(LLAMA, make_shape(LLAMA), NUMERICS)

    assert operator.kernels("forward") == operator.kernels("input_gradient") == (Stream(2 * 2 * ROWS * (8 + 4) * 64),)
    assert operator.saved_bytes == 0


def test_eager_rotation_passes_four_times() -> None:
    (eager,), (fused,) = (rotary(LLAMA, make_shape(LLAMA), numerics).kernels("forward") for numerics in (EAGER, NUMERICS))

    assert eager.traffic_bytes == 4 * fused.traffic_bytes
    assert eager == Stream(8 * 2 * ROWS * (8 + 4) * 64, launches=6)


def test_scaled_rotation_has_no_fused_kernel() -> None:
    model = replace(LLAMA, position="yarn")
    (forward,), (backward,) = (rotary(model, make_shape(model), NUMERICS).kernels(phase) for phase in ("forward", "input_gradient"))

    assert forward == Stream(12 * 2 * ROWS * (8 + 4) * 64, launches=24, one_call=True)
    assert backward == Stream(14 * 2 * ROWS * (8 + 4) * 64, launches=14, one_call=True)
    assert rotary(model, make_shape(model), EAGER) == rotary(LLAMA, make_shape(LLAMA), EAGER)


def test_head_norms_keep_queries_and_keys() -> None:
    model = replace(LLAMA, qk_normalization=True)
    operator = qk_normalization(model, make_shape(model), NUMERICS)

    assert operator.saved_bytes == 2 * ROWS * (8 + 4) * 64
    assert operator.parameters == 2 * 64
    assert traffic_bytes(operator.kernels("input_gradient")) == 1.5 * traffic_bytes(operator.kernels("forward"))


def test_gelu_keeps_its_input_and_swiglu_both_of_its_inputs() -> None:
    assert activated(GPT, NUMERICS).saved_bytes == 2 * ROWS * 2048
    assert activated(LLAMA, NUMERICS).saved_bytes == 2 * 2 * ROWS * 1536


@pytest.mark.parametrize(("model", "width", "forward", "backward"), [(GPT, 2048, 2, 3), (LLAMA, 1536, 3, 5)], ids=["gelu", "swiglu"])
def test_an_activation_reads_its_inputs_and_writes_one_array(model: Transformer, width: int, forward: int, backward: int) -> None:
    operator = activated(model, NUMERICS)

    assert operator.kernels("forward") == (Stream(forward * 2 * ROWS * width),)
    assert operator.kernels("input_gradient") == (Stream(backward * 2 * ROWS * width),)


def test_an_eager_swiglu_is_two_kernels_forward_and_three_backward() -> None:
    eager = activated(LLAMA, EAGER)

    # SiLU reads and writes, the product reads two and writes one; backward two products of three arrays, and SiLU's three.
    assert eager.kernels("forward") == (Stream(5 * 2 * ROWS * 1536, launches=2),)
    assert eager.kernels("input_gradient") == (Stream(9 * 2 * ROWS * 1536, launches=3),)


def test_an_eager_gelu_is_the_one_kernel_that_it_is_anyway() -> None:
    assert activated(GPT, EAGER) == activated(GPT, NUMERICS)


def test_eager_attention_puts_three_gradients_into_one() -> None:
    eager, fused = (by_name(attention_operators(LLAMA, make_shape(LLAMA), numerics)) for numerics in (EAGER, NUMERICS))
    width = (LLAMA.n_heads + 2 * LLAMA.n_kv_heads) * LLAMA.head_dim

    assert eager["split"].kernels("input_gradient") == (Stream(2 * 2 * ROWS * width),)
    assert eager["split"].kernels("forward") == ()
    assert "split" not in fused


def test_nothing_needs_the_result_of_the_last_product_unless_it_is_dropped_or_normalised() -> None:
    dry = replace(GPT, dropout=False)

    assert [name for name, operator in layer(dry).items() if operator.needless] == ["mlp_down", "residual_2"]
    assert not any(operator.needless for operator in layer().values())
    assert not any(operator.needless for operator in layer(replace(dry, norms_per_layer=4)).values())


def test_tensor_parallelism_divides_products_and_leaves_biases_of_rows_whole() -> None:
    whole, half = layer(), layer(n_heads=4, n_kv_heads=4, intermediate_size=1024)

    for name in ("qkv", "attention", "projection", "mlp_up", "mlp_down"):
        assert half[name].forward_flops == whole[name].forward_flops / 2, name
    assert half["qkv"].parameters == whole["qkv"].parameters / 2
    assert half["projection"].parameters == (whole["projection"].parameters - H) / 2 + H


def test_column_split_layers_keep_a_slice_of_their_input_under_sequence_parallelism() -> None:
    operators = layer(sequence_rows=12)

    assert operators["qkv"].saved_bytes == operators["mlp_up"].saved_bytes == 2 * 12 * H
    assert operators["projection"].saved_bytes == 2 * ROWS * H
    assert operators["mlp_down"].saved_bytes == 2 * ROWS * 2048


def test_only_attention_keeps_what_its_own_repetition_makes_anew() -> None:
    assert [name for name, operator in layer(LLAMA).items() if operator.selective_bytes] == ["attention"]


def test_streams_in_fp32_are_twice_as_long_and_products_are_not() -> None:
    cast = by_name(layer_operators(GPT, make_shape(), replace(NUMERICS, elementwise_bytes=4.0)))

    for name in ("norm_1", "activation"):
        assert traffic_bytes(cast[name].kernels("forward")) == 2 * traffic_bytes(layer()[name].kernels("forward"))
        assert traffic_bytes(cast[name].kernels("input_gradient")) == 2 * traffic_bytes(layer()[name].kernels("input_gradient"))
    for name in ("qkv", "projection", "mlp_up", "mlp_down"):
        assert cast[name] == layer()[name]


def test_what_streams_keep_in_fp32_is_twice_as_large_but_not_masks() -> None:
    cast = by_name(layer_operators(GPT, make_shape(), replace(NUMERICS, elementwise_bytes=4.0)))

    assert cast["norm_1"].saved_bytes == 2 * layer()["norm_1"].saved_bytes
    assert cast["activation"].saved_bytes == 2 * layer()["activation"].saved_bytes
    assert cast["residual_1"].saved_bytes == layer()["residual_1"].saved_bytes


HEADS = 8
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

    def counted(model: Transformer) -> float:
        return sum(each.parameters for each in attention_operators(model, make_shape(model), NUMERICS) if each.name != "norm_1")

    assert counted(MLA) == down + up + HEADS * 40 * H
    assert counted(LITE) == H * HEADS * 64 + H * (128 + 16) + 128 + 128 * HEADS * 88 + HEADS * 40 * H
