"""Models of imported jobs: a shipped one by its name or by its dimensions, else the dimensions themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from types import MappingProxyType
from typing import Final

from clustersim.apps.importing.imported_settings import Draft
from clustersim.apps.importing.transforms import number
from clustersim.documents.files import data_path
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.model import Model
from clustersim.workloads.reading.hub_names import letters, shipped_name
from clustersim.workloads.reading.model_families import refused_types
from clustersim.workloads.reading.model_spec import load_model, model_names

_LATENT: Final = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_EXPERTS: Final = (
    *("num_experts_per_tok", "moe_intermediate_size", "num_shared_experts", "shared_expert_intermediate_size", "scoring_func"),
    *("n_group", "topk_group", "router_bias", "first_k_dense_replace", "decoder_sparse_step", "shared_expert_gate"),
)
_LENGTHS: Final = ("max_position_embeddings", "dropout", "vocab_size")
"""Fields that a job may have otherwise without being of another model: its tokenizer pads, and it is trained on shorter sequences."""
_NOT_DIMENSIONS: Final = (
    "name",
    "names",
    "description",
    "sources",
    "published_parameters",
    "published_parameters_rounded",
    "published_scope",
)
_SWITCHED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "job.lora_query": ("q",),
        "job.lora_key": ("k",),
        "job.lora_value": ("v",),
        "job.lora_projection": ("output",),
        "job.lora_mlp": ("gate", "up", "down"),
    }
)
"""Layers of each part whose adapters a key of its own switches on."""
_LARGEST_RATIO: Final = 1e6
"""Width of an MLP in hidden sizes, far above any."""
USUAL_RANK: Final = 8
"""Rank of adapters where a job gives none (Hugging Face PEFT, ``LoraConfig.r``)."""
_NEEDED: Final = ("num_hidden_layers", "hidden_size", "num_attention_heads")


def _unsayable(text: str) -> str | None:
    """Return the reason why no transformer says a model, by the type of the Hub that its name begins with."""
    name = letters(text.rpartition("/")[2])
    return next((reason for kind, reason in refused_types().items() if name.startswith(letters(kind))), None)


def complete_model(draft: Draft) -> None:
    """Fill in what follows from other dimensions, and leave out what belongs to parts that the model does not have."""
    _pattern(draft)
    if draft.get("job.grouped_queries") is False:
        draft.drop("model.num_key_value_heads")
    if (
        draft.get("job.latent_attention") is not True
        and draft.get("model.kv_lora_rank") is not None
        and "job.latent_attention" in draft.settings
    ):
        draft.drop(*(f"model.{name}" for name in _LATENT))
    elif draft.get("model.kv_lora_rank") is not None:
        # What is normalised there are the latents, as latent attention always does here.
        draft.drop("model.qk_normalization")
    if (draft.whole("model.num_experts") or 0) < 2:
        draft.drop("model.num_experts", "job.dense_layers", *(f"model.{name}" for name in _EXPERTS))
    if draft.get("job.keeps_tokens") is True:
        draft.drop("strategy.expert_capacity")
    layers, blocks = draft.whole("model.num_hidden_layers"), draft.whole("job.layers_in_block")
    if layers is not None and blocks is not None:
        draft.derive("model.num_hidden_layers", layers * blocks, f"{layers} blocks of {blocks} layers")
    _width(draft)
    _dense_layers(draft)
    _states(draft)
    _vocabulary(draft)
    length = draft.whole("training.seq_length")
    if draft.get("model.position_embedding") == "learned" and draft.get("model.max_position_embeddings") is None and length is not None:
        draft.derive("model.max_position_embeddings", length, "as many positions as a sequence has tokens")


def _pattern(draft: Draft) -> None:
    """Count pairs of attention and MLP as layers; a pattern with any other layer names a model that is refused."""
    pattern = draft.get("job.pattern")
    if not isinstance(pattern, str):
        return
    main = pattern.partition("/")[0].replace("|", "")
    if re.fullmatch(r"(?:\*[-E])+", main) is None:
        draft.settings["model"] = replace(draft.settings["job.pattern"], value="nemotron_h")
        return
    draft.derive("model.num_hidden_layers", len(main) // 2, f"{len(main)} layers of the pattern, of which two are attention and its MLP")
    if "E" in main:
        draft.derive("job.dense_layers", [at for at, letter in enumerate(main[1::2]) if letter != "E"], "layers of the pattern without E")


def _ratio(draft: Draft, key: str) -> float | None:
    value = draft.get(key)
    return value if isinstance(value, int | float) and 0 < value < _LARGEST_RATIO else None


def _width(draft: Draft) -> None:
    hidden, multiple = draft.whole("model.hidden_size"), draft.whole("job.mlp_multiple") or 1
    fused, ratio, fused_ratio = draft.whole("job.fused_width"), _ratio(draft, "job.mlp_ratio"), _ratio(draft, "job.fused_mlp_ratio")
    gated = draft.get("model.gated_mlp") is True
    if hidden is None or draft.get("model.intermediate_size") is not None:
        return
    if fused is not None:
        thirds = gated and draft.get("job.gated_width") != "llama"
        width = multiple * ceil(fused / 3 / multiple) if thirds else fused
        draft.derive("model.intermediate_size", width, "a third of the width that is given, which counts three matrices" if thirds else "")
    elif (both := draft.whole("job.fused_mlp_hidden")) is not None:
        draft.derive("model.intermediate_size", both // (2 if gated else 1), "mlp_hidden_size counts both halves of a gated MLP")
    elif fused_ratio is not None:
        draft.derive(
            "model.intermediate_size", int(fused_ratio * hidden / (2 if gated else 1)), "mlp_ratio counts both halves of a gated MLP"
        )
    elif ratio is not None:
        draft.derive("model.intermediate_size", int(ratio * hidden), f"{ratio} times the hidden size")
    elif gated and draft.get("job.gated_width") == "megatron":
        draft.derive("model.intermediate_size", int(4 * hidden * 2 / 3 / 64) * 64, "two thirds of four times the hidden size, by 64")
    elif gated and draft.get("job.gated_width") == "llama":
        draft.derive("model.intermediate_size", multiple * ceil(int(8 * hidden / 3) / multiple), f"8/3 of the hidden size, by {multiple}")


def _dense_layers(draft: Draft) -> None:
    dense, n_layers = draft.get("job.dense_layers"), draft.whole("model.num_hidden_layers")
    if dense is None or n_layers is None:
        return
    listed = dense if isinstance(dense, list) else [layer for layer in range(n_layers) if layer % int(number(dense))]
    kept = [layer for layer in listed if isinstance(layer, int) and layer < n_layers]
    if kept == list(range(len(kept))):
        if kept:
            draft.derive("model.first_k_dense_replace", len(kept), "the first layers of the pattern have no experts")
    else:
        layers: list[Data] = [*kept]
        draft.derive("model.mlp_only_layers", layers, "layers of the pattern without experts")


def _states(draft: Draft) -> None:
    """Name the layers with a state, of which each listed one, or the last of every so many, has attention."""
    whole, n_layers = draft.get("job.whole_layers"), draft.whole("model.num_hidden_layers")
    if draft.get("job.attention_variant") is None or whole is None or n_layers is None:
        draft.drop(*(key for key in draft.settings if key.startswith("model.linear_")))
        return
    attends = whole if isinstance(whole, list) else range(int(number(whole)) - 1, n_layers, int(number(whole)))
    types: list[Data] = ["full_attention" if layer in attends else "linear_attention" for layer in range(n_layers)]
    draft.derive("model.layer_types", types, f"{types.count('linear_attention')} of {n_layers} layers have a state")


def _vocabulary(draft: Draft) -> None:
    padded = draft.whole("job.padded_vocabulary")
    if draft.get("model.vocab_size") is not None:
        return
    tokenizers = [each for key in ("job.tokenizer", "job.tokenizer_kind") if isinstance(each := draft.get(key), str)]
    for name in filter(None, map(shipped_name, tokenizers)):
        size = load_model(name).model.vocab_size
        # A tokenizer of this kind may have another vocabulary; padding adds less than a tenth.
        if size and (padded is None or size <= padded < 1.1 * size):
            draft.derive("model.vocab_size", size, f"tokens of the tokenizer of {name}")
            return
    if padded is not None:
        draft.derive("model.vocab_size", padded, "the vocabulary with its padding")


def model_of(draft: Draft, given: str | None) -> tuple[Data, list[str]]:
    """Return the model for a scenario, and missing values with the options that give them."""
    fields = {key.removeprefix("model."): each.value for key, each in draft.settings.items() if key.startswith("model.")}
    named = given if given is not None else draft.get("model")
    name = (named if named in model_names() else shipped_name(named)) if isinstance(named, str) else None
    if given is not None and (name is None or given.startswith("hf:") or given.endswith((".yaml", ".yml"))):
        return given, []
    if name is not None:
        return _changed(name, draft), []
    reason = _unsayable(named) if isinstance(named, str) else None
    if reason is not None:
        hint = "name a job of another model, or give --model NAME"
        raise ScenarioError(f"the model '{named}' is {reason}, which is not simulated", place=draft.settings["model"].place, hint=hint)
    if any(fields.get(key) is None for key in _NEEDED):
        what = f"the dimensions of '{named}', which is not shipped" if isinstance(named, str) else "the model"
        return None, [f"{what}: --model NAME, or --model hf:path/to/config.json"]
    if fields.get("vocab_size") is None:
        alike = next(iter(_alike({**fields, "vocab_size": 1}, vocabulary=False)), None)
        other = f" (or --model {alike}, which has these dimensions)" if alike else ""
        return None, [f"the size of the vocabulary: -s model.vocab_size=...{other}"]
    if fields.get("gated_mlp") is True and fields.get("intermediate_size") is None and fields.get("moe_intermediate_size") is None:
        return None, ["the width of the MLP: -s model.intermediate_size=..."]
    alike = _alike(fields, vocabulary=True)
    meant = shipped_name(str(draft.get("job.file")))
    return (meant if meant in alike else alike[0] if alike else fields), []


def _changed(name: str, draft: Draft) -> Data:
    """Return a shipped model: its name, or its description with the dimensions that files give otherwise."""
    loaded = load_model(name)
    spec = loaded.spec
    settings = {key.removeprefix("model."): each for key, each in draft.settings.items() if key.startswith("model.")}
    said = {key: each.value for key, each in settings.items() if each.how in ("read", "given") and key not in _LENGTHS}
    base: dict[str, Data] = spec.model_dump(mode="json", exclude_unset=True, exclude=set(_NOT_DIMENSIONS))
    if not loaded.model.divisible:
        return name
    tokens, usual = draft.whole("model.vocab_size"), loaded.model.vocab_size
    if tokens and usual and settings["vocab_size"].how == "derived" and max(tokens, usual) > 1.1 * min(tokens, usual):
        said["vocab_size"] = tokens
    changes = {key: value for key, value in said.items() if getattr(spec, key, None) != value}
    if not changes:
        return name
    # Some are told in other words, such as a head_dim that follows from the others.
    found: dict[str, Data] = {**base, **changes}
    try:
        same = _sizes(load_model(found).model, vocabulary=True) == _sizes(load_model(name).model, vocabulary=True)
    except ScenarioError:
        same = False
    return name if same else found


def _alike(fields: Mapping[str, Data], *, vocabulary: bool) -> list[str]:
    """Return the shipped models that are the same transformer as some dimensions, positions aside."""
    try:
        mine = load_model(dict(fields)).model
    except ScenarioError:
        return []
    layers = re.compile(rf"^num_hidden_layers: {mine.n_layers}$", re.MULTILINE)
    near = [name for name in model_names() if layers.search((data_path("scenarios") / "models" / f"{name}.yaml").read_text("utf-8"))]
    same = [name for name in near if _sizes(load_model(name).model, vocabulary=vocabulary) == _sizes(mine, vocabulary=vocabulary)]
    return sorted(same, key=lambda name: load_model(name).model.max_positions != mine.max_positions)


def _sizes(model: Model, *, vocabulary: bool) -> Mapping[str, Data]:
    left = {"name", "max_positions", "published_parameters", "published_scope", *(() if vocabulary else ("vocab_size",))}
    if all(model.has_experts(layer) for layer in range(model.n_layers)):
        left.add("intermediate_size")
    return {key: value for key, value in model.outline().items() if key not in left}


def derive_adapters(draft: Draft) -> None:
    """Freeze the model where a job trains adapters: it says so, or gives a rank for them and does not say no."""
    rank, asked = draft.whole("job.lora_rank"), draft.get("job.adapters")
    if asked is False or (asked is None and rank is None):
        draft.drop("training.lora_layers")
        return
    draft.derive(
        "training.lora_rank", rank or USUAL_RANK, "the rank of the adapters" if rank else f"no rank is given: {USUAL_RANK}, as PEFT"
    )
    named = draft.get("training.lora_layers")
    switched = [layer for part, layers in _SWITCHED.items() if draft.get(part) is True for layer in layers]
    if switched:
        together: list[Data] = [*named, *switched] if isinstance(named, list) else [*switched]
        draft.derive("training.lora_layers", [*dict.fromkeys(together)], "the parts whose adapters are on")
    if draft.get("job.four_bits") is True:
        draft.derive("training.frozen_precision", "nf4", "weights of the frozen model are quantised to 4 bits")
