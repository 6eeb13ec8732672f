"""A transformer layer as operators: FLOPs, bytes moved, parameters and saved activations, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.attention import core_attention
from clustersim.workloads.context import context_attention
from clustersim.workloads.elementwise import N_NORMS, activation, normalization, qk_normalization, residual, rotary, second_norm, split
from clustersim.workloads.experts import moe_half
from clustersim.workloads.latent import latent_projections
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import TransformerShape


def attention_operators(model: TransformerShape, local: LocalShape, numerics: Numerics, layer: int = 0) -> tuple[Operator, ...]:
    """Return the attention half of a layer, from its normalisation to its residual addition."""
    projections = _projections(model, local, numerics) if model.latent is None else latent_projections(model, local, numerics)
    output = LinearShape(
        rows=local.rows,
        inputs=local.n_heads * model.value_dim,
        outputs=model.hidden_size,
        bias=model.linear_bias,
        saved_rows=local.rows,
    )
    return (
        normalization(model, local, numerics, name="norm_1"),
        *projections,
        _core(model, local, numerics, windowed=model.layer_kind(layer).windowed),
        # Attention needs its result once more, as it was, so that no cast of it is kept.
        replace(linear("projection", output, numerics), saved_bytes=local.rows * output.inputs * numerics.element_bytes, row=True),
        residual(model, local, numerics, name="residual_1"),
    )


def _core(model: TransformerShape, local: LocalShape, numerics: Numerics, *, windowed: bool) -> Operator:
    """Return attention over whole sequences, or over those of which other ranks have parts too."""
    if local.context is None:
        return core_attention(model, local, numerics, windowed=windowed)
    return context_attention(model, local, numerics, local.context, windowed=windowed)


def _projections(model: TransformerShape, local: LocalShape, numerics: Numerics) -> list[Operator]:
    """Return the way from normalised rows to queries, keys and values."""
    width = (local.n_heads + 2 * local.n_kv_heads) * model.head_dim
    joint = LinearShape(rows=local.rows, inputs=model.hidden_size, outputs=width, bias=model.qkv_bias, saved_rows=local.sequence_rows)
    operators = [replace(linear("qkv", joint, numerics), column=True)]
    if numerics.kernels == "eager":
        operators.append(split(local, numerics, width=width))
    if model.qk_normalization:
        operators.append(qk_normalization(model, local, numerics))
    if model.position == "rope":
        operators.append(rotary(model, local, numerics))
    return operators


def mlp_operators(model: TransformerShape, local: LocalShape, numerics: Numerics, layer: int = 0) -> tuple[Operator, ...]:
    """Return the MLP half of a layer, from its normalisation to its residual addition: an MLP, or experts where the layer has them."""
    if model.layer_kind(layer).experts:
        return moe_half(model, local, numerics).operators
    up_width = local.intermediate_size * (2 if model.gated_mlp else 1)
    up = LinearShape(rows=local.rows, inputs=model.hidden_size, outputs=up_width, bias=model.mlp_bias, saved_rows=local.sequence_rows)
    down = LinearShape(
        rows=local.rows, inputs=local.intermediate_size, outputs=model.hidden_size, bias=model.mlp_bias, saved_rows=local.rows
    )
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
