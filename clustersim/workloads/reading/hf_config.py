"""From the keys that people write for a model, or a ``config.json`` of the Hugging Face Hub, to the fields of the model specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clustersim.documents.check import located
from clustersim.documents.files import read_text
from clustersim.documents.json_text import JsonDocument, parse_json, place_in
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import MOST_BYTES, Data, Document
from clustersim.errors import Place, ScenarioError
from clustersim.workloads.reading.model_families import (
    ModelFamily,
    hub_models,
    model_families,
    refused_types,
    size_aliases,
    trait_aliases,
)
from clustersim.workloads.reading.model_sparse import OF_EXPERTS, OF_FAMILIES, OF_LATENT, SparseSpec

Flags = tuple[tuple[str, str], ...]

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
            spellings = ", ".join(hub_models().sizes.get(name, ()))
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
    aliases, joint = {**size_aliases(), **trait_aliases()}, hub_models().joint
    opposites = [spelling for given in hub_models().opposites.values() for spelling in given]
    for key, value in data.items():
        if value is None or key in joint:
            continue
        name = key if key in known else aliases.get(key)
        if name is None:
            raise _unknown(key, origin, did_you_mean(key, [*known, *aliases, *joint]))
        plain = not value if key in opposites and isinstance(value, bool) else value
        if name in fields and fields[name] != plain:
            other = written[name]
            message = f"'{key}: {json.dumps(value)}' contradicts '{other}: {json.dumps(data[other])}'"
            raise origin.error(message, key=key, hint="both say the same thing: delete one of them")
        fields[name], written[name] = plain, key
    for key, names in joint.items():
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


_FIELDS: Final = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    *(name for name in SparseSpec.model_fields if name not in OF_FAMILIES),
)
"""Fields that the Hub spells as we do."""

_COUNTS: Final = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_experts")
"""Fields that some configurations give for each layer."""
_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Sections that describe the language model of one with more than text."""
_OF_RECURRENCE: Final = ("mamba_", "ssm_", "linear_attn", "linear_num_", "linear_conv")
"""Beginnings of keys that only models with recurrent layers have."""
_UNLIKE: Final = (
    ("is_encoder_decoder", True, "this model is an encoder and a decoder"),
    ("use_cla", True, "layers of this model share keys and values"),
    ("use_mixed_mlp_moe", False, "this model has no shared experts in some frameworks, and has them in others"),
)
"""Values of models that are no such transformers, and the reason."""
_DROPOUT_KEYS: Final = (
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_pdrop",
    "residual_dropout",
)


def read_config(path: Path) -> Document:
    """Return a ``config.json``, or the one in a directory, with the place of each of its keys."""
    file = path / "config.json" if path.is_dir() else path
    return parse_config(read_text(file, MOST_BYTES, "name a config.json, which is a short file"), str(file))


def parse_config(text: str, name: str) -> Document:
    """Return JSON text as a document; ``name`` is the file name in messages.

    Raises
    ------
    ScenarioError
        When the text is empty, not JSON or not an object.
    """
    if not text.strip():
        raise ScenarioError("is empty", place=Place(file=name), hint="a config.json is a JSON object")
    data = parse_json(text, name)
    if not isinstance(data, dict):
        raise ScenarioError("is not a JSON object", place=place_in(text, name, ()), hint="a config.json is a JSON object")
    return JsonDocument(name=name, data=data, text=text)


def config_fields(origin: ModelDocument, config: Mapping[str, Data]) -> ModelReading:
    """Return the model settings of a configuration, with the defaults of its ``model_type``."""
    kind = config.get("model_type")
    model_type = kind if isinstance(kind, str) else ""
    _refuse_others(config, model_type, origin)
    text_only = ("text_only", f"of '{model_type}' the language model alone is simulated, without what sees or hears")
    for key in _TEXT_PARTS:
        if isinstance(text := config.get(key), dict) and config.get("hidden_size") is None:
            part = config_fields(ModelDocument(document=origin.document, at=(*origin.at, key)), {"model_type": "", **text})
            return replace(part, flags=(*(flag for flag in part.flags if flag[0] != text_only[0]), text_only))
    family = _family(model_type) or model_families()["llama"]
    fields = dict(family.defaults)
    written: dict[str, str] = {}
    for key, name in _spellings(family):
        value = _alike(config.get(key)) if name in _COUNTS else config.get(key)
        if value is not None and name not in written:
            fields[name], written[name] = value, key
    fields |= family.adapted(config)
    dropout = [config[key] for key in _DROPOUT_KEYS if key in config]
    if dropout:
        fields["dropout"] = any(isinstance(value, int | float) and value > 0 for value in dropout)
    if config.get("use_sliding_window") is False:
        fields.pop("sliding_window", None)
    for key, belonging in (("num_experts", OF_EXPERTS), ("kv_lora_rank", OF_LATENT)):
        if fields.get(key) is None or (key == "num_experts" and fields[key] in (0, 1)):
            fields = {name: value for name, value in fields.items() if name not in (key, *belonging)}
    if _scaled(config) and fields.get("position_embedding", "rope") == "rope" and fields.get("kv_lora_rank") is None:
        fields["position_embedding"] = "yarn"
    require(fields, origin)
    flags = _flags(model_type, config)
    return ModelReading(fields=fields, written=written, flags=(*flags, text_only) if config.get("vision_config") is not None else flags)


def _family(model_type: str) -> ModelFamily | None:
    """Return a known family, also by the type of the language model in one with more than text."""
    return model_families().get(model_type) or model_families().get(model_type.removesuffix("_text"))


def _scaled(config: Mapping[str, Data]) -> bool:
    """Return whether positions are those of YaRN, as Transformers has spelt it."""
    parts = (config.get("rope_scaling"), config.get("rope_parameters"))
    return any(isinstance(part, dict) and "yarn" in (part.get("rope_type"), part.get("type")) for part in parts)


def _alike(value: Data) -> Data:
    """Return the number of a list with one for each layer, where all are the same."""
    return value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else value


def _spellings(family: ModelFamily) -> list[tuple[str, str]]:
    """Return pairs of key and field, the Hub's own spelling before the others."""
    own = [(key, name) for key, names in family.keys.items() for name in names]
    return [*own, *((name, name) for name in _FIELDS), *size_aliases().items()]


def _refuse_others(config: Mapping[str, Data], model_type: str, origin: ModelDocument) -> None:
    if reason := refused_types().get(model_type):
        raise origin.error(f"'{model_type}' is {reason}", key="model_type", hint=TRANSFORMERS_ONLY)
    recurrent = next((key for key, value in config.items() if value and key.startswith(_OF_RECURRENCE)), None)
    family = _family(model_type)
    if recurrent and (family is None or not family.has_states):
        raise origin.error(f"this is {refused_types()['mamba']}", key=recurrent, hint=TRANSFORMERS_ONLY)
    for key, value, message in _UNLIKE:
        if config.get(key) is value:
            raise origin.error(message, key=key, hint=TRANSFORMERS_ONLY)


def _flags(model_type: str, config: Mapping[str, Data]) -> Flags:
    flags: list[tuple[str, str]] = []
    if _family(model_type) is None:
        kind = f"model_type '{model_type}' is not known" if model_type else "the configuration names no model_type"
        taken = "RMS normalisation, rotary positions, a gated MLP, and no biases but those the file gives"
        flags.append(("model_type_unknown", f"{kind}: taken as Llama-like, with {taken}"))
    width, hidden = config.get("word_embed_proj_dim"), config.get("hidden_size")
    if width is not None and width != hidden:
        flags.append(("embedding_width", f"the embedding of width {width} is taken as wide as the hidden state, {hidden}"))
    if config.get("index_topk"):
        flags.append(
            (
                "left_out",
                f"the indexer that chooses {config['index_topk']} tokens: attention is to all, so that longer sequences are too slow",
            )
        )
    return tuple(flags)
