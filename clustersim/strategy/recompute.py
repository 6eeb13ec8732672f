"""Selective recomputation: which operators a backward pass repeats, and what is therefore not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType
from typing import Final

from clustersim.strategy.plan import Plan, RecomputeModule
from clustersim.workload.operators import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A part of a layer that can be recomputed by itself, by the names of operators."""

    repeats: tuple[str, ...]
    drops: tuple[str, ...]
    """Operators whose inputs are results of what is repeated, and are not kept."""
    needs: str = ""
    """An operator that only layers with such a part have; without it nothing is repeated or dropped."""


_NORMS: Final = ("norm_1", "norm_2")
_PROJECTED: Final = ("qkv", "q", "q_down", "kv_down", "mlp_up", "router", "shared_up")
_LATENT: Final = ("q_norm", "kv_norm", "q_up", "kv_up", "rotary")
_SHARED: Final = ("shared_up", "shared_activation", "shared_down", "shared_gate", "shared_add")
_EXPERTS: Final = ("experts_up", "expert_activation", "experts_down", "experts_bias", "experts_join")
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
"""What Megatron-Core's ``recompute_modules`` name: ``core_attn, layernorm, mlp_act and moe_act, mla_up_proj, mlp, shared_experts, moe``.

Of the core of attention what is kept for its own backward pass is dropped (``selective_bytes``); of everything else the inputs of what
follows.
"""


def repeated(plan: Plan, operators: Sequence[Operator]) -> list[Operator]:
    """Return which operators of half a layer selective recomputation repeats; what ``keeps_nothing`` is repeated with its communication."""
    if plan.strategy.recompute != "selective":
        return []
    modules: list[RecomputeModule] = [name for name in plan.strategy.recompute_modules if name != "experts"]
    chosen = {name for module in _active(modules, operators) for name in module.repeats}
    return [operator for operator in operators if operator.name in chosen]


def keeps_nothing(plan: Plan, half: str) -> bool:
    """Return whether all experts of a layer are repeated, the sending of tokens included."""
    return half == "moe" and plan.strategy.recompute == "selective" and "experts" in plan.strategy.recompute_modules


def kept_bytes(plan: Plan, operators: Sequence[Operator]) -> float:
    """Return what operators keep for the backward pass under selective recomputation.

    An operator whose input is made again keeps what it made itself, unless it is repeated too.
    """
    modules = _active(plan.strategy.recompute_modules, operators)
    dropped = {name for module in modules for name in module.drops}
    again = {name for module in modules for name in module.repeats}

    def kept(operator: Operator) -> float:
        inputs = 0.0 if operator.name in dropped else operator.saved_bytes - operator.selective_bytes
        return inputs + (0.0 if operator.name in again else operator.selective_bytes)

    return fsum(kept(operator) for operator in operators)


def repeated_flops(plan: Plan, operators: Sequence[Operator]) -> float:
    """Return the matrix FLOPs that selective recomputation repeats of some operators."""
    chosen = {name for module in _active(plan.strategy.recompute_modules, operators) for name in module.repeats}
    return fsum(operator.forward_flops for operator in operators if operator.name in chosen)


def _active(modules: Sequence[RecomputeModule], operators: Sequence[Operator]) -> list[Module]:
    """Return the modules that some operators have."""
    names = {operator.name for operator in operators}
    return [MODULES[name] for name in modules if not MODULES[name].needs or MODULES[name].needs in names]
