"""Attention between the projections: fused as in FlashAttention, or as separate kernels."""

from __future__ import annotations

from clustersim.workload.operators import FlashAttention, Gemm, Operator, Stream
from clustersim.workload.shapes import LocalShape, Numerics
from clustersim.workload.transformer import Transformer

MASK_BYTES = 1.0
"""One element of a dropout mask."""

EAGER_SOFTMAX_PASSES = 6.0
"""Reads and writes of the scores by scale, mask and softmax as three kernels; a fused kernel needs two."""

FUSED_SOFTMAX_HEADS = 4
"""Megatron-LM's fused softmax takes heads in fours: where those of a micro-batch and rank are no multiple, separate kernels run
(megatron/model/fused_softmax.py, ``is_kernel_available``)."""


def core_attention(model: Transformer, local: LocalShape, numerics: Numerics) -> Operator:
    """Return scores, softmax, dropout and context of one micro-batch on one rank.

    Returns
    -------
    Operator
        Saved bytes follow Korthikanti et al., section 4.1: queries and keys 4 s b h, values 2 s b h, and without
        FlashAttention softmax output 2 a s^2 b, dropout mask a s^2 b, dropout output 2 a s^2 b (16-bit numbers). The
        output is saved by the projection that follows.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023.
    .. [2] T. Dao, "FlashAttention-2", 2023.
    """
    if numerics.attention == "unfused":
        return _unfused(model, local, numerics)
    return _flash(model, local, numerics, numerics.attention)


def _saved_projections(model: Transformer, local: LocalShape, numerics: Numerics) -> float:
    return local.rows * (local.n_heads + 2 * local.n_kv_heads) * model.head_dim * numerics.element_bytes


def _flash(model: Transformer, local: LocalShape, numerics: Numerics, generation: str) -> Operator:
    forward, backward = (
        FlashAttention(
            local.batch,
            local.n_heads,
            local.n_kv_heads,
            local.seq_length,
            local.seq_length,
            model.head_dim,
            model.causal,
            backward,
            numerics.element_bytes,
            generation,
        )
        for backward in (False, True)
    )
    statistics_bytes = local.rows * local.n_heads * 4.0
    return Operator(
        name="attention",
        forward=(forward,),
        backward_input=(backward,),
        backward_weight=(),
        saved_bytes=_saved_projections(model, local, numerics) + statistics_bytes,
        selective_bytes=statistics_bytes,
        selective=True,
        forward_flops=forward.flops,
    )


def _unfused(model: Transformer, local: LocalShape, numerics: Numerics) -> Operator:
    e, s, products = numerics.element_bytes, local.seq_length, local.batch * local.n_heads
    each = numerics.elementwise_bytes
    scores = float(products) * s * s
    query_key = Gemm(s, s, model.head_dim, batch=products, element_bytes=e, output_bytes=e)
    context = Gemm(s, model.head_dim, s, batch=products, element_bytes=e, output_bytes=e)
    passes = 2.0 if numerics.kernels == "fused" and products % FUSED_SOFTMAX_HEADS == 0 else EAGER_SOFTMAX_PASSES
    softmax = Stream(scores * passes * each, launches=int(passes / 2))
    softmax_gradient = Stream(scores * (passes + 1) * each, launches=int(passes / 2))
    dropout = (Stream(scores * (2 * each + MASK_BYTES)),) if model.dropout else ()
    kept = scores * (each + (e + MASK_BYTES if model.dropout else 0.0))
    return Operator(
        name="attention",
        forward=(query_key, softmax, *dropout, context),
        # Gradients of the probabilities and of the values, then of the queries and of the keys.
        backward_input=(query_key, context, *dropout, softmax_gradient, context, context),
        backward_weight=(),
        saved_bytes=_saved_projections(model, local, numerics) + kept,
        selective_bytes=kept,
        selective=True,
        forward_flops=query_key.flops + context.flops,
    )
