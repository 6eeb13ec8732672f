"""Recomputation: operators that a backward pass repeats, and activations that are therefore not stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import fsum
from types import MappingProxyType
from typing import ClassVar, Final

from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.stages import ModelChunk
from clustersim.parallel.training_plan import RecomputeModule, Strategy
from clustersim.workloads.operators import Gemm, Kernel, Operator


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A kind of recomputation; this one repeats nothing and stores everything."""

    by_layer: ClassVar[bool] = False
    """Whether a layer is repeated before its backward pass, and not each sublayer before its own."""

    def repeated(self, local: LocalModel, operators: Sequence[Operator]) -> tuple[Operator, ...]:
        """Return the operators of a layer or of a sublayer that are repeated, with their kernels of the phase ``recompute``."""
        return ()

    def kept_bytes(self, local: LocalModel, layer: int, operators: Sequence[Operator]) -> float:
        """Return the activations that a layer with these operators stores for a micro-batch, in bytes."""
        return fsum(operator.saved_bytes for operator in operators)


@dataclass(frozen=True, slots=True)
class FullRecomputation(Recomputation):
    """Recomputation of whole layers from their stored input: to their end, or without the operators whose results are not needed."""

    by_layer = True
    stops_early: bool

    def repeated(self, local: LocalModel, operators: Sequence[Operator]) -> tuple[Operator, ...]:
        """Return all operators, or those whose results the backward pass needs."""
        return tuple(operator for operator in operators if not (self.stops_early and operator.needless))

    def kept_bytes(self, local: LocalModel, layer: int, operators: Sequence[Operator]) -> float:
        """Return the input."""
        return local.layer_input_bytes(layer)


@dataclass(frozen=True, slots=True)
class SelectiveRecomputation(Recomputation):
    """Recomputation of the operators of some modules of a layer."""

    modules: tuple[RecomputeModule, ...]

    def repeated(self, local: LocalModel, operators: Sequence[Operator]) -> tuple[Operator, ...]:
        """Return the operators of the modules."""
        chosen = {name for module in _active(self.modules, operators) for name in module.repeats}
        return tuple(operator for operator in operators if operator.name in chosen)

    def kept_bytes(self, local: LocalModel, layer: int, operators: Sequence[Operator]) -> float:
        """Return the stored tensors; an operator whose input is recomputed stores its output, unless it is repeated too."""
        modules = _active(self.modules, operators)
        dropped = {name for module in modules for name in module.drops}
        again = {name for module in modules for name in module.repeats}

        def kept(operator: Operator) -> float:
            inputs = 0.0 if operator.name in dropped else operator.saved_bytes - operator.selective_bytes
            return inputs + (0.0 if operator.name in again else operator.selective_bytes)

        return fsum(kept(operator) for operator in operators)


@dataclass(frozen=True, slots=True)
class AlternateRecomputation(Recomputation):
    """Recomputation of all but attention and every second product of a layer."""

    by_layer = True

    def repeated(self, local: LocalModel, operators: Sequence[Operator]) -> tuple[Operator, ...]:
        """Return the operators of which something is repeated, with as much of their products."""
        shares = repeated_shares(local)
        again = (_reduced(each, 0.0 if each.role == "core_attention" else shares.get(each.name, 1.0)) for each in operators)
        return tuple(operator for operator in again if not operator.needless and operator.kernels("recompute"))

    def kept_bytes(self, local: LocalModel, layer: int, operators: Sequence[Operator]) -> float:
        """Return the input, the other products, and attention's output with its statistics."""
        shares = repeated_shares(local)
        columns = fsum((1.0 - shares[name]) * sum(widths) for name, widths in product_widths(local).items())
        columns += local.whole.n_heads * local.model.head_dim
        statistics_bytes = fsum(operator.selective_bytes for operator in operators)
        return local.layer_input_bytes(layer) + local.whole.rows * columns * local.numerics.element_bytes + statistics_bytes


def recomputation_of(strategy: Strategy) -> Recomputation:
    """Return the recomputation of a strategy."""
    match strategy.recompute:
        case "none":
            return Recomputation()
        case "selective":
            return SelectiveRecomputation(strategy.recompute_modules)
        case "alternate":
            return AlternateRecomputation()
        case "full":
            return FullRecomputation(strategy.recompute_stops_early)


def recomputed_layers(strategy: Strategy, chunk: ModelChunk) -> int:
    """Return how many layers of a chunk, from its first, recomputation covers."""
    most = strategy.recompute_layers
    return chunk.n_layers if most is None or strategy.recompute != "full" else min(chunk.n_layers, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A part of a layer that can be recomputed alone, by the names of operators."""

    repeats: tuple[str, ...]
    drops: tuple[str, ...]
    """Operators whose inputs are recomputed and not stored."""
    needs: str = ""
    """An operator that only layers with such a part have; without it nothing is repeated or dropped."""


_NORMS: Final = ("norm_1", "norm_2")
_PROJECTED: Final = ("qkv", "q", "q_down", "kv_down", "mlp_up", "router", "shared_up")
_LATENT: Final = ("q_norm", "kv_norm", "q_up", "kv_up", "rotary")
_SHARED: Final = ("shared_up", "shared_activation", "shared_down", "shared_gate", "shared_add")
_EXPERTS: Final = ("experts_pad", "experts_up", "expert_activation", "experts_down", "experts_bias", "experts_join", "experts_unpad")
_ROUTED: Final = ("permute", "expert_sort", *_EXPERTS, "expert_unsort", "unpermute")

MODULES: Final[Mapping[RecomputeModule, Module]] = MappingProxyType(
    {
        "core_attention": Module(repeats=("attention",), drops=()),
        "norms": Module(repeats=_NORMS, drops=_PROJECTED),
        "activations": Module(
            repeats=("activation", "expert_activation", "shared_activation"), drops=("mlp_down", "experts_down", "shared_down")
        ),
        "latent_projections": Module(repeats=_LATENT, drops=("q_up", "kv_up", "attention"), needs="kv_up"),
        "mlp": Module(repeats=("mlp_up", "activation"), drops=("activation", "mlp_down"), needs="mlp_up"),
        "shared_experts": Module(repeats=_SHARED[:2], drops=_SHARED[1:3], needs="shared_up"),
        "experts": Module(repeats=("router", *_ROUTED, *_SHARED), drops=(*_ROUTED, *_SHARED), needs="experts_up"),
    }
)
"""Modules of Megatron-Core's ``recompute_modules``: ``core_attn, layernorm, mlp_act and moe_act, mla_up_proj, mlp, shared_experts, moe``.

Of the core of attention what is kept for its own backward pass is dropped (``selective_bytes``); of everything else the inputs of what
follows.
"""


def product_widths(local: LocalModel) -> dict[str, tuple[int, ...]]:
    """Return the columns of the products of a layer on one rank, in forward order, by the operator that holds them."""
    model, shape = local.model, local.whole
    kv_width = shape.n_kv_heads * model.head_dim
    up_widths = (shape.intermediate_size,) * (2 if model.gated_mlp else 1)
    return {
        "qkv": (shape.n_heads * model.head_dim, kv_width, kv_width),
        "projection": (model.hidden_size,),
        "mlp_up": up_widths,
        "mlp_down": (model.hidden_size,),
    }


def repeated_shares(local: LocalModel) -> dict[str, float]:
    """Return which share of each operator with products is repeated: the second, fourth and sixth product of the layer.

    References
    ----------
    .. [1] PyTorch torchtitan, ``parallelize_llama.py`` of 2024-12: ``selective_ac_option`` "op" keeps the results of attention, of
       reduce-scatters and of every second ``mm``.
    """
    number = count(1)
    shares: dict[str, float] = {}
    for name, widths in product_widths(local).items():
        shares[name] = sum(width for width in widths if next(number) % 2 == 0) / sum(widths)
    return shares


def _reduced(operator: Operator, share: float) -> Operator:
    if share == 1.0:
        return operator
    again = tuple(_narrowed(kernel, share) for kernel in operator.kernels("forward")) if share > 0.0 else ()
    return replace(operator, phases={**operator.phases, "recompute": again}, forward_flops=share * operator.forward_flops)


def _narrowed(kernel: Kernel, share: float) -> Kernel:
    return replace(kernel, n=round(kernel.n * share)) if isinstance(kernel, Gemm) else kernel


def _active(modules: Sequence[RecomputeModule], operators: Sequence[Operator]) -> list[Module]:
    """Return the modules that some operators have."""
    names = {operator.name for operator in operators}
    return [MODULES[name] for name in modules if not MODULES[name].needs or MODULES[name].needs in names]
