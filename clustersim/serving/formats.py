"""Number formats of a served model: which part of it has which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from clustersim.errors import DomainError
from clustersim.hardware.models import Accelerator
from clustersim.hardware.serving_constants import FORMATS, executed_format
from clustersim.workloads.inference import Projection
from clustersim.workloads.model import Model

KV_BYTES: Final[Mapping[str, float]] = MappingProxyType({"bf16": 2.0, "fp16": 2.0, "fp8": 1.0})
"""Bytes of one number in the cache."""

_ATTENTION: Final = frozenset({"qkv", "q_down", "kv_down", "q", "q_up", "kv_up"})
_PLAIN: Final = frozenset({"shared_gate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFormats:
    """Number format of each part of a model."""

    attention: str
    """Number format of the attention projections."""
    linear: str
    """Number format of the MLP and of shared experts."""
    experts: str
    """Number format of routed experts."""
    kv: str
    """Number format of the KV cache: ``bf16`` or ``fp8``."""

    def of(self, projection: Projection) -> str:
        """Return the format of a linear layer."""
        if projection.name in _PLAIN:
            return "bf16"
        return self.attention if projection.name in _ATTENTION else self.linear


def served_formats(model: Model, accelerator: Accelerator, precision: str, kv_precision: str = "bf16") -> ServedFormats:
    """Return the formats of a checkpoint in a precision, as an accelerator executes them.

    DeepSeek-V3 and the mixtures of many narrow experts that follow it are published in fp8 with a scale for each block [3]_ [4]_. Published
    four-bit checkpoints leave some parts in 16 bits: ``mxfp4`` all but the experts [1]_, ``nvfp4`` latent attention but its output [2]_.

    References
    ----------
    .. [1] OpenAI, *gpt-oss-120b & gpt-oss-20b Model Card*, 2025: MoE weights in MXFP4.
    .. [2] NVIDIA, model card of DeepSeek-R1-0528-FP4-v2: ``wo`` of attention is quantised beside experts and MLP.
    .. [3] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2.
    .. [4] Qwen, model card of Qwen3-235B-A22B-FP8: fine-grained fp8 quantization with a block size of 128; config.json of MiniMax-M2.

    Raises
    ------
    DomainError
        There is no such format.
    """
    precision = "bf16" if precision == "fp16" else precision
    kv = "bf16" if kv_precision == "fp16" else kv_precision
    if kv not in KV_BYTES:
        raise DomainError(f"unknown cache format '{kv}'", path=("kv_precision",), hint=f"use one of {', '.join(KV_BYTES)}")
    latent = model.latent is not None
    if precision == "fp8" and (latent or _is_fine_grained(model)):
        precision = "fp8_block"
    executed = executed_format(accelerator, precision)
    linear = "bf16" if precision == "mxfp4" else executed
    attention = "bf16" if precision == "nvfp4" and latent else linear
    return ServedFormats(attention=attention, linear=linear, experts=executed, kv=kv)


def _is_fine_grained(model: Model) -> bool:
    """Return whether experts are narrower than the hidden size."""
    return model.experts is not None and model.experts.intermediate_size < model.hidden_size


def weight_bytes(number_format: str) -> float:
    """Return the bytes of one weight."""
    return FORMATS[number_format].weight_bytes
