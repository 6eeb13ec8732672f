"""Low-rank adapters: linear layers whose weights are frozen, and two small products beside them that are trained in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from clustersim.workloads.experts import GroupShape, grouped_linear
from clustersim.workloads.linear import LinearShape, linear
from clustersim.workloads.operators import Gemm, GroupedGemm, KernelPhase, Operator, Stream
from clustersim.workloads.shapes import LocalShape, Numerics

AdaptedLayer = Literal["q", "k", "v", "qkv", "output", "gate", "up", "gate_up", "down"]
"""Linear layers of a transformer layer that may have an adapter, each by itself or, as ``qkv`` and ``gate_up``, one for all."""

FrozenPrecision = Literal["same", "nf4"]
"""Format of frozen weights: that of trained ones, or 4 bits."""

JOINT: Final[Mapping[AdaptedLayer, tuple[AdaptedLayer, ...]]] = MappingProxyType({"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")})
"""Layers that one adapter covers together."""

NF4_BYTES: Final = 4.127 / 8
"""Bytes of a weight in NF4 with its scales: 4 bits, and 0.127 for a scale of 8 bits for 64 weights, scaled anew in 256 [1]_.

References
----------
.. [1] T. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023, section 3 (double quantization).
"""

SUM_PASSES: Final = 3.0
"""Reads and writes of the sum of what layer and adapter give, or of the gradients that they send back."""

SCALE_PASSES: Final = 2.0
"""The same of the scale of an adapter, a kernel of its own each way where nothing is fused (Hugging Face PEFT, ``lora/layer.py``)."""

_INPUT_SHARED: Final = ("projection", "router")
"""Layers whose input others keep too: attention needs its result, and the rows of experts come from those of the router."""

_UP: Final = ("mlp_up", "shared_up", "experts_up")
_WHOLE: Final[Mapping[str, tuple[AdaptedLayer, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("q", "q_down", "q_up"), ("q", "qkv")),
        **dict.fromkeys(("kv_down", "kv_up"), ("k", "v", "qkv")),
        "projection": ("output",),
        **dict.fromkeys(("mlp_down", "shared_down", "experts_down"), ("down",)),
    }
)
"""Operators with one adapter for all of their columns, by the names that ask for it; the products of latent attention are such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters of one rank and the layers that have one; everything else of a model is frozen.

    References
    ----------
    .. [1] E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.
    """

    rank: int
    layers: tuple[AdaptedLayer, ...]
    precision: FrozenPrecision

    def adapted(self, operator: Operator, local: LocalShape, numerics: Numerics, *, gated: bool) -> Operator:
        """Return an operator frozen, with the products of its adapters where it has some.

        A kernel adds what they give to the result; backward another adds the two gradients of the input. Each adapter keeps the input of
        the layer, as it was before any cast, and the result of its first product.
        """
        base, shares = self.frozen(operator, numerics), self._shares(operator.name, local, gated=gated)
        product = next((kernel for kernel in operator.kernels("forward") if isinstance(kernel, Gemm | GroupedGemm)), None)
        if not shares or product is None:
            return base
        pairs = [self._pair(operator, product, round(product.n * share), local, numerics) for share in shares]
        n_rows, e = sum(_rows(operator, product, local)), numerics.elementwise_bytes
        changed, scale = n_rows * product.n * sum(shares) * e, SCALE_PASSES if numerics.kernels == "eager" else 0.0
        scaled = (Stream(scale * changed, launches=len(pairs)),) if scale else ()
        added = Stream(SUM_PASSES * changed, launches=len(pairs))
        added_back = Stream(SUM_PASSES * len(pairs) * n_rows * product.k * e, launches=len(pairs))
        kernels = {phase: tuple(kernel for a, b in pairs for kernel in a.kernels(phase) + b.kernels(phase)) for phase in _PHASES}
        input_gradients = tuple(kernel for a, b in pairs for kernel in b.kernels("input_gradient") + a.kernels("input_gradient"))
        inputs_bytes = operator.saved_bytes * (1.0 if operator.name in _INPUT_SHARED else numerics.element_bytes / product.element_bytes)
        return replace(
            base,
            phases={
                "forward": (*base.kernels("forward"), *kernels["forward"], *scaled, added),
                "input_gradient": (*scaled, *input_gradients, *base.kernels("input_gradient"), added_back),
                "weight_gradient": kernels["weight_gradient"],
            },
            parameters=sum(each.parameters for pair in pairs for each in pair),
            saved_bytes=inputs_bytes + sum(b.saved_bytes for _, b in pairs),
            forward_flops=base.forward_flops + sum(each.forward_flops for pair in pairs for each in pair),
        )

    def frozen(self, operator: Operator, numerics: Numerics) -> Operator:
        """Return an operator without gradients of its weights, for which a linear layer need not keep its input.

        Weights of linear layers in 4 bits, those of the output head aside, are written in full before each product [1]_.

        References
        ----------
        .. [1] T. Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023, equations 5 and 6.
        """
        phases = {phase: kernels for phase, kernels in operator.phases.items() if phase != "weight_gradient"}
        is_linear, kept = operator.weight_product is not None, operator.parameters
        if is_linear and operator.role != "logits" and self.precision == "nf4":
            full = Stream(operator.parameters * (NF4_BYTES + numerics.element_bytes))
            phases = {phase: (full, *kernels) for phase, kernels in phases.items()}
            kept *= NF4_BYTES / numerics.element_bytes
        return replace(
            operator,
            phases=phases,
            parameters=0.0,
            frozen=kept,
            frozen_flops=operator.forward_flops if is_linear else 0.0,
            saved_bytes=0.0 if is_linear and operator.name not in _INPUT_SHARED else operator.saved_bytes,
        )

    def _shares(self, name: str, local: LocalShape, *, gated: bool) -> tuple[float, ...]:
        """Return the share of the columns of a linear layer that each of its adapters is for."""
        if name in _WHOLE:
            return (1.0,) if set(_WHOLE[name]) & set(self.layers) else ()
        parts: dict[AdaptedLayer, float] = {}
        if name == "qkv":
            columns = local.n_heads + 2 * local.n_kv_heads
            parts = {"q": local.n_heads / columns, "k": local.n_kv_heads / columns, "v": local.n_kv_heads / columns}
        elif name in _UP:
            parts = {"gate": 0.5, "up": 0.5} if gated else {"up": 1.0}
        for whole, covered in JOINT.items():
            if whole in self.layers and parts.keys() & set(covered):
                return (1.0,)
        return tuple(share for part, share in parts.items() if part in self.layers)

    def _pair(
        self, operator: Operator, product: Gemm | GroupedGemm, outputs: int, local: LocalShape, numerics: Numerics
    ) -> tuple[Operator, Operator]:
        """Return the products of an adapter, to its rank and from it; of experts one for each."""
        plain, rows = replace(numerics, gemm_element_bytes=numerics.element_bytes), _rows(operator, product, local)
        sizes = ((product.k, self.rank), (self.rank, outputs))
        if operator.expert:
            first, second = (
                grouped_linear("adapter", GroupShape(rows=rows, inputs=inputs, outputs=columns, bias=False), plain)
                for inputs, columns in sizes
            )
        else:
            first, second = (
                linear("adapter", LinearShape(rows=rows[0], inputs=inputs, outputs=columns, bias=False, saved_rows=rows[0]), plain)
                for inputs, columns in sizes
            )
        return first, second


_PHASES: Final[tuple[KernelPhase, ...]] = ("forward", "weight_gradient")


def _rows(operator: Operator, product: Gemm | GroupedGemm, local: LocalShape) -> tuple[int, ...]:
    """Return the rows of a linear layer; of the layers of experts, those of each."""
    if operator.expert and local.experts is not None:
        return local.experts.rows
    return (product.m,) if isinstance(product, Gemm) else product.rows
