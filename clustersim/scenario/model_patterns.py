"""Configurations that say in words of their own which layers have windows or experts, and how wide those are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clustersim.documents.text import Data

_WINDOW: Final = "sliding_attention"
_WHOLE: Final = "full_attention"


def qwen_windows(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return which of Qwen's layers have a window: none unless it is switched on, and then those from a certain one on."""
    n_layers, start = _count(config, "num_hidden_layers"), _count(config, "max_window_layers", default=28)
    if n_layers is None or start is None or isinstance(config.get("layer_types"), list):
        return {}
    if config.get("use_sliding_window") is not True:
        start = n_layers
    return {"layer_types": [_WHOLE if layer < start else _WINDOW for layer in range(n_layers)]}


def exaone(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return EXAONE's pattern, written as letters: L sees a window, G everything."""
    pattern, n_layers = config.get("sliding_window_pattern"), _count(config, "num_hidden_layers")
    if not isinstance(pattern, str) or not pattern or n_layers is None:
        return {}
    types: list[Data] = [_WHOLE if pattern[layer % len(pattern)] == "G" else _WINDOW for layer in range(n_layers)]
    return {"layer_types": types, "sliding_window_pattern": len(pattern)}


def gpt_neo(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return GPT-Neo's layers, written as lists of kinds and how often they are repeated; by default every other one is local."""
    n_layers = _count(config, "num_layers") or _count(config, "num_hidden_layers")
    if n_layers is None:
        return {}
    kinds: list[Data] = []
    written = config.get("attention_types")
    for pair in written if isinstance(written, list) else []:
        match pair:
            case [list() as names, int() as times]:
                kinds += names * times
            case _:
                return {}
    kinds = kinds or ["global", "local"] * n_layers
    return {"layer_types": [_WHOLE if kind == "global" else _WINDOW for kind in kinds[:n_layers]]}


def llama4(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return Llama 4's widths: its ``intermediate_size`` is that of an expert, and layers without experts have another.

    Queries and keys are normalised without a scale.
    """
    return {
        "moe_intermediate_size": config.get("intermediate_size"),
        "intermediate_size": config.get("intermediate_size_mlp", config.get("intermediate_size")),
        "qk_normalization": config.get("use_qk_norm") is not False,
        "qk_normalization_learned": False,
    }


def dbrx(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return what DBRX says of heads and experts in parts of their own."""
    attention, experts = (config.get(key) for key in ("attn_config", "ffn_config"))
    fields: dict[str, Data] = {}
    if isinstance(attention, dict):
        fields["num_key_value_heads"] = attention.get("kv_n_heads")
    if isinstance(experts, dict):
        fields |= {
            "num_experts": experts.get("moe_num_experts"),
            "num_experts_per_tok": experts.get("moe_top_k"),
            "intermediate_size": experts.get("ffn_hidden_size"),
        }
    return fields


def _count(config: Mapping[str, Data], key: str, *, default: int | None = None) -> int | None:
    value = config.get(key, default)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000 else None
