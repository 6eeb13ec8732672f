"""Recomputation that keeps every second product and attention, and repeats all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import fsum

from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import local_shape, numerics
from clustersim.workload.operators import Gemm, Kernel, Operator


def product_widths(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Return the columns of the products of a layer on one rank, in forward order, by the operator that holds them."""
    model, local = plan.model, local_shape(plan)
    kv_width = local.n_kv_heads * model.head_dim
    up_widths = (local.intermediate_size,) * (2 if model.gated_mlp else 1)
    return {
        "qkv": (local.n_heads * model.head_dim, kv_width, kv_width),
        "projection": (model.hidden_size,),
        "mlp_up": up_widths,
        "mlp_down": (model.hidden_size,),
    }


def repeated_shares(plan: Plan) -> dict[str, float]:
    """Return which share of each operator with products is repeated: the second, fourth and sixth product of the layer.

    References
    ----------
    .. [1] PyTorch torchtitan, ``parallelize_llama.py`` of 2024-12: ``selective_ac_option`` "op" keeps the results of attention, of
       reduce-scatters and of every second ``mm``.
    """
    number = count(1)
    shares: dict[str, float] = {}
    for name, widths in product_widths(plan).items():
        shares[name] = sum(width for width in widths if next(number) % 2 == 0) / sum(widths)
    return shares


def repeated_operators(plan: Plan, operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Return operators that recompute what the backward pass repeats of each; one of which nothing is repeated has no such kernels."""
    shares = repeated_shares(plan)
    return tuple(_reduced(operator, 0.0 if operator.role == "core_attention" else shares.get(operator.name, 1.0)) for operator in operators)


def alternate_bytes(plan: Plan, operators: Sequence[Operator], input_bytes: float) -> float:
    """Return what one layer keeps of a micro-batch: its input, the other products, and attention's output with its statistics."""
    model, local, shares = plan.model, local_shape(plan), repeated_shares(plan)
    columns = fsum((1.0 - shares[name]) * sum(widths) for name, widths in product_widths(plan).items()) + local.n_heads * model.head_dim
    statistics_bytes = fsum(operator.selective_bytes for operator in operators)
    return input_bytes + local.rows * columns * numerics(plan).element_bytes + statistics_bytes


def _reduced(operator: Operator, share: float) -> Operator:
    if share == 1.0:
        return operator
    again = tuple(_narrowed(kernel, share) for kernel in operator.kernels("forward")) if share > 0.0 else ()
    return replace(operator, phases={**operator.phases, "recompute": again}, forward_flops=share * operator.forward_flops)


def _narrowed(kernel: Kernel, share: float) -> Kernel:
    return replace(kernel, n=round(kernel.n * share)) if isinstance(kernel, Gemm) else kernel
