"""Attention between the projections: fused as in FlashAttention, as separate kernels, or with each sequence divided among ranks."""

from __future__ import annotations

from dataclasses import replace

from clustersim.workloads.operators import FlashAttention, Gemm, Operator, Stream
from clustersim.workloads.shapes import FP32_BYTES, ContextShare, HeadWidths, LocalShape, Numerics, Packed
from clustersim.workloads.transformer_shape import TransformerShape, Window

MASK_BYTES = 1.0
"""One element of a dropout mask."""

EAGER_SOFTMAX_PASSES = 6.0
"""Reads and writes of the scores by scale, mask and softmax as three kernels; a fused kernel needs two."""

FUSED_SOFTMAX_HEADS = 4
"""Megatron-LM's fused softmax takes heads in fours: where those of a micro-batch and rank are no multiple, separate kernels run
(megatron/model/fused_softmax.py, ``is_kernel_available``)."""


def core_attention(model: TransformerShape, local: LocalShape, numerics: Numerics, *, windowed: bool = False) -> Operator:
    """Return scores, softmax, dropout and context of one micro-batch on one rank.

    A fused kernel computes no more of a window than its blocks; separate kernels compute all scores and mask them.

    Returns
    -------
    Operator
        Saved bytes follow Korthikanti et al., section 4.1: queries and keys 4 s b h, values 2 s b h, and without
        FlashAttention softmax output 2 a s^2 b, dropout mask a s^2 b, dropout output 2 a s^2 b (16-bit numbers). The
        output is saved by the projection that follows.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large TransformerShape Models", MLSys 2023.
    .. [2] T. Dao, "FlashAttention-2", 2023.
    """
    window = window_of(model, local.all_keys, windowed=windowed)
    if numerics.attention == "unfused":
        return _unfused(model, local, numerics, window)
    return _flash(model, local, numerics, window)


def window_of(model: TransformerShape, seq_length: int, *, windowed: bool) -> Window | None:
    """Return the window of a layer; None where it has none, or none that a sequence exceeds."""
    return model.window if windowed and model.window is not None and model.window.tokens < seq_length else None


def masked(model: TransformerShape, window: Window | None, flops: float) -> float:
    """Return the part of the FLOPs of attention that a causal mask spares; a window counts no more than it sees anyway."""
    return flops / 2 if model.causal and window is None else 0.0


def statistics_bytes(local: LocalShape) -> float:
    """Return the memory of fused attention per row and head: the logarithm of the sum of exponentials."""
    return local.rows * local.n_heads * FP32_BYTES


def sinks(model: TransformerShape, local: LocalShape) -> float:
    """Return the learned logits of attention sinks on one rank."""
    return float(local.n_heads) if model.attention_sinks else 0.0


def counted_pairs(seq_length: int, window: Window | None, packed: Packed | None = None) -> float:
    """Return the pairs of query and key of one sequence that count as model work: no mask is taken off, but what no query reaches is.

    Of a packed sequence no query reaches beyond its document.

    Examples
    --------
    >>> counted_pairs(10, None), counted_pairs(10, Window(tokens=4)), counted_pairs(10, Window(tokens=4, chunked=True))
    (100, 40, 36)
    """
    if packed is not None:
        return seq_length * min(packed.mean, seq_length if window is None else window.tokens)
    if window is None:
        return seq_length * seq_length
    tokens = min(window.tokens, seq_length)
    if not window.chunked:
        return seq_length * tokens
    n_chunks, rest = divmod(seq_length, tokens)
    return n_chunks * tokens * tokens + rest * rest


def _saved_projections(model: TransformerShape, local: LocalShape, numerics: Numerics) -> float:
    width = (local.n_heads + local.n_kv_heads) * model.head_dim + local.n_kv_heads * model.value_dim
    return local.rows * width * numerics.element_bytes


def _flash(model: TransformerShape, local: LocalShape, numerics: Numerics, window: Window | None) -> Operator:
    kernels = {backward: _kernels(model, local, numerics, window, backward=backward) for backward in (False, True)}
    counted = 2.0 * local.batch * local.n_heads * counted_pairs(local.seq_length, window, local.packed) * (model.head_dim + model.value_dim)
    return Operator(
        name="attention",
        role="core_attention",
        phases={"forward": kernels[False], "input_gradient": kernels[True]},
        parameters=sinks(model, local),
        saved_bytes=_saved_projections(model, local, numerics) + statistics_bytes(local),
        selective_bytes=statistics_bytes(local),
        forward_flops=counted,
        masked_flops=masked(model, window, counted),
    )


def own_attention(model: TransformerShape, local: LocalShape, numerics: Numerics, *, backward: bool) -> FlashAttention:
    """Return fused attention of the tokens of a rank over themselves, or over their documents."""
    return FlashAttention(
        local.batch,
        local.n_heads,
        local.n_kv_heads,
        local.seq_length,
        local.own_keys,
        model.head_dim,
        model.causal,
        backward,
        numerics.element_bytes,
        numerics.attention,
        None if model.latent is None else model.value_dim,
        spread=local.packed is not None,
    )


def _kernels(
    model: TransformerShape, local: LocalShape, numerics: Numerics, window: Window | None, *, backward: bool
) -> tuple[FlashAttention, ...]:
    """Return one kernel for whole sequences or a band of each, and for chunks one for all that are whole and one for the rests."""
    whole = own_attention(model, local, numerics, backward=backward)
    if window is None:
        return (whole,)
    if not window.chunked:
        return (replace(whole, window=window.tokens),)
    n_chunks, rest = divmod(local.seq_length, window.tokens)
    chunks = replace(whole, batch=local.batch * n_chunks, query_length=window.tokens, key_length=window.tokens)
    return (chunks, replace(whole, query_length=rest, key_length=rest)) if rest else (chunks,)


def _unfused(model: TransformerShape, local: LocalShape, numerics: Numerics, window: Window | None) -> Operator:
    e, s, products = numerics.element_bytes, local.seq_length, local.batch * local.n_heads
    each = numerics.elementwise_bytes
    scores = float(products) * s * s
    query_key = Gemm(s, s, model.head_dim, batch=products, element_bytes=e, output_bytes=e)
    context = Gemm(s, model.value_dim, s, batch=products, element_bytes=e, output_bytes=e)
    query_gradient = Gemm(s, model.head_dim, s, batch=products, element_bytes=e, output_bytes=e)
    probability_gradient = Gemm(s, s, model.value_dim, batch=products, element_bytes=e, output_bytes=e)
    passes = 2.0 if numerics.kernels == "fused" and products % FUSED_SOFTMAX_HEADS == 0 else EAGER_SOFTMAX_PASSES
    softmax = Stream(scores * passes * each, launches=int(passes / 2))
    softmax_gradient = Stream(scores * (passes + 1) * each, launches=int(passes / 2))
    dropout = (Stream(scores * (2 * each + MASK_BYTES)),) if model.dropout else ()
    kept = scores * (each + (e + MASK_BYTES if model.dropout else 0.0))
    counted = 2.0 * products * counted_pairs(s, window, local.packed) * (model.head_dim + model.value_dim)
    return Operator(
        name="attention",
        role="core_attention",
        phases={
            "forward": (query_key, softmax, *dropout, context),
            # Gradients of the probabilities and of the values, then of the queries and of the keys.
            "input_gradient": (probability_gradient, context, *dropout, softmax_gradient, query_gradient, query_gradient),
        },
        parameters=sinks(model, local),
        saved_bytes=_saved_projections(model, local, numerics) + kept,
        selective_bytes=kept,
        forward_flops=counted,
        masked_flops=masked(model, window, counted),
    )


MERGE_PASSES = 3.0
"""Adding one partial result reads it and the sum so far, and writes the sum."""


def context_attention(model: TransformerShape, local: LocalShape, numerics: Numerics, context: ContextShare, *, windowed: bool) -> Operator:
    """Return fused attention of one rank's part of each sequence.

    Under a causal mask a sequence is cut into twice as many pieces as ranks, and a rank holds one from the front and its mirror image
    from the back, so that all have as many pairs of query and key to work on.

    Kernels of ring attention stand one for each step, followed by what merges their results: the first works on the rank's own keys, every
    other on those of one other rank. Of the two shapes that balance a causal mask, all queries on half the keys or half the queries on
    all keys, the first is taken: it takes longer, and the ring goes at the pace of the slower.

    References
    ----------
    .. [1] H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023, arXiv 2310.01889.
    .. [2] A. Grattafiori et al., "The Llama 3 Herd of Models", 2024, arXiv 2407.21783, section 3.3.2 (all-gather of keys and values).
    .. [3] S. A. Jacobs et al., "DeepSpeed Ulysses", 2023, arXiv 2309.14509.
    """
    window = window_of(model, local.all_keys, windowed=windowed)
    forward, backward = (_divided_kernels(model, local, numerics, context, window, backward=backward) for backward in (False, True))
    pairs = counted_pairs(local.seq_length * context.degree, window, local.packed) / context.degree
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
    """Return the keys and values of one rank's tokens, as sent in a ring step and gathered from each rank, in bytes."""
    return local.rows * local.n_kv_heads * (model.head_dim + model.value_dim) * numerics.element_bytes


def exchanged_bytes(model: HeadWidths, local: LocalShape, numerics: Numerics, context: ContextShare) -> tuple[float, float]:
    """Return the sizes of the all-to-all of a rank before attention (queries, keys and values) and after it, in bytes.

    Key and value heads that are fewer than ranks are sent to as many as need them.
    """
    n_kv_heads = max(local.n_kv_heads, context.degree)
    before = local.n_heads * model.head_dim + n_kv_heads * (model.head_dim + model.value_dim)
    return local.rows * before * numerics.element_bytes, local.rows * local.n_heads * model.value_dim * numerics.element_bytes


def _divided_kernels(
    model: TransformerShape, local: LocalShape, numerics: Numerics, context: ContextShare, window: Window | None, *, backward: bool
) -> tuple[FlashAttention | Stream, ...]:
    own = own_attention(model, local, numerics, backward=backward)
    whole = local.seq_length * context.degree
    match context.kind:
        case "ring":
            keys = max(1, own.key_length // 2) if model.causal else own.key_length
            other = replace(own, key_length=keys, causal=False)
            return (own, *(other,) * (context.degree - 1), _merge(model, local, numerics, context.degree, backward=backward))
        case "all_gather":
            return (_seen(replace(own, key_length=local.all_keys, spread=True), window),)
        case "ulysses":
            heads = local.n_heads // context.degree
            kv_heads = max(1, local.n_kv_heads // context.degree)
            every = replace(own, n_heads=heads, n_kv_heads=kv_heads, query_length=whole, key_length=local.all_keys)
            return (_seen(every, window),)


def _seen(kernel: FlashAttention, window: Window | None) -> FlashAttention:
    """Return a kernel that works on no more than a window: a band, or pieces that do not see each other."""
    if window is None:
        return kernel
    return replace(kernel, key_length=window.tokens) if window.chunked else replace(kernel, window=window.tokens)


def _merge(model: TransformerShape, local: LocalShape, numerics: Numerics, degree: int, *, backward: bool) -> Stream:
    """Return the merge of the results of the steps: outputs forward; gradients of queries, keys and values backward."""
    width = local.n_heads * (model.head_dim if backward else model.value_dim)
    width += local.n_kv_heads * (model.head_dim + model.value_dim) if backward else 0
    return Stream(degree * MERGE_PASSES * local.rows * width * numerics.element_bytes, launches=degree)
