"""A transformer layer as operators: FLOPs, bytes moved, parameters and saved activations, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from clustersim.workloads.attention import context_attention, core_attention
from clustersim.workloads.elementwise import N_NORMS, activation, normalization, qk_normalization, residual, rotary, second_norm, split
from clustersim.workloads.experts import moe_half
from clustersim.workloads.linear import LinearShape, gathered_input, linear, scattered_result
from clustersim.workloads.operators import Gemm, Kernel, KernelPhase, Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import LatentAttention, LinearAttention, TransformerShape


def divides_heads(linear: LinearAttention, tp: int) -> bool:
    """Return whether ranks have equal heads: value heads divided, key heads divided or each repeated equally often."""
    return linear.n_value_heads % tp == 0 and (linear.n_key_heads % tp == 0 or tp % linear.n_key_heads == 0)


def heads_text(linear: LinearAttention, tp: int) -> str:
    """Return why a degree of tensor parallelism does not fit the heads of a state."""
    if linear.n_value_heads % tp:
        return f"{tp} does not divide {linear.n_value_heads} value heads of layers with a state"
    return f"{linear.n_key_heads} key heads of layers with a state can neither be divided nor be repeated evenly among {tp} ranks"


def local_heads(linear: LinearAttention, tp: int) -> LinearAttention:
    """Return the heads of one rank: value heads divided, key heads repeated where they are fewer than ranks."""
    return replace(linear, n_key_heads=max(1, linear.n_key_heads // tp), n_value_heads=linear.n_value_heads // tp)


def linear_attention_operators(model: TransformerShape, local: LocalShape, numerics: Numerics) -> tuple[Operator, ...]:
    """Return a layer's half with a state, from its normalisation to its residual addition.

    One product gives queries, keys, values, the gate of the result and the scalars of each head. Queries, keys and values pass a short
    convolution along the sequence; the normalised result is multiplied with the gate.
    """
    assert model.linear is not None, model.name
    here = local_heads(model.linear, model.n_heads // local.n_heads)
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


def attention_operators(model: TransformerShape, local: LocalShape, numerics: Numerics, layer: int = 0) -> tuple[Operator, ...]:
    """Return the attention half of a layer, from its normalisation to its residual addition."""
    if model.layer_kind(layer).linear:
        return linear_attention_operators(model, local, numerics)
    projections = _projections(model, local, numerics) if model.latent is None else latent_projections(model, local, numerics)
    output = scattered_result(local.n_heads * model.value_dim, model.hidden_size, local, bias=model.linear_bias)
    return (
        normalization(model, local, numerics, name="norm_1"),
        *projections,
        _core(model, local, numerics, windowed=model.layer_kind(layer).windowed),
        *_output_gate(model, local, numerics),
        # Attention needs its result once more, as it was, so that no cast of it is kept.
        replace(linear("projection", output, numerics), saved_bytes=local.rows * output.inputs * numerics.element_bytes, row=True),
        residual(model, local, numerics, name="residual_1"),
    )


def _core(model: TransformerShape, local: LocalShape, numerics: Numerics, *, windowed: bool) -> Operator:
    """Return attention over whole sequences, or over those of which other ranks have parts too."""
    if local.context is None:
        return core_attention(model, local, numerics, windowed=windowed)
    return context_attention(model, local, numerics, local.context, windowed=windowed)


def _output_gate(model: TransformerShape, local: LocalShape, numerics: Numerics) -> list[Operator]:
    """Return the product of what attention gives and the sigmoid of the gate: three passes forward, five backward."""
    if not model.attention_gate:
        return []
    once = local.rows * local.n_heads * model.value_dim * numerics.elementwise_bytes
    phases: Mapping[KernelPhase, tuple[Kernel, ...]] = {"forward": (Stream(3 * once),), "input_gradient": (Stream(5 * once),)}
    return [Operator(name="attention_gate", phases=phases, saved_bytes=2 * once)]


def _projections(model: TransformerShape, local: LocalShape, numerics: Numerics) -> list[Operator]:
    """Return the operators from normalised rows to queries, keys and values."""
    width = (local.n_heads * (2 if model.attention_gate else 1) + 2 * local.n_kv_heads) * model.head_dim
    joint = gathered_input(model.hidden_size, width, local, bias=model.qkv_bias)
    operators = [replace(linear("qkv", joint, numerics), column=True)]
    if numerics.kernels == "eager":
        operators.append(split(local, numerics, width=width))
    if model.qk_normalization:
        operators.append(qk_normalization(model, local, numerics))
    if model.position in ("rope", "yarn"):
        operators.append(rotary(model, local, numerics))
    return operators


def mlp_operators(model: TransformerShape, local: LocalShape, numerics: Numerics, layer: int = 0) -> tuple[Operator, ...]:
    """Return the MLP half of a layer, from its normalisation to its residual addition: an MLP, or experts where the layer has them."""
    if model.layer_kind(layer).experts:
        return moe_half(model, local, numerics).operators
    up_width = local.intermediate_size * (2 if model.gated_mlp else 1)
    up = gathered_input(model.hidden_size, up_width, local, bias=model.mlp_bias)
    down = scattered_result(local.intermediate_size, model.hidden_size, local, bias=model.mlp_bias)
    # Where the result of the last product is normalised, the backward pass needs it.
    needless = model.norms_per_layer <= N_NORMS and not model.dropout
    return (
        second_norm(model, local, numerics),
        replace(linear("mlp_up", up, numerics), column=True),
        activation(model, numerics, rows=local.rows, width=local.intermediate_size),
        replace(linear("mlp_down", down, numerics), needless=needless, row=True),
        replace(residual(model, local, numerics, name="residual_2"), needless=needless),
    )


def layer_operators(model: TransformerShape, local: LocalShape, numerics: Numerics, layer: int = 0) -> tuple[Operator, ...]:
    """Return all operators of one layer in execution order."""
    return attention_operators(model, local, numerics, layer) + mlp_operators(model, local, numerics, layer)


FUSED_ROTATION_PASSES = 2.0
EAGER_ROTATION_PASSES = 8.0
"""Reads and writes of rotary embedding, as one kernel and as six."""


def latent_projections(model: TransformerShape, local: LocalShape, numerics: Numerics) -> list[Operator]:
    """Return the operators from normalised rows to queries, keys and values of whole heads, as training computes them.

    The products that absorb the up projections save memory in inference and cost FLOPs; no trainer uses them. Every rank of tensor
    parallelism repeats the down projections, on its slice of the rows under sequence parallelism, and has the up projections of its
    heads (Megatron-Core, ``MLASelfAttention``). The normalised input is kept once for all who read it.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1 and appendix C.
    """
    assert model.latent is not None, model.name
    latent = model.latent
    if latent.q_lora_rank is None:
        direct = gathered_input(model.hidden_size, local.n_heads * latent.qk_head_dim, local, bias=False)
        down = [replace(_down("kv_down", latent.down_width, model, local, numerics), saved_bytes=0.0)]
        queries = replace(linear("q", direct, numerics), column=True)
    else:
        down = [
            _down("q_down", latent.q_lora_rank, model, local, numerics),
            normalization(model, local, numerics, name="q_norm", width=latent.q_lora_rank),
            replace(_down("kv_down", latent.down_width, model, local, numerics), saved_bytes=0.0),
        ]
        queries = _up("q_up", latent.q_lora_rank, local.n_heads * latent.qk_head_dim, local, numerics)
    up_width = local.n_heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return [
        *down,
        normalization(model, local, numerics, name="kv_norm", width=latent.kv_lora_rank),
        queries,
        _up("kv_up", latent.kv_lora_rank, up_width, local, numerics),
        _assembly(latent, local, numerics),
    ]


def entering_width(model: TransformerShape) -> int:
    """Return the width of the rows that enter the column-split layers of attention: what sequence parallelism gathers before them."""
    latent = model.latent
    if latent is None:
        return model.hidden_size
    return latent.down_width + (model.hidden_size if latent.q_lora_rank is None else latent.q_lora_rank)


def _down(name: str, width: int, model: TransformerShape, local: LocalShape, numerics: Numerics) -> Operator:
    rows = local.sequence_rows
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=width, bias=model.qkv_bias, saved_rows=rows)
    return replace(linear(name, shape, numerics), role="latent_down")


def _up(name: str, rank: int, width: int, local: LocalShape, numerics: Numerics) -> Operator:
    return replace(linear(name, gathered_input(rank, width, local, bias=False), numerics), column=True)


def _assembly(latent: LatentAttention, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the rotation of queries and of the shared key, and the copy of whole keys and values from their parts.

    Fused, queries are rotated where they stand, and one kernel reads the up projection and writes keys and values (Megatron-Core,
    ``fused_mla_yarn_rope_apply``). As separate kernels both rotations pass over their parts, and queries and keys are then put together.
    """
    e, heads = numerics.elementwise_bytes, local.rows * local.n_heads
    rotated, shared = heads * latent.qk_rope_head_dim, local.rows * latent.qk_rope_head_dim
    made = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    if numerics.kernels == "fused":
        kernel = Stream((FUSED_ROTATION_PASSES * rotated + 2 * made + shared + rotated) * e, launches=2)
    else:
        copied = 2 * heads * 2 * latent.qk_head_dim
        kernel = Stream((EAGER_ROTATION_PASSES * (rotated + shared) + copied) * e, launches=14)
    return Operator(name="rotary", phases={"forward": (kernel,), "input_gradient": (kernel,)})
