"""The work of a model in inference: products, attention and experts of each kind of layer, as one rank has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from clustersim.errors import DomainError
from clustersim.units.divisors import divisors, listed
from clustersim.units.grouping import grouped
from clustersim.workloads.layer import divides_heads, heads_text, local_heads
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Gemm, Operator, Stream
from clustersim.workloads.shapes import COUNTING, ExpertShare, LocalShape
from clustersim.workloads.transformer_shape import LayerKind

ELEMENT_BYTES: Final = 2.0
"""Activations between kernels stay in 16 bits."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer on one rank: (rows, inputs) times (inputs, outputs)."""

    name: str
    outputs: int
    inputs: int

    @property
    def parameters(self) -> float:
        """Weights of this rank."""
        return float(self.outputs) * self.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWork:
    """Attention of a layer on one rank, or the state that it has in place of attention."""

    window: int | None
    """Tokens that a query sees at most; a state is as one."""
    cache_elements: int = 0
    """Numbers that the cache of this rank has for one token of one layer; a latent vector is not divided."""
    matrix_elements: int = 0
    """Numbers in the matrices of the state of one sequence in one layer."""
    convolution_elements: int = 0
    """Numbers that the convolution keeps of one sequence in one layer."""
    decode_flops: float
    """FLOPs of one new token for each cached one; latent attention multiplies in the latent space."""
    prefill_flops: float
    """FLOPs of one pair of query and key in prefill, which has whole heads also where attention is latent; of a state for one token."""
    moved_elements: float
    """Numbers that a query of prefill reads and writes: itself and its result, its key and value."""
    latent: bool = False

    @property
    def heads_of_a_group(self) -> float:
        """Query heads that share a head of keys and values; 1 of a state."""
        return self.decode_flops / (2.0 * self.cache_elements) if self.cache_elements else 1.0

    def state_bytes(self, element_bytes: float) -> float:
        """Return the state of one sequence in one layer, in bytes; numbers of its matrices have as many as the engine gives them."""
        return self.matrix_elements * element_bytes + self.convolution_elements * ELEMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """Routed experts of a layer on one rank."""

    n_experts: int
    n_local: int
    top_k: int
    hidden: int
    width: int
    """Intermediate width of an expert on this rank."""
    n_matrices: int
    """Three with a gate, two without."""

    @property
    def parameters_each(self) -> float:
        """Weights of one expert on this rank."""
        return float(self.n_matrices) * self.hidden * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceLayer:
    """Layers of one kind, as one rank of a tensor-parallel group has them."""

    n_layers: int
    projections: tuple[Projection, ...]
    """Projections of attention and of an MLP or shared experts."""
    attention: AttentionWork
    router: Projection | None
    experts: ExpertWork | None
    stream_elements: float
    """Numbers that kernels between the products read and write for one token."""
    n_streams: int
    """Kernels between the products."""
    n_row_split: int
    """Places of tensor-parallel sums: after attention and after the MLP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceWork:
    """A model on one rank: kinds of layers, and the logits."""

    layers: tuple[InferenceLayer, ...]
    logits: Projection
    embedding_parameters: float
    """Token table of this rank."""
    tied: bool
    """Whether the logits share the token table."""
    hidden: int

    @property
    def n_layers(self) -> int:
        """All layers."""
        return sum(layer.n_layers for layer in self.layers)

    def state_bytes(self, element_bytes: float) -> float:
        """Return the states of one sequence in all layers on one rank, in bytes."""
        return sum(layer.n_layers * layer.attention.state_bytes(element_bytes) for layer in self.layers)

    def cache_elements(self) -> float:
        """Return the numbers that the cache of one rank has for one token of all layers."""
        return float(sum(layer.n_layers * layer.attention.cache_elements for layer in self.layers))


def inference_work(model: Model, *, tp: int, expert_tp: int, ep: int, copies: int = 0) -> InferenceWork:
    """Return the work of one rank in inference, taken from the operators of the model's forward pass.

    Prefill and decode have the same products; they differ in rows, and in what attention does (:class:`AttentionWork`). With absorbed up
    projections latent attention reads the same weights in decode as in prefill.

    Parameters
    ----------
    tp
        Ranks that divide attention, MLP and vocabulary.
    expert_tp, ep
        Ranks that divide each expert, and ranks among which experts are spread.
    copies
        Copies of experts beside the experts themselves.

    Raises
    ------
    DomainError
        The model is no decoder, or its sizes do not divide.
    """
    model = model.decoder()
    _check_divides(model.n_heads, tp, "attention heads", "tp")
    if model.latent is None and model.n_kv_heads % tp and tp % model.n_kv_heads:
        good = [degree for degree in divisors(model.n_heads) if model.n_kv_heads % degree == 0 or degree % model.n_kv_heads == 0]
        raise DomainError(f"tp: {tp} ranks cannot share {model.n_kv_heads} key heads evenly", path=("tp",), hint=f"use {listed(good)}")
    if model.linear is not None and not divides_heads(model.linear, tp):
        good = [degree for degree in divisors(model.n_heads) if divides_heads(model.linear, degree)]
        raise DomainError(f"tp: {heads_text(model.linear, tp)}", path=("tp",), hint=f"use {listed(good)}")
    local = _local_shape(model, tp=tp, expert_tp=expert_tp, ep=ep, copies=copies)
    kinds = grouped((model.layer_kind(layer), layer) for layer in range(model.n_layers))
    (logits,) = (_projection(operator) for operator in model.head(local, COUNTING) if operator.role == "logits")
    return InferenceWork(
        layers=tuple(_layer(model, layers, local) for layers in kinds.values()),
        logits=logits,
        embedding_parameters=float(local.vocab_size) * model.hidden_size,
        tied=model.tied_parameters(local) > 0.0,
        hidden=model.hidden_size,
    )


def _local_shape(model: Model, *, tp: int, expert_tp: int, ep: int, copies: int) -> LocalShape:
    experts = None
    if model.experts is not None:
        n_placed = model.experts.n_experts + copies
        _check_divides(n_placed, ep, "experts and their copies" if copies else "experts", "ep")
        n_local = n_placed // ep
        width = ceil(model.experts.intermediate_size / expert_tp)
        experts = ExpertShare(rows=(1,) * n_local, intermediate_size=width, dispatched_rows=model.experts.top_k)
    return model.token_shape(tp, experts)


def _layer(model: Model, layers: list[int], local: LocalShape) -> InferenceLayer:
    first = layers[0]
    sublayers, kind = model.sublayers(first, local, COUNTING), model.layer_kind(first)
    halves = [sublayer.experts for sublayer in sublayers if sublayer.experts is not None]
    whole = [operator for sublayer in sublayers if sublayer.experts is None for operator in sublayer.operators]
    whole += [operator for half in halves for operator in (*half.norm, *half.shared, *half.residual)]
    # Engines run each as one kernel; the residual additions are part of the norms.
    between = [(operator.role, streams) for operator in whole if (streams := _streams(operator))]
    experts = None
    if kind.experts and model.experts is not None and local.experts is not None:
        experts = ExpertWork(
            n_experts=model.experts.n_experts,
            n_local=local.experts.n_local,
            top_k=model.experts.top_k,
            hidden=model.hidden_size,
            width=local.experts.intermediate_size,
            n_matrices=3 if model.gated_mlp else 2,
        )
    return InferenceLayer(
        n_layers=len(layers),
        projections=_joined(_products(whole)),
        attention=_attention(model, kind, local),
        router=next((_projection(operator) for half in halves for operator in half.router), None),
        experts=experts,
        stream_elements=sum(each.traffic_bytes for _, streams in between for each in streams) / ELEMENT_BYTES,
        n_streams=sum(1 for role, _ in between if role != "residual"),
        n_row_split=2,
    )


def _attention(model: Model, kind: LayerKind, local: LocalShape) -> AttentionWork:
    if kind.linear and model.linear is not None:
        state = local_heads(model.linear, model.n_heads // local.n_heads)
        return AttentionWork(
            window=1,
            matrix_elements=state.matrix_elements,
            convolution_elements=state.convolution_elements,
            decode_flops=state.recurrent_flops,
            prefill_flops=state.chunk_flops,
            moved_elements=state.mixed_width + state.n_value_heads * state.value_dim,
        )
    latent, n_kv_heads = model.latent, local.n_kv_heads
    width = (model.head_dim if latent is None else latent.qk_head_dim) + model.value_dim
    return AttentionWork(
        window=model.window.tokens if kind.windowed and model.window is not None else None,
        cache_elements=n_kv_heads * width if latent is None else latent.down_width,
        decode_flops=2.0 * local.n_heads * (width if latent is None else latent.down_width + latent.kv_lora_rank),
        prefill_flops=2.0 * local.n_heads * width,
        moved_elements=(local.n_heads + n_kv_heads) * width,
        latent=latent is not None,
    )


def _streams(operator: Operator) -> list[Stream]:
    """Return the forward kernels of an operator between products; none of a product or of attention."""
    kernels = operator.kernels("forward")
    streams = [kernel for kernel in kernels if isinstance(kernel, Stream)]
    return streams if len(streams) == len(kernels) else []


def _products(operators: Iterable[Operator]) -> list[Operator]:
    weighted = (operator for operator in operators if operator.weight_product is not None)
    return [operator for operator in weighted if any(isinstance(kernel, Gemm) for kernel in operator.kernels("forward"))]


def _projection(operator: Operator) -> Projection:
    gemm = next(kernel for kernel in operator.kernels("forward") if isinstance(kernel, Gemm))
    return Projection(operator.name, gemm.n, gemm.k)


def _joined(products: Iterable[Operator]) -> tuple[Projection, ...]:
    """Return the projections of products; those that read the same input into latent vectors are one, as engines have them [1]_.

    References
    ----------
    .. [1] deepseek-ai/DeepGEMM, README.md of February 2025: 2,112 = 1,536 + 576 columns among the shapes of DeepSeek-V3 in inference.
    """
    found: dict[str, Projection] = {}
    for product in products:
        key, each = product.role if product.role == "latent_down" else product.name, _projection(product)
        found[key] = replace(found[key], outputs=found[key].outputs + each.outputs) if key in found else each
    return tuple(found.values())


def _check_divides(size: int, degree: int, of: str, key: str) -> None:
    if size % degree:
        raise DomainError(f"{key}: {degree} does not divide {size} {of}", path=(key,), hint=f"use a divisor of {size}")
