"""Facts about a model that follow from a Hugging Face ``model_type``, beyond the numbers in its configuration.

Each row was compared with the model that the Hugging Face code builds from such a configuration, parameter for parameter; the
types whose code lies with the weights (``baichuan``, ``chatglm``, ``internlm2``, ``qwen``) and those newer than Transformers 4.57
(``deepseek_v32``, ``glm4_moe_lite``, ``glm_moe_dsa``, ``minimax_m2``) with their published counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from clustersim.documents.text import Data
from clustersim.workloads.reading.model_adapters import (
    bert,
    chatglm,
    cohere,
    dbrx,
    distilbert,
    ernie,
    every_so_many,
    exaone,
    falcon,
    gpt_bigcode,
    gpt_neo,
    llama4,
    mamba,
    mpt,
    opt,
    qwen,
    qwen_windows,
    roberta,
    stablelm,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """One ``model_type``: what it implies, and how its configuration spells the rest."""

    defaults: Mapping[str, Data]
    """Fields of the model specification that differ from Llama's."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Configuration keys of this type, and the fields that each one sets."""
    adapt: Callable[[Mapping[str, Data]], dict[str, Data]] | None = None
    """Function for fields that follow from several keys, which no table can say."""
    has_states: bool = False
    """Whether its configuration has keys of layers with a state, and they are read."""


ATTENTION: Final = ("qkv_bias", "attention_output_bias")
ALL_BIASES: Final = (*ATTENTION, "mlp_bias")
BIAS_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({"attention_bias": ATTENTION, "mlp_bias": ("mlp_bias",)})
_USE_BIAS: Final = {"use_bias": ALL_BIASES}
_BIAS: Final = {"bias": ALL_BIASES}


def _llama(keys: Mapping[str, tuple[str, ...]] = BIAS_KEYS, **defaults: Data) -> ModelFamily:
    return ModelFamily(defaults=defaults, keys=keys)


def _gpt(
    adapt: Callable[[Mapping[str, Data]], dict[str, Data]] | None = None,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    **changes: Data,
) -> ModelFamily:
    """Return a family with GPT-2's traits where they are not changed."""
    traits: dict[str, Data] = {
        "normalization": "layernorm",
        "position_embedding": "learned",
        "gated_mlp": False,
        "tie_word_embeddings": True,
        "qkv_bias": True,
        "attention_output_bias": True,
        "mlp_bias": True,
        "dropout": True,
    }
    return ModelFamily(defaults=traits | changes, keys=keys or {}, adapt=adapt)


def _bert(adapt: Callable[[Mapping[str, Data]], dict[str, Data]] = bert, **changes: Data) -> ModelFamily:
    traits: dict[str, Data] = {
        "causal": False,
        "type_vocab_size": 2,
        "embedding_normalization": True,
        "final_normalization": False,
        "pooler": True,
        "head_bias": True,
        "head_transform": True,
    }
    return _gpt(adapt, {"type_vocab_size": ("type_vocab_size",)}, **(traits | changes))


def _gptj() -> ModelFamily:
    return _gpt(
        position_embedding="rope",
        tie_word_embeddings=False,
        qkv_bias=False,
        attention_output_bias=False,
        head_bias=True,
        norms_per_layer=1,
        parallel_residual=True,
        dropout=False,
    )


def _qwen_states() -> ModelFamily:
    """Return a family of Qwen whose layers have a gated delta network, but for every fourth."""
    traits: dict[str, Data] = {"head_dim": 256, "qk_normalization": True, "attn_output_gate": True, "shared_expert_gate": True}
    return ModelFamily(defaults=traits, keys={"attention_bias": ATTENTION}, adapt=every_so_many, has_states=True)


def _mamba_hybrid() -> ModelFamily:
    keys = {
        "attention_bias": ATTENTION,
        "mlp_bias": ("mlp_bias",),
        "mamba_n_groups": ("linear_num_key_heads",),
        "mamba_d_state": ("linear_key_head_dim",),
        "mamba_n_heads": ("linear_num_value_heads",),
        "mamba_d_conv": ("linear_conv_kernel_dim",),
        "mamba_conv_bias": ("linear_conv_bias",),
        "mamba_chunk_size": ("linear_chunk_size",),
    }
    own: dict[str, Data] = {"linear_rule": "decay", "linear_conv_bias": True, "linear_chunk_size": 256, "linear_num_key_heads": 1}
    return ModelFamily(defaults=own, keys=keys, adapt=mamba, has_states=True)


def _deepseek(**changes: Data) -> ModelFamily:
    """Return a family with latent attention; its configuration gives all ranks and widths."""
    return _llama({"attention_bias": ATTENTION}, **changes)


FAMILIES: Final[Mapping[str, ModelFamily]] = MappingProxyType(
    {
        "arcee": _llama(gated_mlp=False),
        "baichuan": _llama({}),
        **dict.fromkeys(("bamba", "granitemoehybrid"), _mamba_hybrid()),
        "bert": _bert(),
        "bloom": _gpt(
            keys={"seq_length": ("max_position_embeddings",)}, position_embedding="alibi", embedding_normalization=True, dropout=False
        ),
        "camembert": _bert(roberta),
        "chatglm": ModelFamily(
            defaults={"qkv_bias": True},
            keys={
                "add_qkv_bias": ("qkv_bias",),
                "add_bias_linear": ("attention_output_bias", "mlp_bias"),
                "seq_length": ("max_position_embeddings",),
            },
            adapt=chatglm,
        ),
        "codegen": _gptj(),
        "cohere": ModelFamily(
            defaults={
                "normalization": "layernorm",
                "normalization_vectors": 1,
                "norms_per_layer": 1,
                "parallel_residual": True,
                "tie_word_embeddings": True,
            },
            keys={"attention_bias": ATTENTION},
            adapt=cohere,
        ),
        "cohere2": _llama(
            {"attention_bias": ATTENTION},
            sliding_window_pattern=4,
            normalization="layernorm",
            normalization_vectors=1,
            norms_per_layer=1,
            parallel_residual=True,
            tie_word_embeddings=True,
        ),
        "dbrx": ModelFamily(defaults={"normalization": "layernorm", "normalization_vectors": 1}, adapt=dbrx),
        **dict.fromkeys(("deepseek_v2", "mistral4"), _deepseek()),
        **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2"), _deepseek(scoring_func="sigmoid")),
        "distilbert": _bert(distilbert, type_vocab_size=0, pooler=False),
        "ernie4_5_moe": ModelFamily(
            defaults={"tie_word_embeddings": True},
            keys={
                **_USE_BIAS,
                "moe_layer_start_index": ("first_k_dense_replace",),
                "moe_layer_interval": ("decoder_sparse_step",),
            },
            adapt=ernie,
        ),
        "ernie4_5": _llama(_USE_BIAS, head_dim=128, tie_word_embeddings=True),
        "exaone4": ModelFamily(defaults={"qk_normalization": True, "sliding_window_pattern": 4}, adapt=exaone),
        "falcon": _gpt(
            falcon,
            _BIAS,
            position_embedding="rope",
            qkv_bias=False,
            attention_output_bias=False,
            mlp_bias=False,
            dropout=False,
            parallel_residual=True,
        ),
        "gemma": _llama(head_dim=256, tie_word_embeddings=True),
        "gemma2": _llama(head_dim=256, tie_word_embeddings=True, norms_per_layer=4, sliding_window_pattern=2),
        "gemma3_text": _llama(head_dim=256, tie_word_embeddings=True, norms_per_layer=4, qk_normalization=True, sliding_window_pattern=6),
        "glm": _llama({"attention_bias": ("qkv_bias",)}, head_dim=128, qkv_bias=True),
        "glm4": _llama({"attention_bias": ("qkv_bias",)}, head_dim=128, qkv_bias=True, norms_per_layer=4),
        **dict.fromkeys(
            ("glm4_moe", "glm4v_moe"),
            _llama({"attention_bias": ("qkv_bias",), "use_qk_norm": ("qk_normalization",)}, scoring_func="sigmoid"),
        ),
        "gpt2": _gpt(),
        "gpt_bigcode": _gpt(gpt_bigcode),
        "gpt_neo": _gpt(gpt_neo, {"window_size": ("sliding_window",)}, qkv_bias=False, dropout=False),
        "gpt_neox": _gpt(
            keys={"attention_bias": ATTENTION, "use_parallel_residual": ("parallel_residual",)},
            position_embedding="rope",
            tie_word_embeddings=False,
            parallel_residual=True,
            dropout=False,
        ),
        "gpt_oss": _llama(
            {"attention_bias": ATTENTION},
            head_dim=64,
            qkv_bias=True,
            attention_output_bias=True,
            router_bias=True,
            expert_bias=True,
            swiglu_limit=7.0,
            attention_sinks=True,
            sliding_window_pattern=2,
            position_embedding="yarn",
        ),
        "gptj": _gptj(),
        "granite": _llama(),
        "granitemoe": _llama(),
        "grok-1": _llama({}, norms_per_layer=4, tie_word_embeddings=True),
        "hunyuan_v1_dense": _llama({"attention_bias": ATTENTION}, qk_normalization=True),
        "hunyuan_v1_moe": _llama(
            {"attention_bias": ATTENTION, "use_qk_norm": ("qk_normalization",), "num_shared_expert": ("num_shared_experts",)},
            qk_normalization=True,
        ),
        "internlm2": _llama({"bias": ATTENTION}),
        "llama": _llama(),
        "llama4_text": ModelFamily(
            defaults={"sliding_window_pattern": 4, "num_shared_experts": 1, "scoring_func": "sigmoid"},
            keys={"attention_bias": ATTENTION},
            adapt=llama4,
        ),
        "minimax_m2": _llama(
            {"use_qk_norm": ("qk_normalization",)}, qk_normalization=True, qk_normalization_shared=False, scoring_func="sigmoid"
        ),
        **dict.fromkeys(("mistral", "ministral3"), _llama({})),
        "mixtral": _llama({}),
        "mpt": _gpt(
            mpt,
            position_embedding="alibi",
            qkv_bias=False,
            attention_output_bias=False,
            mlp_bias=False,
            normalization_vectors=1,
            dropout=False,
        ),
        "nemotron": _llama(gated_mlp=False, normalization="layernorm"),
        "olmo": _llama({"attention_bias": ATTENTION}, normalization="layernorm", normalization_vectors=0),
        "olmo2": _llama({"attention_bias": ATTENTION}, qk_normalization=True, qk_normalization_shared=False),
        "olmo3": _llama({"attention_bias": ATTENTION}, qk_normalization=True, qk_normalization_shared=False, sliding_window_pattern=4),
        "olmoe": _llama({"attention_bias": ATTENTION}, qk_normalization=True, qk_normalization_shared=False),
        "opt": _gpt(opt, {"enable_bias": ALL_BIASES}, unused_positions=2),
        "phi": _gpt(
            position_embedding="rope",
            tie_word_embeddings=False,
            head_bias=True,
            norms_per_layer=1,
            parallel_residual=True,
            dropout=False,
        ),
        "phi3": _llama({}),
        "phimoe": _llama({"attention_bias": ATTENTION, "lm_head_bias": ("head_bias",)}, normalization="layernorm"),
        "qwen": ModelFamily(defaults={"qkv_bias": True}, adapt=qwen),
        **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_5_vl"), ModelFamily(defaults={"qkv_bias": True}, adapt=qwen_windows)),
        "qwen2_moe": ModelFamily(defaults={"qkv_bias": True, "shared_expert_gate": True}, adapt=qwen_windows),
        **dict.fromkeys(
            ("qwen3", "qwen3_vl"),
            ModelFamily(defaults={"head_dim": 128, "qk_normalization": True}, keys={"attention_bias": ATTENTION}, adapt=qwen_windows),
        ),
        **dict.fromkeys(
            ("qwen3_moe", "qwen3_vl_moe", "qwen3_omni_moe"),
            ModelFamily(defaults={"qk_normalization": True}, keys={"attention_bias": ATTENTION}, adapt=qwen_windows),
        ),
        **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_next"), _qwen_states()),
        "roberta": _bert(roberta),
        "seed_oss": _llama(
            {"attention_bias": ("qkv_bias",), "attention_out_bias": ("attention_output_bias",), "mlp_bias": ("mlp_bias",)},
            head_dim=128,
            qkv_bias=True,
        ),
        "smollm3": _llama(tie_word_embeddings=True),
        "stablelm": ModelFamily(defaults={"normalization": "layernorm"}, keys={"use_qkv_bias": ("qkv_bias",)}, adapt=stablelm),
        "starcoder2": _gpt(keys=_USE_BIAS, position_embedding="rope"),
        "xglm": _gpt(position_embedding="none"),
        "xlm-roberta": _bert(roberta),
    }
)
"""Models by ``model_type``."""

_EXPERTS: Final = "a mixture of experts whose layers are put together otherwise than those that are known here"
_HEADS: Final = "a model whose layers that see the whole sequence have heads of another width"
_RECURRENT: Final = "a recurrent or state-space model of a kind that is not known here"
_TWO_TOWERS: Final = "an encoder and a decoder"
_PICTURES: Final = "a model with more than text"
_SHARED: Final = "a model whose layers share their weights"

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("jetmoe", "longcat_flash"), _EXPERTS),
        **dict.fromkeys(("gemma4", "gemma4_text"), _HEADS),
        **dict.fromkeys(
            ("kimi_linear", "minimax_text", "minimax_m1", "nvidia_nemotron"),
            _RECURRENT,
        ),
        **dict.fromkeys(("falcon_h1", "falcon_mamba", "jamba", "lfm2", "mamba", "mamba2", "nemotron_h"), _RECURRENT),
        **dict.fromkeys(("recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2"), _RECURRENT),
        **dict.fromkeys(
            ("switch_transformers", "bart", "blenderbot", "led", "longt5", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5"),
            _TWO_TOWERS,
        ),
        **dict.fromkeys(("clip", "gemma3n", "mllama", "vit", "whisper"), _PICTURES),
        "albert": _SHARED,
    }
)
"""Known types that cannot be described as a transformer here, and the reason."""
