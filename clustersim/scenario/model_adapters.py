"""Configurations whose meaning takes more than a table: several keys that decide one trait."""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.documents.text import Data

_WITHOUT_POOLER = ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
_PADDING_POSITIONS = 2
"""Rows of RoBERTa's position table that no position uses."""


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
    """Return the sizes that DistilBERT alone names so."""
    return {field: config[key] for key, field in (("dim", "hidden_size"), ("hidden_dim", "intermediate_size")) if key in config}


def cohere(config: Mapping[str, Data]) -> dict[str, Data]:
    """Return whether queries and keys are normalised, each head with its own scale."""
    return {"qk_normalization": config.get("use_qk_norm") is True, "qk_normalization_shared": False}


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
