"""Activation memory of layers with experts and of latent attention, in the closed forms of the theory pages."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts, LatentAttention
from tests.unit.parallel.factories import LLAMA, layer_activation_bytes, make_plan

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 512, 8, 4, 64
CASES = list(product((256,), (1, 3), (1, 6), (64, 192), (0, 128)))


def kept(model: Transformer, s: int, b: int) -> float:
    """Return what one layer keeps in 16-bit numbers."""
    plan = make_plan(model, seq_length=s, micro_batch_size=b, global_batch_size=b, attention="flash")
    return layer_activation_bytes(plan)[0]


def attention_half(tokens: int) -> float:
    """Return the input and output of the first norm, queries, keys, values and context, and what the softmax keeps."""
    return tokens * (2 * (2 * HIDDEN + (2 * HEADS + 2 * KV_HEADS) * HEAD_DIM) + 4 * HEADS)


@pytest.mark.parametrize(("s", "b", "k", "f", "shared"), CASES)
def test_a_layer_with_experts_keeps_each_row_once_for_each_of_its_experts(s: int, b: int, k: int, f: int, shared: int) -> None:
    n, n_experts = s * b, 8
    experts = Experts(n_experts=n_experts, top_k=k, intermediate_size=f, shared_size=shared)
    # Input and output of the norm, scores and map of the router; of each row its place, itself, the two factors, their product, its score.
    router = n * (2 * 2 * HIDDEN + n_experts * (4 + 1))
    rows = n * k * (8 + 2 * HIDDEN + 2 * 2 * f + 2 * f + 4)
    beside = n * 2 * 3 * shared

    assert kept(replace(LLAMA, experts=experts), s, b) == attention_half(n) + router + rows + beside


@pytest.mark.parametrize(("s", "b", "rank"), [(s, b, rank) for s, b in ((256, 1), (1024, 3)) for rank in (None, 192)])
def test_latent_attention_keeps_whole_heads_and_both_latent_vectors_twice(s: int, b: int, rank: int | None) -> None:
    n = s * b
    latent = LatentAttention(q_lora_rank=rank, kv_lora_rank=96, qk_nope_head_dim=48, qk_rope_head_dim=16, v_head_dim=40)
    model = replace(LLAMA, latent=latent, n_kv_heads=HEADS, head_dim=64)
    mlp = n * 2 * (2 * HIDDEN + 3 * LLAMA.intermediate_size)
    # The norm's input comes on top of h + 2 r_q + 2 r_kv + a (2 d + 2 d_v), and four bytes a head for the softmax.
    attention = n * (2 * (2 * HIDDEN + 2 * (rank or 0) + 2 * 96 + HEADS * (2 * 64 + 2 * 40)) + 4 * HEADS)

    assert kept(model, s, b) == attention + mlp
