"""The three kinds of model, small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.transformer import Transformer

GPT = Transformer(
    name="gpt",
    n_layers=3,
    hidden_size=64,
    n_heads=4,
    n_kv_heads=4,
    head_dim=16,
    intermediate_size=256,
    vocab_size=1000,
    max_positions=128,
    tied_embeddings=True,
    gated_mlp=False,
    normalization="layernorm",
    position="learned",
    linear_bias=True,
    qkv_bias=True,
    mlp_bias=True,
    causal=True,
    dropout=True,
)
"""GPT-2's kind of model: four times as wide in the MLP, with biases, dropout and a tied head."""

LLAMA = replace(
    GPT,
    name="llama",
    n_kv_heads=2,
    intermediate_size=176,
    tied_embeddings=False,
    gated_mlp=True,
    normalization="rmsnorm",
    position="rope",
    linear_bias=False,
    qkv_bias=False,
    mlp_bias=False,
    dropout=False,
)
"""Grouped key and value heads, a gated MLP, a head of its own."""

BERT = replace(
    GPT,
    name="bert",
    n_token_types=2,
    embedding_normalization=True,
    final_normalization=False,
    pooler=True,
    head_bias=True,
    head_transform=True,
    causal=False,
    published_scope="backbone",
)
"""An encoder with every part that GPT lacks."""
