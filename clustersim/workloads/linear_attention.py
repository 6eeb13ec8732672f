"""Layers with a state in place of attention: state-space models (Mamba-2) and linear attention (gated delta networks)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from clustersim.workloads.elementwise import normalization, residual
from clustersim.workloads.linear import gathered_input, linear, scattered_result
from clustersim.workloads.operators import Gemm, Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import LinearAttention, TransformerShape


def divides_heads(linear: LinearAttention, tp: int) -> bool:
    """Return whether ranks have equal heads: value heads divided, key heads divided or each repeated equally often."""
    return linear.n_value_heads % tp == 0 and (linear.n_key_heads % tp == 0 or tp % linear.n_key_heads == 0)


def heads_text(linear: LinearAttention, tp: int) -> str:
    """Return why a degree of tensor parallelism does not fit the heads of a state."""
    if linear.n_value_heads % tp:
        return f"{tp} does not divide {linear.n_value_heads} value heads of layers with a state"
    return f"{linear.n_key_heads} key heads of layers with a state can neither be divided nor be repeated evenly among {tp} ranks"


def local_heads(model: TransformerShape, linear: LinearAttention, local: LocalShape) -> LinearAttention:
    """Return the heads of one rank: value heads divided, key heads repeated where they are fewer than ranks."""
    tp = model.n_heads // local.n_heads
    return replace(linear, n_key_heads=max(1, linear.n_key_heads // tp), n_value_heads=linear.n_value_heads // tp)


def linear_attention_operators(model: TransformerShape, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
    """Return a layer's half with a state, from its normalisation to its residual addition.

    One product gives queries, keys, values, the gate of the result and the scalars of each head. Queries, keys and values pass a short
    convolution along the sequence; the normalised result is multiplied with the gate.
    """
    assert model.linear is not None, model.name
    here = local_heads(model, model.linear, local)
    e, rows, values = numerics.elementwise_bytes, local.rows, here.n_value_heads * here.value_dim
    entering = gathered_input(model.hidden_size, here.mixed_width + values + here.scalars * here.n_value_heads, local, bias=False)
    leaving = scattered_result(values, model.hidden_size, local, bias=False)
    mixed, gated = rows * here.mixed_width * e, rows * values * e
    return (
        normalization(model, local, numerics, name="norm_1"),
        replace(linear("mixer_in", entering, numerics), column=True),
        Operator(
            name="mixer_convolution",
            phases={"forward": (Stream(2 * mixed),), "input_gradient": (Stream(3 * mixed),)},
            parameters=float(here.mixed_width * (here.kernel + here.kernel_bias)),
            saved_bytes=mixed,
        ),
        core_linear_attention(here, local, numerics),
        Operator(
            name="mixer_norm",
            phases={"forward": (Stream(3 * gated),), "input_gradient": (Stream(5 * gated),)},
            parameters=float(here.value_dim if here.delta else values),
            saved_bytes=2 * gated,
        ),
        replace(linear("projection", leaving, numerics), saved_bytes=rows * values * numerics.element_bytes, row=True),
        residual(model, local, numerics, name="residual_1"),
    )


def core_linear_attention(linear: LinearAttention, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the recurrence over a sequence as its products over chunks, which the backward pass repeats before its two gradients of each.

    References
    ----------
    .. [1] T. Dao, A. Gu, "Transformers are SSMs", 2024, section 6 (state-space duality).
    .. [2] S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", 2024, section 3.3.
    """
    forward = chunk_products(linear, local, numerics)
    kept = local.rows * numerics.element_bytes
    return Operator(
        name="linear_attention",
        phases={"forward": forward, "input_gradient": forward * 3},
        parameters=float(linear.vectors * linear.n_value_heads),
        # Queries, keys and values, and of the delta rule the inverse within each chunk.
        saved_bytes=kept * (linear.mixed_width + (linear.chunk * linear.n_value_heads if linear.delta else 0)),
        forward_flops=local.rows * linear.recurrent_flops,
    )


def chunk_products(linear: LinearAttention, local: LocalShape, numerics: Numerics) -> tuple[Gemm, ...]:
    """Return the matrix products over all chunks of a micro-batch on one rank.

    Within a chunk: scores of queries and keys, and their product with the values. Between chunks: each one's contribution to the state,
    and what its queries read of the state before. The delta rule first solves for the values that a chunk adds: scores of keys and keys,
    their inverse times keys and times values, and what the state has of the keys already.
    """
    chunk, keys, values = min(linear.chunk, local.seq_length), linear.key_dim, linear.value_dim
    n_chunks = local.batch * ceil(local.seq_length / chunk)

    def product(m: int, n: int, k: int, heads: int = linear.n_value_heads) -> Gemm:
        each = numerics.element_bytes
        return Gemm(m, n, k, batch=n_chunks * heads, element_bytes=each, output_bytes=each)

    within, state, read = product(chunk, values, chunk), product(keys, values, chunk), product(chunk, values, keys)
    scores = product(chunk, chunk, keys, linear.n_value_heads if linear.delta else linear.n_key_heads)
    solve = (scores, product(chunk, keys, chunk), within, read) if linear.delta else ()
    return (*solve, scores, within, state, read)
