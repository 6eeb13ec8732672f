"""Operators and the count of parameters are two descriptions of one model; they agree to the last parameter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.workloads.ends import embedding_operators, head_operators, prediction
from clustersim.workloads.layer import layer_operators
from clustersim.workloads.parameters import total_parameters
from clustersim.workloads.reading.model_spec import load_model, model_names
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts, LatentAttention
from tests.unit.parallel.factories import GPT, NUMERICS, make_shape

TRANSFORMERS = [model for model in (load_model(name).model for name in model_names()) if isinstance(model, Transformer)]


@pytest.mark.parametrize("model", TRANSFORMERS, ids=lambda model: model.name)
def test_the_operators_of_a_shipped_model_have_its_parameters_to_the_last_one(model: Transformer) -> None:
    assert parameters_of_operators(model) == total_parameters(model)


@st.composite
def latents(draw: st.DrawFn) -> LatentAttention:
    width = st.integers(1, 96)
    return LatentAttention(
        q_lora_rank=draw(st.none() | width),
        kv_lora_rank=draw(width),
        qk_nope_head_dim=draw(width),
        qk_rope_head_dim=draw(width),
        v_head_dim=draw(width),
    )


@st.composite
def mixtures(draw: st.DrawFn) -> Experts:
    flag = st.booleans()
    return Experts(
        n_experts=draw(st.integers(1, 9)),
        top_k=1,
        intermediate_size=draw(st.integers(1, 99)),
        shared_size=draw(st.integers(0, 99)),
        shared_gate=draw(flag),
        dense_layers=tuple(draw(st.sets(st.integers(0, 3)))),
        router_bias=draw(flag),
        bias=draw(flag),
    )


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    flag = st.booleans()
    return replace(
        GPT,
        n_layers=draw(st.integers(1, 4)),
        n_kv_heads=draw(st.sampled_from([1, 2, 4, 8])),
        head_dim=draw(st.sampled_from([16, 64, 80])),
        vocab_size=draw(st.integers(1, 1000)),
        tied_embeddings=draw(flag),
        gated_mlp=draw(flag),
        normalization=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        normalization_vectors=draw(st.sampled_from([None, 0, 1, 2])),
        position=draw(st.sampled_from(["learned", "rope", "none"])),
        linear_bias=draw(flag),
        qkv_bias=draw(flag),
        mlp_bias=draw(flag),
        n_token_types=draw(st.integers(0, 2)),
        unused_positions=draw(st.integers(0, 2)),
        embedding_normalization=draw(flag),
        final_normalization=draw(flag),
        pooler=draw(flag),
        lm_head=draw(flag),
        head_bias=draw(flag),
        head_transform=draw(flag),
        qk_normalization=draw(flag),
        qk_normalization_shared=draw(flag),
        qk_normalization_learned=draw(flag),
        norms_per_layer=draw(st.sampled_from([1, 2, 4])),
        latent=draw(st.none() | latents()),
        experts=draw(st.none() | mixtures()),
        attention_sinks=draw(flag),
        n_mtp=draw(st.integers(0, 2)),
    )


@given(transformers())
def test_the_operators_of_any_model_have_its_parameters(model: Transformer) -> None:
    assert parameters_of_operators(model) == total_parameters(model)


def parameters_of_operators(model: Transformer) -> float:
    """Return the parameters of all operators on one rank, a tied head once."""
    shape = make_shape(model)
    parts = (*embedding_operators(model, shape, NUMERICS), *head_operators(model, shape, NUMERICS))
    parts += prediction(model, shape, NUMERICS).operators * model.n_mtp
    layers = [operator for layer in range(model.n_layers) for operator in layer_operators(model, shape, NUMERICS, layer)]
    shared = model.vocab_size * model.hidden_size if model.tied_embeddings and model.lm_head else 0
    return sum(operator.parameters for operator in (*layers, *parts)) - shared
