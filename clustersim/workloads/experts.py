"""The experts of a layer on one rank: router, permutation, grouped products, and the experts that all tokens share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from clustersim.workloads.elementwise import N_NORMS, activation, residual, second_norm
from clustersim.workloads.linear import LinearShape, cast_operand, gathered_input, linear, scattered_result
from clustersim.workloads.operators import Gemm, GroupedGemm, Kernel, Operator, Stream, captured
from clustersim.workloads.shapes import FP32_BYTES, ExpertShare, LocalShape, Numerics
from clustersim.workloads.transformer_shape import Experts, TransformerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShape:
    """One rank's linear layers of equal size, one for each of its experts."""

    rows: tuple[int, ...]
    """Rows of each expert."""
    inputs: int
    outputs: int
    bias: bool
    cast_rows: bool = True
    """False where rows come in the format of the product already."""
    cast_gradient: bool = True
    """False where the gradients of the results do."""


def grouped_linear(name: str, shape: GroupShape, numerics: Numerics) -> Operator:
    """Return the linear layers of all experts of a rank as one operator.

    Forward, backward and accumulation are those of a linear layer, for each expert with its own rows and its own weight. Products beside
    each other are issued one by one, on several streams, and their rows cast in one call [1]_; those of one kernel at once; others follow
    each other, casts to 8 bits included. An expert without rows reads no weight and has no gradient to add.

    References
    ----------
    .. [1] NVIDIA, *Transformer Engine*, ``pytorch/module/grouped_linear.py``.
    """
    total, inputs, outputs = sum(shape.rows), shape.inputs, shape.outputs
    operand, plain = numerics.gemm_element_bytes, numerics.element_bytes
    n_used = sum(1 for rows in shape.rows if rows)
    launches = 1 if numerics.fused_experts else n_used
    forward = GroupedGemm(shape.rows, outputs, inputs, element_bytes=operand, output_bytes=plain, launches=launches)
    input_gradient = GroupedGemm(shape.rows, inputs, outputs, element_bytes=operand, output_bytes=plain, launches=launches)
    fused = numerics.fused_gradient_accumulation
    weight_gradient = GroupedGemm(
        shape.rows,
        outputs,
        inputs,
        over_rows=True,
        element_bytes=operand,
        output_bytes=numerics.gradient_bytes if fused else plain,
        accumulates=fused,
        launches=launches,
    )
    accumulate = n_used * inputs * outputs * (plain + (2 + numerics.gradient_passes) * numerics.gradient_bytes)
    weights = _kernels(weight_gradient, numerics) + (() if fused else (Stream(accumulate, launches=n_used),))
    if shape.bias:
        weights += (Stream(total * outputs * plain),)
    return Operator(
        name=name,
        phases={
            "forward": (*(_casts(shape, inputs, numerics) if shape.cast_rows else ()), *_kernels(forward, numerics)),
            "input_gradient": (*(_casts(shape, outputs, numerics) if shape.cast_gradient else ()), *_kernels(input_gradient, numerics)),
            "weight_gradient": weights,
        },
        expert=True,
        parameters=float(len(shape.rows) * (inputs * outputs + (outputs if shape.bias else 0))),
        saved_bytes=total * inputs * operand,
        forward_flops=forward.flops,
    )


def _casts(shape: GroupShape, width: int, numerics: Numerics) -> tuple[Kernel, ...]:
    groups = tuple(rows for rows in shape.rows if rows)
    if numerics.grouped_experts:
        return cast_operand(sum(groups) * width, numerics, n_groups=1 if numerics.fused_experts else len(groups))
    return tuple(kernel for rows in groups for kernel in cast_operand(rows * width, numerics))


def _kernels(product: GroupedGemm, numerics: Numerics) -> tuple[Kernel, ...]:
    return (product,) if numerics.grouped_experts else product.products


ROUTER_BYTES = {"fused": (26.0, 6), "eager": (38.0, 15)}
"""Traffic for each logit behind the router's product, and kernels, counted over Megatron-Core's. Fused: scores and choice (read 4, write
scores 4, what the gradient needs 4, map 1), scores for the auxiliary loss (4 + 4 + 1), the loss (4). Apart: softmax (8), choice (4), empty
scores and map and writing into them (8 + 2), softmax again (8), sums of scores and of the map (4 + 4). Three more are of a few numbers: the
sum of the map over tokens, and the loss divided and added to what is logged."""

ROUTER_BACKWARD_BYTES = {"fused": (24.0, 5), "eager": (32.0, 10)}
"""The same backward. Fused: gradient of the loss (4), of its scores (4 + 4), and of the scores (4 + 4 + 4). Apart: gathering from the
scattered scores (8), two gradients of a softmax (8 + 8), their sum (8). Two more make the gradient that the loss begins with."""

COUNT_LAUNCHES = {"alone": 3, "node": 4, "all_to_all": 13}
"""Launches of the host to learn how many rows go where, counted over Megatron-Core's dispatchers. Alone: the sum of the map, its cast, and
a copy to the host. Sent once to each node: the layout of the sending, its two kernels, a copy. By all-to-all: the sum and its cast, sums by
rank and by expert with a slice between them (5), a gathering of these counts over all ranks, four copies to the host, and an all-to-all of
its own for the scores."""

PERMUTE_LAUNCHES = {"fused": 4, "eager": 5}
"""Fused: three kernels make the places of rows from the map, and one moves them."""

BIAS_PASSES = (36.0, 44.0)
"""Bytes in fp32 for each number of the second bias, forward and backward, as Megatron-Core adds it: a bias times the scores of its rows
(write 4, mixed), added to rows (read 4, write 4, mixed), all experts joined (4 + 4) and cast back (4). Backward: the gradient cast to
fp32 (write 4, mixed) and back (read 4), times the bias (4 + 4, mixed) and summed over columns (4), times the scores (4 + 4) and summed
over rows (4). What mixes 16 and 32 bits counts twice: kernels of PyTorch then move half as many bytes a second."""

BIAS_LAUNCHES = ((2, 2), (5, 2))
"""Kernels for each expert, and for all together, forward and backward."""

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
    """The sum over the experts of a token."""
    shared: tuple[Operator, ...]
    """Experts for all tokens, and the addition of their result; their input is that of the router."""
    residual: tuple[Operator, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All parts in sequence."""
        routed = self.router + self.permute + self.sort + self.experts + self.unsort + self.unpermute
        return self.norm + routed + self.shared + self.residual

    def mapped(self, change: Callable[[Operator], Operator]) -> MoeHalf:
        """Return the same with each operator changed."""
        return MoeHalf(**{part.name: tuple(change(each) for each in getattr(self, part.name)) for part in fields(self)})

    def captured(self, *, whole: bool) -> MoeHalf:
        """Return the same with all operators captured in graphs, or those before the rows are sent alone."""
        before = captured(self.norm + self.router + self.permute)
        n_norms, n_routers = len(self.norm), len(self.norm) + len(self.router)
        half = replace(self, norm=before[:n_norms], router=before[n_norms:n_routers], permute=before[n_routers:])
        if not whole:
            return half
        parts = (self.sort, self.experts, self.unsort, self.unpermute, self.shared, self.residual)
        sort, experts, unsort, unpermute, shared, last = (captured(part) if part else () for part in parts)
        return replace(half, sort=sort, experts=experts, unsort=unsort, unpermute=unpermute, shared=shared, residual=last)


def moe_half(model: TransformerShape, local: LocalShape, numerics: Numerics) -> MoeHalf:
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
    in_order = numerics.fused_experts and share.n_ranks > 1
    resort = (_sort("expert_sort", model, share, numerics),) if share.n_local > 1 and share.n_ranks > 1 and not in_order else ()
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


def _router(model: TransformerShape, experts: Experts, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the product with as many columns as experts, its result in fp32, and the choice of experts."""
    rows, n_experts, plain = local.sequence_rows, experts.n_experts, numerics.element_bytes
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=n_experts, bias=experts.router_bias, saved_rows=rows)
    product = linear("router", shape, replace(numerics, gemm_element_bytes=plain))
    logits = Gemm(rows, n_experts, model.hidden_size, element_bytes=plain, output_bytes=FP32_BYTES)
    (forward_bytes, n_forward), (backward_bytes, n_backward) = (table[numerics.kernels] for table in (ROUTER_BYTES, ROUTER_BACKWARD_BYTES))
    return replace(
        product,
        phases={
            **product.phases,
            "forward": (logits, Stream(rows * n_experts * forward_bytes, launches=n_forward)),
            "input_gradient": (Stream(rows * n_experts * backward_bytes, launches=n_backward), *product.kernels("input_gradient")),
        },
        saved_bytes=product.saved_bytes + rows * n_experts * FP32_BYTES,
        selective_bytes=rows * n_experts * FP32_BYTES,
    )


def _permute(model: TransformerShape, experts: Experts, local: LocalShape, numerics: Numerics) -> Operator:
    """Return the gathering of rows in the order of the experts, each as often as it has experts, and backward their sum."""
    assert local.experts is not None
    sent, tokens, e = local.experts.dispatched_rows, local.sequence_rows, numerics.elementwise_bytes
    placing = tokens * experts.n_experts * MAP_BYTES + sent * (INDEX_BYTES + 2 * FP32_BYTES)
    way = "all_to_all" if local.experts.counts_first else "alone" if local.experts.n_ranks == 1 else "node"
    counts = Stream(0.0, launches=COUNT_LAUNCHES[way], awaited=not (local.experts.fixed_rows or numerics.fused_experts))
    forward = (counts, Stream(2.0 * sent * model.hidden_size * e + placing, launches=PERMUTE_LAUNCHES[numerics.kernels]))
    # Backward the gradients of scores have an all-to-all of their own.
    back = Stream((sent + tokens) * model.hidden_size * e + sent * (INDEX_BYTES + 2 * FP32_BYTES), launches=2 if way == "all_to_all" else 1)
    if numerics.fused_experts and local.experts.n_ranks > 1:
        forward, back = (Stream(placing),), Stream(sent * (INDEX_BYTES + 2 * FP32_BYTES))
    return Operator(
        name="permute",
        phases={"forward": forward, "input_gradient": (back,)},
        saved_bytes=tokens * experts.n_experts * MAP_BYTES + sent * INDEX_BYTES,
    )


def _unpermute(model: TransformerShape, local: LocalShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the sum of what each token's experts gave, and backward the gradient of the sum copied to each of its terms."""
    sent, e = share.dispatched_rows, numerics.elementwise_bytes
    if numerics.fused_experts and share.n_ranks > 1:
        return Operator(name="unpermute")
    forward = (sent + local.sequence_rows) * model.hidden_size * e + sent * INDEX_BYTES
    backward = 2.0 * sent * model.hidden_size * e + sent * INDEX_BYTES
    return Operator(name="unpermute", phases={"forward": (Stream(forward),), "input_gradient": (Stream(backward),)})


def _sort(name: str, model: TransformerShape, share: ExpertShare, numerics: Numerics) -> Operator:
    rows = share.received_rows
    kernel = Stream(2.0 * rows * (model.hidden_size * numerics.elementwise_bytes + FP32_BYTES), launches=2)
    return Operator(name=name, phases={"forward": (kernel,), "input_gradient": (kernel,)})


def _routed(model: TransformerShape, experts: Experts, share: ExpertShare, numerics: Numerics, *, needless: bool) -> tuple[Operator, ...]:
    """Return the products of the experts of this rank with the activation between them."""
    width, n_up = share.intermediate_size, 2 if model.gated_mlp else 1
    apart, fused = experts.bias and not numerics.fused_experts, numerics.fused_experts
    up = GroupShape(rows=share.rows, inputs=model.hidden_size, outputs=n_up * width, bias=experts.bias, cast_gradient=not fused)
    down = GroupShape(rows=share.rows, inputs=width, outputs=model.hidden_size, bias=experts.bias and fused, cast_rows=not fused)
    joined = () if numerics.grouped_experts or share.n_local == 1 else (_joined(model, share, numerics),)
    padded = numerics.casts_weights and numerics.grouped_experts and not (fused or numerics.router_padding)
    return (
        *((_padding("experts_pad", model, share, numerics),) if padded else ()),
        grouped_linear("experts_up", up, numerics),
        _joined_activation(model, share, numerics) if fused else _scaled_activation(model, experts, share, numerics),
        replace(grouped_linear("experts_down", down, numerics), needless=needless),
        *((replace(_second_bias(model, share, numerics), needless=needless),) if apart else ()),
        *(replace(each, needless=needless) for each in joined),
        *((replace(_padding("experts_unpad", model, share, numerics), needless=needless),) if padded else ()),
    )


def _padding(name: str, model: TransformerShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the copy of rows that makes those of each expert a multiple of 16 or 32, or undoes it, and the same of their gradients.

    References
    ----------
    .. [1] NVIDIA, *Transformer Engine*, ``pytorch/module/fp8_padding.py``, which ``TEGroupedMLP`` of Megatron-Core calls in fp8.
    """
    copied = Stream(2.0 * share.received_rows * model.hidden_size * numerics.element_bytes)
    return Operator(name=name, phases={"forward": (copied,), "input_gradient": (copied,)})


def _second_bias(model: TransformerShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the addition of the second bias, times the score of each row, as rows are multiplied by it before; scores are fp32.

    Kept are the scores, which the activation keeps too, and nothing else.
    """
    elements, e, n_used = share.received_rows * model.hidden_size, numerics.element_bytes, sum(1 for rows in share.rows if rows)
    # Besides, rows are read (mixed) and written in their own precision; backward gradients are read (mixed), written and joined.
    forward_bytes, backward_bytes = elements * (BIAS_PASSES[0] + 3 * e), elements * (BIAS_PASSES[1] + 5 * e)
    (each, once), (each_back, once_back) = BIAS_LAUNCHES
    return Operator(
        name="experts_bias",
        phases={
            "forward": (Stream(forward_bytes, launches=each * n_used + once, one_call=True),),
            "input_gradient": (Stream(backward_bytes, launches=each_back * n_used + once_back, one_call=True),),
        },
        expert=True,
        parameters=float(share.n_local * model.hidden_size),
    )


def _joined_activation(model: TransformerShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the activation, limits, scores and cast at the end of the first product, and its gradient at the end of another.

    The product writes its own result, for the backward pass, and what the activation makes of it; its gradient reads that result again.
    """
    elements, e = share.received_rows * share.intermediate_size, numerics.element_bytes
    kept = elements * (2.0 if model.gated_mlp else 1.0) * e
    scores = share.received_rows * FP32_BYTES
    return Operator(
        name="expert_activation",
        phases={
            "forward": (Stream(elements * numerics.gemm_element_bytes + scores, launches=0),),
            "input_gradient": (Stream(kept + 2.0 * scores, launches=0),),
        },
        saved_bytes=kept + scores,
    )


def _joined(model: TransformerShape, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the copy of the outputs of sequential experts into one tensor, and of the gradients of their inputs."""
    copied = Stream(2.0 * share.received_rows * model.hidden_size * numerics.element_bytes)
    return Operator(name="experts_join", phases={"forward": (copied,), "input_gradient": (copied,)})


def _scaled_activation(model: TransformerShape, experts: Experts, share: ExpertShare, numerics: Numerics) -> Operator:
    """Return the activation times the scores of the rows: one pass if fused, another pass in each direction otherwise.

    Limits are kernels of their own before it: one for each half, and one that joins the halves again; backward one for each half, and
    one that joins their gradients. What they make is kept besides what they take. Hosts await a copy that Megatron-Core issues next.
    """
    rows, elements = share.received_rows, share.received_rows * share.intermediate_size
    plain = activation(model, numerics, rows=rows, width=share.intermediate_size, name="expert_activation")
    scores = rows * FP32_BYTES
    passes = 0.0 if numerics.kernels == "fused" else elements * numerics.elementwise_bytes
    more = Stream(scores + 2.0 * passes, launches=0 if numerics.kernels == "fused" else 1)
    back = Stream(2.0 * scores + 3.0 * passes, launches=0 if numerics.kernels == "fused" else 2)
    halves = elements * (2.0 if model.gated_mlp else 1.0) * numerics.elementwise_bytes if experts.clamped else 0.0
    limits = (Stream(4.0 * halves, launches=3, awaited=True),) if experts.clamped else ()
    limits_back = (Stream(5.0 * halves, launches=3),) if experts.clamped else ()
    return replace(
        plain,
        phases={
            **plain.phases,
            "forward": (*limits, *plain.kernels("forward"), more),
            "input_gradient": (back, *plain.kernels("input_gradient"), *limits_back),
        },
        saved_bytes=plain.saved_bytes + scores + halves,
        selective_bytes=halves,
    )


def _shared(model: TransformerShape, experts: Experts, local: LocalShape, numerics: Numerics, *, needless: bool) -> tuple[Operator, ...]:
    """Return an MLP for all tokens, whose input the router stores, with its gate and the addition of its result."""
    width, n_up = local.shared_size, 2 if model.gated_mlp else 1
    elements, e = local.sequence_rows * model.hidden_size, numerics.elementwise_bytes
    up = replace(gathered_input(model.hidden_size, n_up * width, local, bias=model.mlp_bias), saved_rows=0)
    down = scattered_result(width, model.hidden_size, local, bias=model.mlp_bias)
    gate = (_gate(model, local, numerics),) if experts.shared_gate else ()
    added = Stream(3.0 * elements * e)
    return (
        replace(linear("shared_up", up, numerics), column=True),
        activation(model, numerics, rows=local.rows, width=width, name="shared_activation"),
        replace(linear("shared_down", down, numerics), needless=needless and not experts.shared_gate, row=True),
        *gate,
        Operator(name="shared_add", phases={"forward": (added,), "input_gradient": (added,)}, needless=needless),
    )


def _gate(model: TransformerShape, local: LocalShape, numerics: Numerics) -> Operator:
    """Return one logit per token, its sigmoid, and the product with the output of the shared experts."""
    rows, e = local.sequence_rows, numerics.elementwise_bytes
    shape = LinearShape(rows=rows, inputs=model.hidden_size, outputs=1, bias=False, saved_rows=0)
    product = linear("shared_gate", shape, replace(numerics, gemm_element_bytes=numerics.element_bytes))
    elements = rows * model.hidden_size
    return replace(
        product,
        phases={
            **product.phases,
            "forward": (*product.kernels("forward"), Stream(2.0 * elements * e, launches=2)),
            "input_gradient": (Stream(3.0 * elements * e, launches=3), *product.kernels("input_gradient")),
        },
        saved_bytes=elements * e,
    )
