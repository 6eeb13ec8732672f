"""The experts of a layer on one rank: router, permutation, grouped products, and the experts that all tokens share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustersim.workload.elementwise import N_NORMS, activation, residual, second_norm
from clustersim.workload.grouped import GroupShape, grouped_linear
from clustersim.workload.linear import LinearShape, linear
from clustersim.workload.operators import Gemm, Operator, Stream
from clustersim.workload.shapes import FP32_BYTES, ExpertShare, LocalShape, Numerics
from clustersim.workload.transformer import Experts, Transformer

ROUTER_BYTES = {"fused": (26.0, 3), "eager": (38.0, 12)}
"""Traffic for each logit behind the router's product, and kernels, counted over Megatron-Core's. Fused: scores and choice (read 4, write
scores 4, what the gradient needs 4, map 1), scores for the auxiliary loss (4 + 4 + 1), the loss (4). Apart: softmax (8), choice (4), empty
scores and map and writing into them (8 + 2), softmax again (8), sums of scores and of the map (4 + 4)."""

ROUTER_BACKWARD_BYTES = {"fused": (24.0, 3), "eager": (32.0, 8)}
"""The same backward. Fused: gradient of the loss (4), of its scores (4 + 4), and of the scores (4 + 4 + 4). Apart: gathering from the
scattered scores (8), two gradients of a softmax (8 + 8), their sum (8)."""

INDEX_BYTES = 8.0
"""Place of one row in the order of the experts."""

MAP_BYTES = 1.0
"""For each token and expert, whether the token goes there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeHalf:
    """The MLP half of a layer with experts in parts, between which expert parallelism has its collectives."""

    norm: tuple[Operator, ...]
    router: tuple[Operator, ...]
    permute: tuple[Operator, ...]
    """Rows in the order of the experts; what follows is sent to the ranks that hold them."""
    sort: tuple[Operator, ...]
    """Received rows, which come rank by rank, in the order of the local experts; nothing where that is the same."""
    experts: tuple[Operator, ...]
    unsort: tuple[Operator, ...]
    """Rows in the order in which they came; what follows is sent back."""
    unpermute: tuple[Operator, ...]
    """The sum of what a token's experts gave."""
    shared: tuple[Operator, ...]
    """Experts for all tokens, and the addition of their result; their input is that of the router."""
    residual: tuple[Operator, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All parts one after the other."""
        routed = self.router + self.permute + self.sort + self.experts + self.unsort + self.unpermute
        return self.norm + routed + self.shared + self.residual


def moe_half(model: Transformer, local: LocalShape, numerics: Numerics) -> MoeHalf:
    """Return the MLP half of a layer with experts, from its normalisation to its residual addition.

    Returns
    -------
    MoeHalf
        In the order of Megatron-Core's ``MoELayer`` with the all-to-all dispatcher. Kept for the backward pass are: the normalised
        input, once for router, shared experts and the gradient of the permutation; the logits' scores; the rows that experts receive; the
        result of their first product; what their activation gives; and the scores of the rows. Scores are multiplied in with the
        activation, so that what experts give is not kept.

    References
    ----------
    .. [1] NVIDIA, Megatron-Core, ``transformer/moe``: ``router.py``, ``token_dispatcher.py``, ``experts.py``, ``shared_experts.py``.
    """
    experts, share = model.experts, local.experts
    assert experts is not None, model.name
    assert share is not None, model.name
    # Where the sum is normalised, or a gate scales one of its terms, the backward pass needs what was added up.
    needless = model.norms_per_layer <= N_NORMS and not model.dropout
    resort = (_sort("expert_sort", model, share, numerics),) if share.n_local > 1 and share.n_ranks > 1 else ()
    unsort = (replace(_sort("expert_unsort", model, share, numerics), needless=needless),) if resort else ()
    return MoeHalf(
        norm=(second_norm(model, local, numerics),),
        router=(_router(model, experts, local, numerics),),
        permute=(_permute(model, experts, local, numerics),),
        sort=resort,
        experts=_routed(model, experts, share, numerics, needless=needless),
        unsort=unsort,
        unpermute=(replace(_unpermute(model, local, share, numerics), needless=needless),),
        shared=_shared(model, experts, local, numerics, needless=needless) if experts.shared_size else (),
        residual=(replace(residual(model, local, numerics, name="residual_2"), needless=needless),),
    )


def _router(model: Transformer, experts: Experts, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the product with as many columns as experts, its result in fp32, and the choice of experts."""
    rows, n_experts, plain = local.sequence_rows, experts.n_experts, numerics.element_bytes
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=n_experts, bias=experts.router_bias, saved_rows=rows)
    product = linear("router", shape, replace(numerics, gemm_element_bytes=plain))
    logits = Gemm(rows, n_experts, model.hidden_size, element_bytes=plain, output_bytes=FP32_BYTES)
    (forward_bytes, n_forward), (backward_bytes, n_backward) = (table[numerics.kernels] for table in (ROUTER_BYTES, ROUTER_BACKWARD_BYTES))
    return replace(
        product,
        forward=(logits, Stream(rows * n_experts * forward_bytes, launches=n_forward)),
        backward_input=(Stream(rows * n_experts * backward_bytes, launches=n_backward), *product.backward_input),
        saved_bytes=product.saved_bytes + rows * n_experts * FP32_BYTES,
        selective_bytes=rows * n_experts * FP32_BYTES,
    )


def _permute(model: Transformer, experts: Experts, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the gathering of rows in the order of the experts, each as often as it has experts, and backward their sum."""
    assert local.experts is not None
    sent, tokens, e = local.experts.dispatched_rows, local.sequence_rows, numerics.elementwise_bytes
    placing = tokens * experts.n_experts * MAP_BYTES + sent * (INDEX_BYTES + 2 * FP32_BYTES)
    launches = 2 if numerics.kernels == "fused" else 5
    return Operator(
        name="permute",
        forward=(Stream(2.0 * sent * model.hidden_size * e + placing, launches=launches),),
        backward_input=(Stream((sent + tokens) * model.hidden_size * e + sent * (INDEX_BYTES + 2 * FP32_BYTES), launches=1),),
        backward_weight=(),
        saved_bytes=tokens * experts.n_experts * MAP_BYTES + sent * INDEX_BYTES,
    )


def _unpermute(model: Transformer, local: LocalShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the sum of what each token's experts gave, and backward the gradient of the sum copied to each of its terms."""
    sent, e = share.dispatched_rows, numerics.elementwise_bytes
    forward = (sent + local.sequence_rows) * model.hidden_size * e + sent * INDEX_BYTES
    backward = 2.0 * sent * model.hidden_size * e + sent * INDEX_BYTES
    return Operator(name="unpermute", forward=(Stream(forward),), backward_input=(Stream(backward),), backward_weight=())


def _sort(name: str, model: Transformer, share: ExpertShare, numerics: Numerics) -> Operator:
    rows = share.received_rows
    kernel = Stream(2.0 * rows * (model.hidden_size * numerics.elementwise_bytes + FP32_BYTES))
    return Operator(name=name, forward=(kernel,), backward_input=(kernel,), backward_weight=())


def _routed(model: Transformer, experts: Experts, share: ExpertShare, numerics: Numerics, *, needless: bool) -> tuple[Operator, ...]:
    """Return the products of the experts of this rank with the activation between them."""
    width, n_up = share.intermediate_size, 2 if model.gated_mlp else 1
    up = GroupShape(rows=share.rows, inputs=model.hidden_size, outputs=n_up * width, bias=experts.bias)
    down = GroupShape(rows=share.rows, inputs=width, outputs=model.hidden_size, bias=experts.bias)
    joined = () if numerics.grouped_experts or share.n_local == 1 else (_joined(model, share, numerics),)
    return (
        grouped_linear("experts_up", up, numerics),
        _scaled_activation(model, share, numerics),
        replace(grouped_linear("experts_down", down, numerics), needless=needless),
        *(replace(each, needless=needless) for each in joined),
    )


def _joined(model: Transformer, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the copy of what experts that ran one after the other give into one tensor, and of the gradients of what they took."""
    copied = Stream(2.0 * share.received_rows * model.hidden_size * numerics.element_bytes)
    return Operator(name="experts_join", forward=(copied,), backward_input=(copied,), backward_weight=())


def _scaled_activation(model: Transformer, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the activation with the scores of the rows multiplied in: fused they cost their own bytes, apart another pass each way."""
    rows, elements = share.received_rows, share.received_rows * share.intermediate_size
    plain = activation(model, numerics, rows=rows, width=share.intermediate_size, name="expert_activation")
    scores = rows * FP32_BYTES
    passes = 0.0 if numerics.kernels == "fused" else elements * numerics.elementwise_bytes
    more = Stream(scores + 2.0 * passes, launches=0 if numerics.kernels == "fused" else 1)
    back = Stream(2.0 * scores + 3.0 * passes, launches=0 if numerics.kernels == "fused" else 2)
    return replace(
        plain,
        forward=(*plain.forward, more),
        backward_input=(back, *plain.backward_input),
        saved_bytes=plain.saved_bytes + scores,
    )


def _shared(model: Transformer, experts: Experts, local: LocalShape, numerics: Numerics, *, needless: bool) -> tuple[Operator, ...]:
    """Return an MLP for all tokens, whose input the router keeps, with its gate and the addition of its result."""
    width, n_up = local.shared_size, 2 if model.gated_mlp else 1
    elements, e = local.sequence_rows * model.hidden_size, numerics.elementwise_bytes
    up = LinearShape(rows=local.rows, inputs=model.hidden_size, outputs=n_up * width, bias=model.mlp_bias, saved_rows=0)
    down = LinearShape(rows=local.rows, inputs=width, outputs=model.hidden_size, bias=model.mlp_bias, saved_rows=local.rows)
    gate = (_gate(model, local, numerics),) if experts.shared_gate else ()
    added = Stream(3.0 * elements * e)
    return (
        replace(linear("shared_up", up, numerics), column=True),
        activation(model, numerics, rows=local.rows, width=width, name="shared_activation"),
        replace(linear("shared_down", down, numerics), needless=needless and not experts.shared_gate),
        *gate,
        Operator(name="shared_add", forward=(added,), backward_input=(added,), backward_weight=(), needless=needless),
    )


def _gate(model: Transformer, local: LocalShape, numerics: Numerics) -> Operator:
    """Return one logit a token, its sigmoid, and the product with what the shared experts give."""
    rows, e = local.sequence_rows, numerics.elementwise_bytes
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=1, bias=False, saved_rows=0)
    product = linear("shared_gate", shape, replace(numerics, gemm_element_bytes=numerics.element_bytes))
    elements = rows * model.hidden_size
    return replace(
        product,
        forward=(*product.forward, Stream(2.0 * elements * e, launches=2)),
        backward_input=(Stream(3.0 * elements * e, launches=3), *product.backward_input),
        saved_bytes=elements * e,
    )
