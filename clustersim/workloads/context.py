"""Attention where context parallelism divides each sequence among ranks.

Under a causal mask a sequence is cut into twice as many pieces as ranks, and a rank holds one from the front and its mirror image from
the back, so that all have as many pairs of query and key to work on.

References
----------
.. [1] H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023, arXiv 2310.01889.
.. [2] A. Grattafiori et al., "The Llama 3 Herd of Models", 2024, arXiv 2407.21783, section 3.3.2 (all-gather of keys and values).
.. [3] S. A. Jacobs et al., "DeepSpeed Ulysses", 2023, arXiv 2309.14509.
"""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.attention import counted_pairs, masked, own_attention, sinks, statistics_bytes, window_of
from clustersim.workloads.operators import FlashAttention, Operator, Stream
from clustersim.workloads.shapes import ContextShare, HeadWidths, LocalShape, Numerics
from clustersim.workloads.transformer_shape import TransformerShape, Window

MERGE_PASSES = 3.0
"""Adding one partial result reads it and the sum so far, and writes the sum."""


def context_attention(model: TransformerShape, local: LocalShape, numerics: Numerics, context: ContextShare, *, windowed: bool) -> Operator:
    """Return fused attention of one rank's part of each sequence.

    Kernels of ring attention stand one for each step, followed by what merges their results: the first works on the rank's own keys, every
    other on those of one other rank. Of the two shapes that balance a causal mask, all queries on half the keys or half the queries on
    all keys, the first is taken: it takes longer, and the ring goes at the pace of the slower.
    """
    window = window_of(model, local.seq_length * context.degree, windowed=windowed)
    forward, backward = (_kernels(model, local, numerics, context, window, backward=backward) for backward in (False, True))
    pairs = counted_pairs(local.seq_length * context.degree, window) / context.degree
    flops = 2.0 * local.batch * local.n_heads * pairs * (model.head_dim + model.value_dim)
    queries_bytes = local.rows * local.n_heads * model.head_dim * numerics.element_bytes
    return Operator(
        name="attention",
        role="core_attention",
        phases={"forward": forward, "input_gradient": backward},
        parameters=sinks(model, local),
        saved_bytes=kept_keys_bytes(model, local, numerics) + queries_bytes + statistics_bytes(local),
        selective_bytes=statistics_bytes(local),
        forward_flops=flops,
        masked_flops=masked(model, window, flops),
    )


def kept_keys_bytes(model: HeadWidths, local: LocalShape, numerics: Numerics) -> float:
    """Return the keys and values of one rank's tokens: what a step of the ring carries, and what is gathered from every rank."""
    return local.rows * local.n_kv_heads * (model.head_dim + model.value_dim) * numerics.element_bytes


def exchanged_bytes(model: HeadWidths, local: LocalShape, numerics: Numerics, context: ContextShare) -> tuple[float, float]:
    """Return what a rank has for the all-to-all before attention, queries, keys and values, and for the one behind it.

    Key and value heads that are fewer than ranks are sent to as many as need them.
    """
    n_kv_heads = max(local.n_kv_heads, context.degree)
    before = local.n_heads * model.head_dim + n_kv_heads * (model.head_dim + model.value_dim)
    return local.rows * before * numerics.element_bytes, local.rows * local.n_heads * model.value_dim * numerics.element_bytes


def _kernels(
    model: TransformerShape, local: LocalShape, numerics: Numerics, context: ContextShare, window: Window | None, *, backward: bool
) -> tuple[FlashAttention | Stream, ...]:
    own = own_attention(model, local, numerics, backward=backward)
    whole = local.seq_length * context.degree
    match context.kind:
        case "ring":
            keys = local.seq_length // 2 if model.causal else local.seq_length
            other = replace(own, key_length=keys, causal=False)
            return (own, *(other,) * (context.degree - 1), _merge(model, local, numerics, context.degree, backward=backward))
        case "all_gather":
            return (_seen(replace(own, key_length=whole, spread=True), window),)
        case "ulysses":
            heads = local.n_heads // context.degree
            kv_heads = max(1, local.n_kv_heads // context.degree)
            every = replace(own, n_heads=heads, n_kv_heads=kv_heads, query_length=whole, key_length=whole)
            return (_seen(every, window),)


def _seen(kernel: FlashAttention, window: Window | None) -> FlashAttention:
    """Return a kernel that works on no more than a window: a band, or pieces that do not see each other."""
    if window is None:
        return kernel
    return replace(kernel, key_length=window.tokens) if window.chunked else replace(kernel, window=window.tokens)


def _merge(model: TransformerShape, local: LocalShape, numerics: Numerics, degree: int, *, backward: bool) -> Stream:
    """Return the adding up of what the steps gave: results forward; gradients of queries, keys and values backward."""
    width = local.n_heads * (model.head_dim if backward else model.value_dim)
    width += local.n_kv_heads * (model.head_dim + model.value_dim) if backward else 0
    return Stream(degree * MERGE_PASSES * local.rows * width * numerics.element_bytes, launches=degree)
