"""From the keys that people write for a model to the fields of the model specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from clustersim.documents.check import located
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.spots import Data
from clustersim.documents.text import Document
from clustersim.errors import ScenarioError

Flags = tuple[tuple[str, str], ...]

SIZE_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num_layers": "num_hidden_layers",
        "n_layer": "num_hidden_layers",
        "n_layers": "num_hidden_layers",
        "n_embd": "hidden_size",
        "n_embed": "hidden_size",
        "d_model": "hidden_size",
        "dim": "hidden_size",
        "n_head": "num_attention_heads",
        "n_heads": "num_attention_heads",
        "num_heads": "num_attention_heads",
        "attention_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "n_kv_heads": "num_key_value_heads",
        "num_query_groups": "num_key_value_heads",
        "multi_query_group_num": "num_key_value_heads",
        "kv_channels": "head_dim",
        "n_inner": "intermediate_size",
        "ffn_dim": "intermediate_size",
        "ffn_hidden_size": "intermediate_size",
        "padded_vocab_size": "vocab_size",
        "n_positions": "max_position_embeddings",
        "max_seq_len": "max_position_embeddings",
        "num_local_experts": "num_experts",
        "n_routed_experts": "num_experts",
        "moe_num_experts": "num_experts",
        "num_moe_experts": "num_experts",
        "moe_router_topk": "num_experts_per_tok",
        "moe_topk": "num_experts_per_tok",
        "moe_top_k": "num_experts_per_tok",
        "moe_k": "num_experts_per_tok",
        "num_experts_per_token": "num_experts_per_tok",
        "moe_ffn_hidden_size": "moe_intermediate_size",
        "n_shared_experts": "num_shared_experts",
        "moe_num_shared_experts": "num_shared_experts",
        "moe_shared_expert_intermediate_size": "shared_expert_intermediate_size",
        "interleave_moe_layer_step": "decoder_sparse_step",
        "mtp_num_layers": "num_nextn_predict_layers",
    }
)
"""Other spellings of the sizes: GPT-2 and DeepSpeed, torchtitan, Megatron, BLOOM, MPT; Mixtral, DeepSeek, Llama 4."""

TRAIT_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "activation_function": "hidden_act",
        "hidden_activation": "hidden_act",
        "swiglu": "gated_mlp",
        "position_embedding_type": "position_embedding",
        "add_qkv_bias": "qkv_bias",
        "qk_layernorm": "qk_normalization",
        "n_ctx": "max_position_embeddings",
    }
)
"""Other spellings of the traits, read in our own files only."""

INVERSE_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"untie_embeddings_and_output_weights": "tie_word_embeddings"})
"""Spellings that say the opposite."""

JOINT_ALIASES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "attention_bias": ("qkv_bias", "attention_output_bias"),
        "add_bias_linear": ("qkv_bias", "attention_output_bias", "mlp_bias"),
    }
)
"""Keys that set several fields; a field's own key goes before them."""

REQUIRED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num_hidden_layers": "the number of layers, such as 32",
        "hidden_size": "the width of the hidden state, such as 4096",
        "num_attention_heads": "the number of attention heads, such as 32",
        "vocab_size": "the rows of the token table, such as 128256",
    }
)

_PASTED: Final = (
    "architectures",
    "bos_token_id",
    "eos_token_id",
    "initializer_range",
    "rms_norm_eps",
    "rope_scaling",
    "rope_theta",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)
"""Keys of nearly every configuration of the Hub that say nothing here: who writes them has pasted one."""

TRANSFORMERS_ONLY: Final = "only transformers of text are read; other models can be described layer by layer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDocument:
    """The part of a document that describes the model."""

    document: Document
    at: tuple[str | int, ...] = ()

    def error(self, message: str, *, key: str | None = None, hint: str | None = None) -> ScenarioError:
        """Return an error at one key of the description, or at the description itself."""
        path = self.at if key is None else (*self.at, key)
        name = ".".join(str(part) for part in path) or None
        return ScenarioError(message, field=name, hint=hint, place=self.document.place(path))

    def located(self, error: ScenarioError, written: Mapping[str, str]) -> ScenarioError:
        """Return an error about a field, with the key that was written for it."""
        head, dot, tail = (error.field or "").partition(".")
        renamed = ScenarioError(error.message, field=f"{written.get(head, head)}{dot}{tail}" or None, hint=error.hint)
        return located(renamed, self.document, self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """Fields of the model specification, not yet checked."""

    fields: dict[str, Data]
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    """The key that was written for a field."""
    flags: Flags = ()


def require(fields: Mapping[str, Data], origin: ModelDocument) -> None:
    """Refuse a description that lacks a required size.

    Raises
    ------
    ScenarioError
        Naming the field, what it is, and how else it may be spelt.
    """
    needed = dict(REQUIRED)
    if fields.get("gated_mlp", True) is True and not (fields.get("multiple_of") or fields.get("moe_intermediate_size")):
        needed["intermediate_size"] = "the width of the gated MLP, such as 14336"
    if fields.get("position_embedding") == "learned":
        needed["max_position_embeddings"] = "the number of learned positions, such as 1024"
    for name, meaning in needed.items():
        if fields.get(name) is None:
            spellings = ", ".join(alias for alias, target in SIZE_ALIASES.items() if target == name)
            also = f" (or {spellings})" if spellings else ""
            raise origin.error(f"'{name}' is missing", key=name, hint=f"give {meaning}{also}")


def own_fields(data: Mapping[str, Data], origin: ModelDocument, known: Sequence[str]) -> ModelReading:
    """Return the fields that our own spelling, or one of its aliases, gives.

    Raises
    ------
    ScenarioError
        For an unknown key, and for two spellings of one thing that differ.
    """
    fields: dict[str, Data] = {}
    written: dict[str, str] = {}
    aliases = {**SIZE_ALIASES, **TRAIT_ALIASES, **INVERSE_ALIASES}
    for key, value in data.items():
        if value is None or key in JOINT_ALIASES:
            continue
        name = key if key in known else aliases.get(key)
        if name is None:
            raise _unknown(key, origin, did_you_mean(key, [*known, *aliases, *JOINT_ALIASES]))
        plain = not value if key in INVERSE_ALIASES and isinstance(value, bool) else value
        if name in fields and fields[name] != plain:
            other = written[name]
            message = f"'{key}: {json.dumps(value)}' contradicts '{other}: {json.dumps(data[other])}'"
            raise origin.error(message, key=key, hint="both say the same thing: delete one of them")
        fields[name], written[name] = plain, key
    for key, names in JOINT_ALIASES.items():
        value = data.get(key)
        for name in names if value is not None else ():
            if name not in fields:
                fields[name], written[name] = value, key
    return ModelReading(fields=fields, written=written)


def _unknown(key: str, origin: ModelDocument, near: str | None) -> ScenarioError:
    pasted = "a Hugging Face configuration as it comes is read with 'model: hf:path/to/config.json'"
    hint = pasted if key in _PASTED else near or pasted
    path = (*origin.at, key)
    place = origin.document.place(path, key=True)
    return ScenarioError(f"unknown field '{key}'", field=".".join(str(part) for part in path), hint=hint, place=place)
