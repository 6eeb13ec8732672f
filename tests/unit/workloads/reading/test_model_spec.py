"""Models by name, by file and in the scenario itself; what is wrong with one is said at its place."""

from __future__ import annotations

import pytest

from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.model_spec import load_model
from clustersim.workloads.transformer import Transformer
from clustersim.workloads.transformer_shape import Experts
from tests.unit.config.inline_models import SMALL, inline, refused, without
from tests.unit.config.samples import transformer_of


def test_an_inline_model_has_the_sizes_that_are_written() -> None:
    loaded = inline(without(num_key_value_heads=2, head_dim=32, max_position_embeddings=512))

    assert loaded.model == Transformer(
        name="model",
        n_layers=2,
        hidden_size=64,
        n_heads=4,
        n_kv_heads=2,
        head_dim=32,
        intermediate_size=128,
        vocab_size=100,
        max_positions=512,
        tied_embeddings=False,
        gated_mlp=True,
        normalization="rmsnorm",
        position="rope",
        linear_bias=False,
        qkv_bias=False,
        mlp_bias=False,
        causal=True,
        dropout=False,
    )
    assert loaded.flags == ()


def test_a_mapping_needs_no_document() -> None:
    assert load_model(SMALL).model.n_layers == 2


def test_an_error_in_a_mapping_without_a_document_names_the_field() -> None:
    with pytest.raises(ScenarioError, match="model: hidden_size: -1 is out of range"):
        load_model({**SMALL, "hidden_size": -1})


@pytest.mark.parametrize(
    "spelling",
    [
        {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "ffn_hidden_size": 128, "padded_vocab_size": 100, "kv_channels": 16},
        {"n_layers": 2, "dim": 64, "n_heads": 4, "n_kv_heads": 4, "intermediate_size": 128, "vocab_size": 100},
        {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_inner": 128, "vocab_size": 100},
        {"n_layers": 2, "d_model": 64, "n_heads": 4, "ffn_dim": 128, "vocab_size": 100},
        {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 4, "ffn_hidden_size": 128, "vocab_size": 100},
    ],
)
def test_every_framework_s_spelling_gives_the_same_model(spelling: dict[str, Data]) -> None:
    assert inline({"model_type": "llama", **spelling}).model == inline(SMALL).model


@pytest.mark.parametrize(
    ("keys", "field", "value"),
    [
        ({"swiglu": False}, "gated_mlp", False),
        ({"untie_embeddings_and_output_weights": False}, "tied_embeddings", True),
        ({"normalization": "LayerNorm"}, "normalization", "layernorm"),
        ({"position_embedding_type": "learned_absolute", "max_position_embeddings": 8}, "position", "learned"),
        ({"position_embedding": "alibi"}, "position", "none"),
        ({"n_positions": 77}, "max_positions", 77),
        ({"qk_layernorm": True}, "qk_normalization", True),
        ({"add_qkv_bias": True}, "qkv_bias", True),
        ({"attention_bias": True}, "linear_bias", True),
        ({"add_bias_linear": True}, "mlp_bias", True),
        ({"dropout": True}, "dropout", True),
        ({"type_vocab_size": 2}, "n_token_types", 2),
        ({"unused_positions": 2}, "unused_positions", 2),
        ({"qk_normalization_shared": False}, "qk_normalization_shared", False),
        ({"norms_per_layer": 4}, "norms_per_layer", 4),
        ({"normalization_vectors": 0}, "normalization_vectors", 0),
        ({"embedding_normalization": True}, "embedding_normalization", True),
        ({"final_normalization": False}, "final_normalization", False),
        ({"pooler": True}, "pooler", True),
        ({"lm_head": False}, "lm_head", False),
        ({"head_bias": True}, "head_bias", True),
        ({"head_transform": True}, "head_transform", True),
        ({"causal": False}, "causal", False),
        ({"published_scope": "backbone"}, "published_scope", "backbone"),
    ],
)
def test_each_key_sets_its_trait(keys: dict[str, Data], field: str, value: Data) -> None:
    assert getattr(inline({**SMALL, **keys}).model, field) == value
    assert getattr(inline(SMALL).model, field) != value


def test_a_field_of_its_own_goes_before_a_key_that_sets_several() -> None:
    model = transformer_of(inline(without(attention_bias=True, qkv_bias=False)))

    assert not model.qkv_bias
    assert model.linear_bias


def test_two_spellings_of_one_thing_may_agree() -> None:
    assert inline(without(num_layers=2)).model.n_layers == 2


def test_two_spellings_of_one_thing_may_not_differ() -> None:
    error = refused(without(num_layers=3))

    assert error.message == "'num_layers: 3' contradicts 'num_hidden_layers: 2'"
    assert error.field == "model.num_layers"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (9, 15)


def test_an_opposite_spelling_may_not_contradict() -> None:
    error = refused(without(tie_word_embeddings=True, untie_embeddings_and_output_weights=True))

    assert error.field == "model.untie_embeddings_and_output_weights"


def test_an_unknown_key_is_refused_with_its_nearest() -> None:
    error = refused(without("hidden_size", hiden_size=64))

    assert error.message == "unknown field 'hiden_size'"
    assert error.hint == "did you mean 'hidden_size'?"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (8, 3)


def test_a_pasted_hub_configuration_is_shown_the_way() -> None:
    error = refused(without(rope_theta=10000.0))

    assert error.hint is not None
    assert "hf:path/to/config.json" in error.hint


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"])
def test_a_missing_size_is_named_with_what_it_is(key: str) -> None:
    error = refused(without(key))

    assert error.message == f"'{key}' is missing"
    assert error.field == f"model.{key}"
    assert error.hint is not None
    assert error.hint.startswith("give the")


def test_an_empty_value_is_a_missing_one() -> None:
    assert refused({**SMALL, "hidden_size": None}).message == "'hidden_size' is missing"


def test_learned_positions_need_their_number() -> None:
    assert refused(without(position_embedding="learned")).field == "model.max_position_embeddings"


@pytest.mark.parametrize("value", [0, -3, 1.5, "64", True, [64], 10**9])
def test_a_size_that_cannot_be_is_refused_at_its_value(value: Data) -> None:
    error = refused({**SMALL, "num_hidden_layers": value})

    assert error.field == "model.num_hidden_layers"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (4, 22)


def test_an_error_names_the_key_that_was_written() -> None:
    error = refused(without("hidden_size", dim=-64))

    assert error.field == "model.dim"
    assert error.place is not None
    assert error.place.line == 8


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gated_mlp", "yes", "is not true or false"),
        ("normalization", "batchnorm", "is not one of layernorm, rmsnorm"),
        ("position_embedding", "sinus", "is not one of learned, rope, yarn, alibi, none"),
        ("published_parameters_rounded", "huge", "is not a rounded count"),
        ("published_parameters_rounded", "-1B", "is not a rounded count"),
        ("published_parameters_rounded", "NaNB", "is not a rounded count"),
        ("norms_per_layer", 3, "is not one of 1, 2, 4"),
        ("sources", [{"title": "x", "url": "y", "covers": []}], ""),
    ],
)
def test_a_trait_that_cannot_be_is_refused(key: str, value: Data, words: str) -> None:
    error = refused({**SMALL, key: value})

    assert error.field is not None
    assert error.field.startswith(f"model.{key}")
    assert words in error.message


def test_experts_take_the_width_of_the_mlp_unless_they_have_their_own() -> None:
    mixture: dict[str, Data] = {**SMALL, "num_experts": 8, "num_experts_per_tok": 2}

    plain, wide = (transformer_of(inline(each)).experts for each in (mixture, {**mixture, "moe_intermediate_size": 32}))

    assert plain == Experts(n_experts=8, top_k=2, intermediate_size=128)
    assert wide == Experts(n_experts=8, top_k=2, intermediate_size=32)


def test_shared_experts_are_as_wide_as_routed_ones_or_have_a_width_of_their_own() -> None:
    mixture: dict[str, Data] = {**SMALL, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    counted = transformer_of(inline({**mixture, "num_shared_experts": 2})).experts
    given = transformer_of(inline({**mixture, "shared_expert_intermediate_size": 80})).experts

    assert counted is not None
    assert given is not None
    assert (counted.shared_size, given.shared_size) == (64, 80)


def test_a_model_of_experts_alone_needs_no_width_of_an_mlp() -> None:
    mixture: dict[str, Data] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

    assert transformer_of(inline(without("intermediate_size", **mixture))).intermediate_size == 32
    error = refused(without("intermediate_size", **mixture, first_k_dense_replace=1))
    assert (error.field, error.message) == ("model.intermediate_size", "layers such as 0 have an MLP whose width is not given")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "n_group": 3}, "n_group"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 5}, "topk_group"),
        ({"num_experts_per_tok": 2}, "num_experts_per_tok"),
        ({"n_shared_experts": 1}, "n_shared_experts"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"kv_lora_rank": 512, "qk_nope_head_dim": 8, "v_head_dim": 8}, "qk_rope_head_dim"),
        ({"q_lora_rank": 512}, "q_lora_rank"),
        ({"sliding_window": 4, "layer_types": ["full_attention"]}, "layer_types"),
        ({"sliding_window": 0}, "sliding_window"),
    ],
)
def test_what_belongs_together_is_given_together(wrong: dict[str, Data], field: str) -> None:
    error = refused({**SMALL, **wrong})

    assert error.field == f"model.{field}"
    assert error.place is not None


def test_heads_of_latent_attention_need_not_divide_the_hidden_size() -> None:
    ranks: dict[str, Data] = {"kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}

    model = transformer_of(inline({**SMALL, **ranks, "num_attention_heads": 5, "num_key_value_heads": 1}))

    assert (model.head_dim, model.value_dim, model.n_kv_heads) == (20, 10, 5)


def test_an_unknown_model_type_is_refused_with_its_nearest() -> None:
    error = refused(without(model_type="lama"))

    assert error.field == "model.model_type"
    assert error.hint == "did you mean 'llama'?"


def test_a_type_that_is_known_and_not_modelled_is_told_apart_from_an_unknown_one() -> None:
    error = refused(without(model_type="mamba"))

    assert "state-space" in error.message
    assert error.hint == "only transformers of text are read; other models can be described layer by layer"


def test_a_model_type_brings_its_traits() -> None:
    model = transformer_of(inline(without("intermediate_size", model_type="gpt2", max_position_embeddings=16)))

    assert (model.position, model.normalization, model.tied_embeddings, model.qkv_bias) == ("learned", "layernorm", True, True)
    assert model.intermediate_size == 256


def test_a_written_trait_goes_before_that_of_the_type() -> None:
    loaded = inline(without("intermediate_size", model_type="gpt2", max_position_embeddings=16, dropout=False))

    assert not transformer_of(loaded).dropout


def test_what_is_assumed_without_a_type_is_flagged() -> None:
    ((code, message),) = inline(without("model_type", gated_mlp=False)).flags

    assert code == "model_assumed"
    assert "RMS normalisation" in message
    assert "gated" not in message


def test_nothing_is_assumed_where_everything_is_said() -> None:
    traits: dict[str, Data] = {
        "gated_mlp": True,
        "normalization": "rmsnorm",
        "position_embedding": "rope",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "dropout": False,
    }

    assert inline({**without("model_type"), **traits}).flags == ()


@pytest.mark.parametrize(("activation", "gated"), [("silu", True), ("SwiGLU", True), ("gelu", False), ("relu", False)])
def test_an_activation_tells_whether_there_is_a_gate(activation: str, gated: bool) -> None:
    assert transformer_of(inline(without("model_type", hidden_act=activation))).gated_mlp is gated
