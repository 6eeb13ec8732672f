"""Multi-head latent attention in training: down to the latent vectors, and up again to whole heads."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.elementwise import normalization
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics
from clustersim.workloads.transformer_shape import LatentAttention, TransformerShape

FUSED_ROTATION_PASSES = 2.0
EAGER_ROTATION_PASSES = 8.0
"""Reads and writes of what is rotated, as one kernel and as six."""


def latent_projections(model: TransformerShape, local: LocalShape, numerics: Numerics) -> list[Operator]:
    """Return the way from normalised rows to queries, keys and values of whole heads, as training computes it.

    The products that absorb the up projections save memory in inference and cost FLOPs; no trainer uses them. Every rank of tensor
    parallelism repeats the down projections, on its slice of the rows under sequence parallelism, and has the up projections of its
    heads (Megatron-Core, ``MLASelfAttention``). The normalised input is kept once for all who read it.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1 and appendix C.
    """
    assert model.latent is not None, model.name
    latent = model.latent
    narrow = _down(latent.down_width, model, local)
    if latent.q_lora_rank is None:
        direct = LinearShape(
            rows=local.rows,
            inputs=model.hidden_size,
            outputs=local.n_heads * latent.qk_head_dim,
            bias=False,
            saved_rows=local.sequence_rows,
        )
        down = [replace(linear("kv_down", narrow, numerics), saved_bytes=0.0)]
        queries = replace(linear("q", direct, numerics), column=True)
    else:
        down = [
            linear("q_down", _down(latent.q_lora_rank, model, local), numerics),
            normalization(model, local, numerics, name="q_norm", width=latent.q_lora_rank),
            replace(linear("kv_down", narrow, numerics), saved_bytes=0.0),
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


def _down(width: int, model: TransformerShape, local: LocalShape) -> LinearShape:
    return LinearShape(
        rows=local.sequence_rows, inputs=model.hidden_size, outputs=width, bias=model.qkv_bias, saved_rows=local.sequence_rows
    )


def _up(name: str, rank: int, width: int, local: LocalShape, numerics: Numerics) -> Operator:
    shape = LinearShape(rows=local.rows, inputs=rank, outputs=width, bias=False, saved_rows=local.sequence_rows)
    return replace(linear(name, shape, numerics), column=True)


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
