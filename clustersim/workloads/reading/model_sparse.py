"""Keys of a model description for what not every layer has: experts, latent attention, windows, further predictions."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from clustersim.errors import ScenarioError
from clustersim.units.fields import PositiveInt
from clustersim.workloads.transformer_shape import Experts, LatentAttention, LinearAttention, Window

Width = Annotated[PositiveInt, Field(le=10_000_000)]
Count = Annotated[int, Field(strict=True, ge=0, le=10_000)]

LayerType = Literal["full_attention", "sliding_attention", "chunked_attention", "linear_attention"]

_OF_STATE: Final = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")
"""Sizes of layers with a state."""
_HEADS: Final = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
OF_LATENT: Final = ("q_lora_rank", *_HEADS)
"""Keys that matter only with ``kv_lora_rank``."""
OF_EXPERTS: Final = (
    "num_experts_per_tok",
    "moe_intermediate_size",
    "num_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "moe_layer_freq",
    "mlp_only_layers",
    "n_group",
    "topk_group",
)
"""Keys that matter only with ``num_experts``."""
OF_FAMILIES: Final = (
    "shared_expert_gate",
    "router_bias",
    "expert_bias",
    "swiglu_limit",
    "attention_sinks",
    "linear_conv_bias",
    "linear_rule",
    "linear_chunk_size",
)
"""Keys of ours alone: on the Hub they follow from the family, and the same name may mean another thing."""


class SparseSpec(BaseModel):
    """Experts, latent attention, windows and further predictions, with the key names of the Hugging Face Hub."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    num_experts: Annotated[PositiveInt, Field(le=100_000)] | None = Field(default=None, description="Routed experts of a layer.")
    num_experts_per_tok: PositiveInt | None = Field(default=None, description="Experts that a token is sent to.")
    moe_intermediate_size: Width | None = Field(default=None, description="Width of one expert. Default: intermediate_size.")
    num_shared_experts: Count = Field(default=0, description="Experts for every token, each as wide as a routed one.")
    shared_expert_intermediate_size: Width | None = Field(default=None, description="Their width together, where it is another.")
    shared_expert_gate: StrictBool = Field(default=False, description="One logit scales what the shared experts give.")
    first_k_dense_replace: Count = Field(default=0, description="So many first layers have an MLP instead of experts.")
    decoder_sparse_step: PositiveInt = Field(default=1, description="Every so many layers one has experts: the last of them.")
    moe_layer_freq: PositiveInt = Field(default=1, description="Every so many layers one has experts: the first of them.")
    mlp_only_layers: tuple[Count, ...] = Field(default=(), description="Numbers of layers that have an MLP instead.")
    router_bias: StrictBool = False
    expert_bias: StrictBool = False
    swiglu_limit: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = Field(
        default=None, description="What goes into the activation of experts is kept within it."
    )
    n_group: PositiveInt = Field(default=1, description="Groups of experts, of which a token takes topk_group.")
    topk_group: PositiveInt = 1
    scoring_func: Literal["softmax", "sigmoid"] = "softmax"
    q_lora_rank: Width | None = Field(default=None, description="Width of latent queries.")
    kv_lora_rank: Width | None = Field(default=None, description="Width of latent keys and values; makes attention latent.")
    qk_nope_head_dim: Width | None = Field(default=None, description="Part of a head without position.")
    qk_rope_head_dim: Width | None = Field(default=None, description="Rotated part of a head.")
    v_head_dim: Width | None = Field(default=None, description="Width of a head of values.")
    num_nextn_predict_layers: Annotated[int, Field(strict=True, ge=0, le=16)] = Field(default=0, description="Multi-token prediction.")
    sliding_window: PositiveInt | None = Field(default=None, description="Tokens that a token sees, itself included.")
    attention_chunk_size: PositiveInt | None = Field(default=None, description="Tokens of a piece that sees nothing but itself.")
    sliding_window_pattern: PositiveInt | None = Field(default=None, description="One of so many layers sees everything: the last.")
    layer_types: tuple[LayerType, ...] | None = Field(default=None, description="For each layer what it sees.")
    attention_sinks: StrictBool = False
    attn_output_gate: StrictBool = Field(default=False, description="A gate beside the queries scales what attention gives.")
    linear_num_key_heads: Width | None = Field(default=None, description="Key heads of layers with a state; of Mamba-2 its groups.")
    linear_key_head_dim: Width | None = Field(default=None, description="Width of a key; of Mamba-2 its state.")
    linear_num_value_heads: Width | None = Field(default=None, description="Heads of layers with a state, which makes some have one.")
    linear_value_head_dim: Width | None = Field(default=None, description="Width of a head of values.")
    linear_conv_kernel_dim: Annotated[PositiveInt, Field(le=1000)] = Field(default=4, description="Tokens of their convolution.")
    linear_conv_bias: StrictBool = False
    linear_rule: Literal["delta", "decay"] = Field(default="delta", description="`decay` is that of Mamba-2.")
    linear_chunk_size: Annotated[PositiveInt, Field(le=100_000)] = Field(default=64, description="Tokens of one chunk of their kernels.")

    @model_validator(mode="after")
    def _experts_are_whole(self) -> Self:
        if not self.has_experts:
            fields = type(self).model_fields
            stray = next((name for name in OF_EXPERTS if getattr(self, name) != fields[name].default), None)
            if stray is not None and self.num_experts is None:
                raise ScenarioError("there are no experts", field=stray, hint="give num_experts, or delete this")
            return self
        n_experts = self.num_experts or 0
        if self.num_experts_per_tok is None:
            raise ScenarioError(
                f"the number of the {n_experts} experts that each token goes to is missing",
                field="num_experts_per_tok",
                hint="write such as 2",
            )
        if self.num_experts_per_tok > n_experts:
            hint = f"use at most {n_experts}"
            raise ScenarioError(f"{self.num_experts_per_tok} of {n_experts} experts", field="num_experts_per_tok", hint=hint)
        if n_experts % self.n_group:
            raise ScenarioError(f"{self.n_group} groups do not divide {n_experts} experts", field="n_group", hint="use a divisor")
        if self.topk_group > self.n_group:
            raise ScenarioError(f"{self.topk_group} of {self.n_group} groups", field="topk_group", hint=f"use at most {self.n_group}")
        return self

    @model_validator(mode="after")
    def _latent_attention_is_whole(self) -> Self:
        given = [name for name in OF_LATENT if getattr(self, name) is not None]
        if self.kv_lora_rank is None:
            if given:
                hint = "give kv_lora_rank, or delete this"
                raise ScenarioError("this belongs to latent attention", field=given[0], hint=hint)
            return self
        missing = next((name for name in _HEADS if name not in given), None)
        if missing is not None:
            raise ScenarioError("latent attention needs it", field=missing, hint="such as 128, or 64 for the rotated part")
        return self

    @property
    def has_experts(self) -> bool:
        """Whether some layers have experts; one expert is an MLP."""
        return (self.num_experts or 0) > 1

    def dense_layers(self, n_layers: int) -> tuple[int, ...]:
        """Return the layers that have an MLP although the model has experts."""
        return tuple(
            layer
            for layer in range(n_layers)
            if layer < self.first_k_dense_replace
            or (layer + 1) % self.decoder_sparse_step
            or layer % self.moe_layer_freq
            or layer in self.mlp_only_layers
        )

    def experts(self, n_layers: int, *, intermediate_size: int) -> Experts | None:
        """Return the experts of a model, whose width is that of the MLP unless it is given."""
        if not self.has_experts:
            return None
        width = self.moe_intermediate_size or intermediate_size
        return Experts(
            n_experts=self.num_experts or 0,
            top_k=self.num_experts_per_tok or 0,
            intermediate_size=width,
            shared_size=self.shared_expert_intermediate_size or self.num_shared_experts * width,
            shared_gate=self.shared_expert_gate,
            dense_layers=self.dense_layers(n_layers),
            router_bias=self.router_bias,
            bias=self.expert_bias,
            clamped=self.swiglu_limit is not None,
            n_groups=self.n_group,
            topk_groups=self.topk_group,
            scores=self.scoring_func,
        )

    def latent(self) -> LatentAttention | None:
        """Return latent attention where its ranks are given."""
        nope, rope, value = self.qk_nope_head_dim, self.qk_rope_head_dim, self.v_head_dim
        if self.kv_lora_rank is None or nope is None or rope is None or value is None:
            return None
        return LatentAttention(
            q_lora_rank=self.q_lora_rank, kv_lora_rank=self.kv_lora_rank, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=value
        )

    def window(self, n_layers: int) -> Window | None:
        """Return the window of the layers that have one, from their types or from how often one sees everything."""
        tokens = self.attention_chunk_size if self.sliding_window is None else self.sliding_window
        if tokens is None:
            return None
        types, every = self._types(n_layers), self.sliding_window_pattern
        if types is not None:
            whole = tuple(layer for layer, kind in enumerate(types) if kind in ("full_attention", "linear_attention"))
        else:
            whole = tuple(layer for layer in range(n_layers) if every is not None and (layer + 1) % every == 0)
        if len(whole) == n_layers:
            return None
        return Window(tokens=tokens, chunked=self.sliding_window is None, global_layers=whole)

    def linear(self, n_layers: int) -> LinearAttention | None:
        """Return the layers with a state, by their types.

        Raises
        ------
        ScenarioError
            When such layers have no sizes, or sizes no such layers.
        """
        layers = tuple(layer for layer, kind in enumerate(self._types(n_layers) or ()) if kind == "linear_attention")
        sizes = {name: getattr(self, name) for name in _OF_STATE}
        given = [name for name, value in sizes.items() if value is not None]
        if not layers and given:
            raise ScenarioError("no layer has a state", field=given[0], hint="name such layers in layer_types: linear_attention")
        if not layers:
            return None
        if missing := [name for name in _OF_STATE if name not in given]:
            raise ScenarioError("layers with a state need it", field=missing[0], hint="such as 128, or 16 heads")
        key_heads, key_dim, value_heads, value_dim = sizes.values()
        if value_heads % key_heads:
            hint = f"use a divisor of {value_heads}"
            raise ScenarioError(f"{key_heads} key heads do not divide {value_heads} value heads", field="linear_num_key_heads", hint=hint)
        return LinearAttention(
            layers=layers,
            n_key_heads=key_heads,
            key_dim=key_dim,
            n_value_heads=value_heads,
            value_dim=value_dim,
            kernel=self.linear_conv_kernel_dim,
            kernel_bias=self.linear_conv_bias,
            delta=self.linear_rule == "delta",
            chunk=self.linear_chunk_size,
        )

    def _types(self, n_layers: int) -> tuple[LayerType, ...] | None:
        """Return the type of each layer, if given.

        Raises
        ------
        ScenarioError
            When there are not as many types as layers.
        """
        types = self.layer_types
        if types is not None and len(types) != n_layers:
            hint = "one for each layer, in order"
            raise ScenarioError(f"there are {len(types)} types for {n_layers} layers", field="layer_types", hint=hint)
        return types
