"""Layers with a state: b sequences of s tokens, heads of keys of width k and of values of width v, in chunks of c tokens."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest

from clustersim.errors import DomainError
from clustersim.parallel.contributors.context_parallel import ContextParallelism
from clustersim.parallel.training_plan import StrategySettings
from clustersim.workloads.layer import core_linear_attention, layer_operators
from clustersim.workloads.operators import Gemm, Operator
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import LinearAttention
from tests.unit.parallel.factories import LLAMA, make_shape
from tests.unit.workloads.kinds.factories import NUMERICS

DELTA = LinearAttention(
    layers=(0, 1, 2), n_key_heads=4, key_dim=32, n_value_heads=8, value_dim=16, kernel=4, kernel_bias=False, delta=True, chunk=64
)
MAMBA = replace(DELTA, n_key_heads=1, kernel_bias=True, delta=False)
B, S = 3, 256


def hybrid(linear: LinearAttention) -> Transformer:
    return replace(LLAMA, n_layers=4, linear=linear)


def core(linear: LinearAttention) -> Operator:
    return core_linear_attention(linear, make_shape(hybrid(linear), batch=B, seq_length=S), NUMERICS)


def layer(linear: LinearAttention, at: int = 0, tp: int = 1) -> tuple[Operator, ...]:
    model = hybrid(linear)
    return layer_operators(model, model.token_shape(tp, None), NUMERICS, at)


def parameters(operators: tuple[Operator, ...]) -> float:
    return fsum(operator.parameters for operator in operators)


def test_a_layer_that_is_not_listed_has_attention() -> None:
    assert [each.name for each in layer(DELTA, 3)] == [each.name for each in layer_operators(LLAMA, LLAMA.token_shape(1, None), NUMERICS)]
    assert "attention" not in [each.name for each in layer(DELTA, 2)]


@pytest.mark.parametrize("linear", [DELTA, MAMBA], ids=["delta", "mamba"])
def test_products_by_chunks_have_the_flops_of_the_closed_form(linear: LinearAttention) -> None:
    products = core(linear).kernels("forward")

    assert sum(product.flops for product in products) == B * S * linear.chunk_flops


@pytest.mark.parametrize("linear", [DELTA, MAMBA], ids=["delta", "mamba"])
def test_chunks_of_one_token_have_the_products_of_the_recurrence_and_those_of_a_token_with_itself(linear: LinearAttention) -> None:
    single = replace(linear, chunk=1)
    itself = 2.0 * (3 * 8 * 32 + 2 * 8 * 16 if linear.delta else 32 + 8 * 16)

    assert single.chunk_flops - itself == linear.recurrent_flops


@pytest.mark.parametrize("linear", [DELTA, MAMBA], ids=["delta", "mamba"])
def test_work_grows_with_the_sequence_and_not_with_its_square(linear: LinearAttention) -> None:
    model = hybrid(linear)
    short, long = (core_linear_attention(linear, make_shape(model, batch=1, seq_length=s), NUMERICS) for s in (S, 8 * S))

    assert long.forward_flops == 8 * short.forward_flops
    assert sum(kernel.flops for kernel in long.kernels("forward")) == 8 * sum(kernel.flops for kernel in short.kernels("forward"))


def test_the_backward_pass_repeats_the_products_and_has_two_gradients_of_each() -> None:
    forward, backward = core(DELTA).kernels("forward"), core(DELTA).kernels("input_gradient")

    assert all(isinstance(kernel, Gemm) for kernel in backward)
    assert sum(kernel.flops for kernel in backward) == 3 * sum(kernel.flops for kernel in forward)


def test_parameters_of_a_gated_delta_network_are_those_of_its_tensors() -> None:
    h, mixed, values = 512, 2 * 4 * 32 + 8 * 16, 8 * 16
    mlp = parameters(layer(DELTA, 3)) - parameters(layer(DELTA, 3)[:6])
    tensors = h + h * (mixed + values + 2 * 8) + 4 * mixed + 2 * 8 + 16 + values * h

    assert parameters(layer(DELTA)) - mlp == tensors


def test_parameters_of_mamba_2_are_those_of_its_tensors() -> None:
    h, mixed, values = 512, 2 * 32 + 8 * 16, 8 * 16
    mlp = parameters(layer(MAMBA, 3)) - parameters(layer(MAMBA, 3)[:6])
    tensors = h + h * (mixed + values + 8) + (4 + 1) * mixed + 3 * 8 + values + values * h

    assert parameters(layer(MAMBA)) - mlp == tensors


def test_ranks_divide_value_heads_and_repeat_the_key_heads_that_are_fewer() -> None:
    products = {each.name: each for each in layer(MAMBA, tp=4)}

    assert products["mixer_in"].parameters == 512 * (2 * 32 + 2 * 2 * 16 + 2)
    assert products["projection"].parameters == 2 * 16 * 512


def test_context_parallelism_is_refused() -> None:
    with pytest.raises(DomainError, match="state"):
        ContextParallelism.refuse_model(hybrid(DELTA), StrategySettings(cp=2))
