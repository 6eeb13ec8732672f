"""The description of a model: checked by pydantic, built into a :class:`Transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.units.divisors import divisors, listed
from clustersim.units.fields import PositiveInt, PositiveRatio
from clustersim.workloads.reading.model_sparse import SparseSpec, Width
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Position

_LETTERS: Final = {"M": 10**6, "B": 10**9, "T": 10**12}
_GATED_ACTIVATIONS: Final = ("silu", "swish", "swiglu", "geglu", "gelu_gated")
_POSITION_NAMES: Final = {"absolute": "learned", "learned_absolute": "learned"}

Layers = Annotated[PositiveInt, Field(le=10_000)]
Rows = Annotated[PositiveInt, Field(le=100_000_000)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _position(value: object) -> object:
    lowered = _lower(value)
    return _POSITION_NAMES.get(lowered, lowered) if isinstance(lowered, str) else lowered


class ModelSourceSpec(Checked):
    """Source of some figures of a model."""

    title: str
    url: str
    covers: tuple[str, ...] = Field(min_length=1)
    accessed: str | None = None
    note: str = ""


class ModelSpec(SparseSpec):
    """A transformer by its sizes and traits, with the key names of the Hugging Face Hub.

    Traits that are not given are those of ``model_type``, and without one those of Llama.
    """

    name: str | None = None
    description: str = ""
    names: tuple[str, ...] = Field(default=(), description="Other published models of this shape, which imports know by name.")
    left_out: str = Field(default="", description="Part of the model that is not simulated; results flag it.")
    model_type: str | None = Field(default=None, description="A model_type of the Hugging Face Hub, whose traits are taken.")
    num_hidden_layers: Layers
    hidden_size: Width
    num_attention_heads: Width
    num_key_value_heads: Width | None = Field(default=None, description="Default: as many as attention heads.")
    head_dim: Width | None = Field(default=None, description="Default: hidden_size / num_attention_heads.")
    intermediate_size: Width | None = Field(default=None, description="Width of the MLP; without a gate the default is 4 hidden_size.")
    multiple_of: PositiveInt | None = Field(default=None, description="torchtitan's rounding of the gated MLP's width.")
    ffn_dim_multiplier: PositiveRatio | None = Field(default=None, description="torchtitan's.")
    vocab_size: Rows
    max_position_embeddings: Rows | None = Field(default=None, description="Positions of the learned table, or the context length.")
    unused_positions: Annotated[int, Field(strict=True, ge=0, le=64)] = Field(default=0, description="More rows, as in OPT and RoBERTa.")
    hidden_act: str | None = None
    gated_mlp: StrictBool = True
    tie_word_embeddings: StrictBool = False
    normalization: Annotated[Literal["layernorm", "rmsnorm"], BeforeValidator(_lower)] = "rmsnorm"
    normalization_vectors: Literal[0, 1, 2] | None = Field(default=None, description="Vectors of one norm, where not 2 and 1.")
    norms_per_layer: Literal[1, 2, 4] = 2
    position_embedding: Annotated[Literal["learned", "rope", "yarn", "alibi", "none"], BeforeValidator(_position)] = "rope"
    qkv_bias: StrictBool = False
    attention_output_bias: StrictBool = False
    mlp_bias: StrictBool = False
    qk_normalization: StrictBool = False
    qk_normalization_shared: StrictBool = Field(default=True, description="One scale for all heads.")
    qk_normalization_learned: StrictBool = Field(default=True, description="Whether it has a scale.")
    parallel_residual: StrictBool = Field(default=False, description="Attention and MLP read the same input.")
    dropout: StrictBool = Field(default=False, description="Whether dropout is on in training.")
    causal: StrictBool = True
    type_vocab_size: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    embedding_normalization: StrictBool = False
    final_normalization: StrictBool = True
    pooler: StrictBool = False
    lm_head: StrictBool = True
    head_bias: StrictBool = False
    head_transform: StrictBool = False
    published_parameters: PositiveInt | None = None
    published_parameters_rounded: str | None = Field(default=None, description="As printed, such as 18.4B.")
    published_scope: Literal["model", "backbone", "main"] = "model"
    sources: tuple[ModelSourceSpec, ...] = ()

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        if self.head_dim is None and self.kv_lora_rank is None and self.hidden_size % heads:
            hint = f"give head_dim, or use {listed(_divisors_near(self.hidden_size, heads))}"
            raise ScenarioError(f"{heads} heads do not divide hidden_size {self.hidden_size}", field="num_attention_heads", hint=hint)
        if kv_heads is not None and heads % kv_heads:
            hint = f"use {listed(_divisors_near(heads, kv_heads))}"
            raise ScenarioError(f"{kv_heads} does not divide {heads} attention heads", field="num_key_value_heads", hint=hint)
        return self

    @model_validator(mode="after")
    def _layers_without_experts_have_a_width(self) -> Self:
        dense = self.dense_layers(self.num_hidden_layers) if self.has_experts else ()
        if len(dense) == self.num_hidden_layers:
            hint = "mind first_k_dense_replace, decoder_sparse_step, moe_layer_freq and mlp_only_layers, or delete it"
            raise ScenarioError(f"none of the {len(dense)} layers has experts", field="num_experts", hint=hint)
        if dense and self.intermediate_size is None and self.gated_mlp and self.multiple_of is None:
            what = f"layers such as {dense[0]} have an MLP whose width is not given"
            raise ScenarioError(what, field="intermediate_size", hint="give the width of the gated MLP, such as 14336")
        return self

    @model_validator(mode="after")
    def _count_is_readable(self) -> Self:
        if self.published_parameters_rounded is not None:
            _read_count(self.published_parameters_rounded)
        return self


_SHARED: Final = [
    each.name
    for each in fields(Transformer)
    if each.name in ModelSpec.model_fields and each.name not in {"name", "head_dim", "intermediate_size"}
]
"""Traits that a description and a transformer have in common."""


def build_model(spec: ModelSpec, name: str) -> Transformer:
    """Return the transformer that a checked description means."""
    latent, width = spec.latent(), mlp_width(spec)
    position: Position = "none" if spec.position_embedding == "alibi" else spec.position_embedding
    return Transformer(
        **{trait: getattr(spec, trait) for trait in _SHARED},
        name=name,
        n_layers=spec.num_hidden_layers,
        n_heads=spec.num_attention_heads,
        n_kv_heads=spec.num_attention_heads if latent or spec.num_key_value_heads is None else spec.num_key_value_heads,
        head_dim=latent.qk_head_dim if latent else spec.head_dim or spec.hidden_size // spec.num_attention_heads,
        intermediate_size=width,
        max_positions=spec.max_position_embeddings or 0,
        tied_embeddings=spec.tie_word_embeddings,
        position=position,
        linear_bias=spec.attention_output_bias,
        n_token_types=spec.type_vocab_size,
        latent=latent,
        window=spec.window(spec.num_hidden_layers),
        experts=spec.experts(spec.num_hidden_layers, intermediate_size=width),
        n_mtp=spec.num_nextn_predict_layers,
        attention_gate=spec.attn_output_gate,
        linear=spec.linear(spec.num_hidden_layers),
    )


def mlp_width(spec: ModelSpec) -> int:
    """Return the width of the MLP: given, rounded as torchtitan does, an expert's, or four times the hidden size.

    References
    ----------
    .. [1] torchtitan, ``FeedForward``: two thirds of 4 h, times the multiplier, up to a multiple.
    """
    if spec.intermediate_size is not None:
        return spec.intermediate_size
    if spec.multiple_of is None:
        return spec.moe_intermediate_size or 4 * spec.hidden_size
    width = int(2 * (4 * spec.hidden_size) / 3)
    if spec.ffn_dim_multiplier is not None:
        width = int(spec.ffn_dim_multiplier * width)
    return spec.multiple_of * -(-width // spec.multiple_of)


def is_gated(hidden_act: str) -> bool:
    """Return whether an activation is, by custom, that of a gated MLP."""
    return hidden_act.lower() in _GATED_ACTIVATIONS


def agrees_with_published(spec: ModelSpec, model: Transformer) -> bool:
    """Return whether the model has as many parameters as published, to every digit that was printed."""
    count = model.n_published
    if spec.published_parameters is not None and spec.published_parameters != count:
        return False
    if spec.published_parameters_rounded is None:
        return True
    printed, unit = _read_count(spec.published_parameters_rounded)
    return (Decimal(count) / unit).quantize(printed) == printed


def published_text(spec: ModelSpec) -> str | None:
    """Return the published count as text, or None without one."""
    return f"{spec.published_parameters:,}" if spec.published_parameters is not None else spec.published_parameters_rounded


def _read_count(text: str) -> tuple[Decimal, int]:
    unit = _LETTERS.get(text[-1:])
    try:
        printed = Decimal(text[:-1])
    except InvalidOperation:
        unit = None
        printed = Decimal(0)
    if unit is None or not printed.is_finite() or printed <= 0:
        hint = "write it as printed, such as 18.4B"
        raise ScenarioError(f"'{text}' is not a rounded count", field="published_parameters_rounded", hint=hint)
    return printed, unit


def _divisors_near(number: int, wanted: int) -> list[int]:
    return sorted(sorted(divisors(number), key=lambda divisor: (abs(divisor - wanted), divisor))[:6])


def traits_assumed(fields: Mapping[str, object]) -> list[str]:
    """Return, as text, the traits of Llama for properties that a description without ``model_type`` leaves open."""
    words = {
        "gated_mlp": "a gated MLP",
        "normalization": "RMS normalisation",
        "position_embedding": "rotary positions",
        "tie_word_embeddings": "an output head of its own",
        "qkv_bias": "no biases",
        "dropout": "no dropout",
    }
    return [text for name, text in words.items() if name not in fields]
