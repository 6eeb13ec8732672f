"""Configurations whose meaning takes more than a table: several keys that decide one trait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clustersim.documents.text import Data

_WITHOUT_POOLER = ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
_PADDING_POSITIONS = 2
"""Rows of RoBERTa's position table that no position uses."""
_WINDOW: Final = "sliding_attention"
_WHOLE: Final = "full_attention"
_STATE: Final = "linear_attention"


def falcon(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return Falcon's heads, norms and positions, which changed between its 7B, 40B and 11B models."""
    new = config.get("new_decoder_architecture") is True
    parallel = new or config.get("parallel_attn") is not False
    if new:
        kv_heads = _first(config, "num_kv_heads", "num_attention_heads", "n_head")
    elif config.get("multi_query") is not False:
        kv_heads = 1
    else:
        kv_heads = _first(config, "num_attention_heads", "n_head")
    one_norm = parallel and (not new or config.get("num_ln_in_parallel_attn") == 1)
    fields: dict[str, Data] = {
        "num_key_value_heads": kv_heads,
        "norms_per_layer": 1 if one_norm else 2,
        "parallel_residual": parallel,
    }
    if config.get("alibi") is True:
        fields["position_embedding"] = "alibi"
    return fields


def gpt_bigcode(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return one key and value head, unless multi-query attention is off."""
    return {} if config.get("multi_query") is False else {"num_key_value_heads": 1}


def mpt(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the MLP's width, which MPT gives as a ratio."""
    width, ratio = config.get("d_model"), config.get("expansion_ratio", 4)
    return {"intermediate_size": width * ratio} if isinstance(width, int) and isinstance(ratio, int) else {}


def opt(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return OPT's norms."""
    fields: dict[str, Data] = {}
    if config.get("layer_norm_elementwise_affine") is False:
        fields["normalization_vectors"] = 0
    if config.get("do_layer_norm_before") is False or config.get("_remove_final_layer_norm") is True:
        fields["final_normalization"] = False
    return fields


def bert(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return whether BERT has its pooler, which the Hugging Face classes for single tokens leave out."""
    architectures = config.get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    without = bool(names) and all(name.endswith(_WITHOUT_POOLER) for name in names)
    return {"pooler": not without, "causal": config.get("is_decoder") is True}


def roberta(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return BERT's traits, and the positions without the two rows that RoBERTa counts among them."""
    rows = config.get("max_position_embeddings")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows <= _PADDING_POSITIONS:
        return bert(config)
    return bert(config) | {"max_position_embeddings": rows - _PADDING_POSITIONS, "unused_positions": _PADDING_POSITIONS}


def distilbert(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the sizes that only DistilBERT names differently."""
    return {field: config[key] for key, field in (("dim", "hidden_size"), ("hidden_dim", "intermediate_size")) if key in config}


def cohere(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return whether queries and keys are normalised, each head with its own scale."""
    return {"qk_normalization": config.get("use_qk_norm") is True, "qk_normalization_shared": False}


def ernie(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the layers behind the last one with experts, which is the last of all where it is given as -1."""
    n_layers, last = _count(config, "num_hidden_layers"), _count(config, "moe_layer_end_index")
    return {} if n_layers is None or last is None else {"mlp_only_layers": list(range(last + 1, n_layers))}


def stablelm(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the norms of StableLM, of which the parallel form shares one."""
    parallel = config.get("use_parallel_residual") is True
    return {
        "qk_normalization": config.get("qk_layernorm") is True,
        "qk_normalization_shared": False,
        "norms_per_layer": 1 if parallel else 2,
        "parallel_residual": parallel,
    }


def qwen(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the MLP's width: the first Qwen gives the width of gate and up projection together."""
    width = config.get("intermediate_size")
    return {"intermediate_size": width // 2} if isinstance(width, int) and not isinstance(width, bool) else {}


def chatglm(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the key and value heads, whose number stands in the file even where it is not used."""
    if config.get("multi_query_attention") is True:
        return {}
    return {"num_key_value_heads": config.get("num_attention_heads")}


def _first(config: Mapping[str, Data], *keys: str) -> Data:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def qwen_windows(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return which of Qwen's layers have a window: none unless it is switched on, and then those from a certain one on."""
    n_layers, start = _count(config, "num_hidden_layers"), _count(config, "max_window_layers", default=28)
    if n_layers is None or start is None or isinstance(config.get("layer_types"), list):
        return {}
    if config.get("use_sliding_window") is not True:
        start = n_layers
    return {"layer_types": [_WHOLE if layer < start else _WINDOW for layer in range(n_layers)]}


def every_so_many(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return Qwen's layers with a state: all but the last of every so many."""
    n_layers, every = _count(config, "num_hidden_layers"), _count(config, "full_attention_interval", default=4)
    if n_layers is None or not every or isinstance(config.get("layer_types"), list):
        return {}
    return {"layer_types": [_STATE if (layer + 1) % every else _WHOLE for layer in range(n_layers)]}


def mamba(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return the layers of hybrids of Mamba-2 and attention, and the MLP of those whose experts are none."""
    listed, n_layers = config.get("layer_types"), _count(config, "num_hidden_layers")
    attends = config.get("attn_layer_indices")
    if not isinstance(listed, list):
        at = attends if isinstance(attends, list) else []
        listed = ["attention" if layer in at else "mamba" for layer in range(n_layers or 0)]
    types: list[Data] = [_STATE if kind == "mamba" else _WHOLE for kind in listed]
    shared, heads = config.get("shared_intermediate_size"), _count(config, "mamba_n_heads")
    inner = (_count(config, "mamba_expand", default=2) or 2) * (_count(config, "hidden_size") or 0)
    fields: dict[str, Data] = {
        "layer_types": types,
        "linear_value_head_dim": _count(config, "mamba_d_head") or (inner // heads if heads else None),
        "position_embedding": "rope" if config.get("position_embedding_type") == "rope" or isinstance(attends, list) else "none",
    }
    if shared is not None and config.get("num_local_experts"):
        fields["moe_intermediate_size"], fields["shared_expert_intermediate_size"] = config.get("intermediate_size"), shared
    elif shared is not None:
        fields["intermediate_size"] = shared
    return fields


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
    """Return the heads and experts of DBRX, which has separate sections for them."""
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
