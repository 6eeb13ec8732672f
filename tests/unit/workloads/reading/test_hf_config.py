"""Configurations of the Hugging Face Hub become the models that the Hub's own code would build."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.reading.hf_config import ModelDocument, config_fields, parse_config
from clustersim.workloads.reading.model_families import model_families
from clustersim.workloads.reading.model_spec import LoadedModel, load_model
from clustersim.workloads.transformer_shape import Experts
from tests.unit.config.inline_models import SMALL
from tests.unit.config.samples import transformer_of

# Two small configurations of each type, and how many parameters Hugging Face transformers 4.57.6 gives the model that it builds from
# them: the class with the output head, shared tables counted once. One is as the library saves it, one has only the sizes.
CASES = json.loads((Path(__file__).parent / "hf_counts.json").read_text(encoding="utf-8"))

# Types whose code lies with the weights, or that are newer, with the published counts of their models. The card of MiniMax M2 prints
# 229B. Those of ERNIE 4.5 and Hunyuan print 21B and 80B; their counts here are sums over the tensors that the cards describe.
REMOTE = json.loads((Path(__file__).parent / "hf_published.json").read_text(encoding="utf-8"))

GPT2: dict[str, Data] = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_positions": 16}


def imported(tmp_path: Path, config: dict[str, Data]) -> LoadedModel:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return load_model(f"hf:{path}")


def refused(tmp_path: Path, config: dict[str, Data]) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        imported(tmp_path, config)
    return caught.value


def codes(loaded: LoadedModel) -> list[str]:
    return [code for code, _ in loaded.flags]


@pytest.mark.parametrize("case", CASES, ids=[case["config"]["model_type"] for case in CASES])
def test_an_imported_model_has_the_parameters_that_the_library_gives_it(tmp_path: Path, case: dict[str, dict[str, Data]]) -> None:
    loaded = imported(tmp_path, case["config"])
    model = transformer_of(loaded)

    # The library leaves out the modules that predict further tokens.
    assert replace(model, n_mtp=0).n_parameters == case["parameters"]
    assert "model_type_unknown" not in codes(loaded)


@pytest.mark.parametrize("case", REMOTE, ids=[case["config"]["model_type"] for case in REMOTE])
def test_a_type_with_code_of_its_own_has_its_published_parameters(tmp_path: Path, case: dict[str, dict[str, Data]]) -> None:
    assert transformer_of(imported(tmp_path, case["config"])).n_parameters == case["parameters"]


def test_every_known_type_is_counted_here() -> None:
    counted = {case["config"]["model_type"] for case in [*CASES, *REMOTE]}
    alike = {kind for family in model_families().values() if counted & set(family.types) for kind in family.types}

    assert counted | alike == set(model_families())


def test_a_directory_means_the_config_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")

    assert transformer_of(load_model(f"hf:{tmp_path}")).hidden_size == 64


def test_an_imported_model_is_named_after_the_repository_or_its_directory(tmp_path: Path) -> None:
    assert imported(tmp_path, {**SMALL, "_name_or_path": "maker/Tiny-7b"}).model.name == "Tiny-7b"
    assert imported(tmp_path, SMALL).model.name == tmp_path.name


def test_keys_that_we_do_not_know_are_fine(tmp_path: Path) -> None:
    loaded = imported(tmp_path, {**SMALL, "torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0}, "eos_token_id": [1, 2]})

    assert loaded.flags == ()


def test_an_unknown_type_is_taken_as_llama_and_flagged(tmp_path: Path) -> None:
    loaded = imported(tmp_path, {**SMALL, "model_type": "brand_new", "attention_bias": True})

    assert codes(loaded) == ["model_type_unknown"]
    assert transformer_of(loaded).gated_mlp
    assert transformer_of(loaded).qkv_bias


def test_a_file_without_a_type_is_taken_as_llama_and_flagged(tmp_path: Path) -> None:
    config = {key: value for key, value in SMALL.items() if key != "model_type"}

    assert codes(imported(tmp_path, config)) == ["model_type_unknown"]


@pytest.mark.parametrize(("rate", "on"), [(0.1, True), (0.0, False)])
def test_dropout_is_on_where_a_rate_is_above_zero(tmp_path: Path, rate: float, on: bool) -> None:
    assert transformer_of(imported(tmp_path, {**GPT2, "resid_pdrop": rate})).dropout is on


def test_a_narrow_embedding_is_flagged(tmp_path: Path) -> None:
    config: dict[str, Data] = {**SMALL, "model_type": "opt", "ffn_dim": 256, "max_position_embeddings": 16, "word_embed_proj_dim": 32}

    assert codes(imported(tmp_path, config)) == ["embedding_width"]


def test_falcon_s_first_models_share_one_key_and_value_head(tmp_path: Path) -> None:
    falcon: dict[str, Data] = {**SMALL, "model_type": "falcon", "num_kv_heads": 2}

    assert transformer_of(imported(tmp_path, falcon)).n_kv_heads == 1
    assert transformer_of(imported(tmp_path, {**falcon, "multi_query": False})).n_kv_heads == 4
    assert transformer_of(imported(tmp_path, {**falcon, "new_decoder_architecture": True})).n_kv_heads == 2


def test_roberta_s_two_spare_rows_are_no_positions(tmp_path: Path) -> None:
    config: dict[str, Data] = {**SMALL, "model_type": "roberta", "max_position_embeddings": 514}

    model = transformer_of(imported(tmp_path, config))

    assert (model.max_positions, model.unused_positions) == (512, 2)


@pytest.mark.parametrize(("architecture", "pooler"), [("BertModel", True), ("BertForMaskedLM", False), ("BertForPreTraining", True)])
def test_bert_has_a_pooler_where_its_class_has_one(tmp_path: Path, architecture: str, pooler: bool) -> None:
    config: dict[str, Data] = {**SMALL, "model_type": "bert", "max_position_embeddings": 16, "architectures": [architecture]}

    assert transformer_of(imported(tmp_path, config)).pooler is pooler


def test_an_mpt_says_its_width_as_a_ratio(tmp_path: Path) -> None:
    config: dict[str, Data] = {
        "model_type": "mpt",
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 2,
        "vocab_size": 100,
        "max_seq_len": 16,
        "expansion_ratio": 3,
    }

    assert transformer_of(imported(tmp_path, config)).intermediate_size == 192


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"])
def test_a_missing_size_is_named_with_its_file(tmp_path: Path, key: str) -> None:
    error = refused(tmp_path, {name: value for name, value in SMALL.items() if name != key})

    assert error.field == key
    assert f"'{key}' is missing" in str(error)
    assert "config.json" in str(error)
    assert error.hint is not None
    assert error.hint.startswith("give the")


@pytest.mark.parametrize("value", [-1, 0, float("nan"), float("inf"), "64", 64.5, True, [64], {}])
def test_a_size_that_is_no_positive_whole_number_is_refused_at_its_place(tmp_path: Path, value: Data) -> None:
    error = refused(tmp_path, {**SMALL, "hidden_size": value})

    assert error.field == "hidden_size"
    assert error.place is not None
    assert (error.place.line, error.place.column) == (4, 18)


def test_an_error_names_the_key_that_the_file_uses(tmp_path: Path) -> None:
    error = refused(tmp_path, {**GPT2, "n_embd": -64})

    assert error.field == "n_embd"
    assert error.place is not None
    assert error.place.line == 4


def test_heads_that_do_not_divide_the_hidden_size_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, {**SMALL, "num_attention_heads": 5})

    assert error.message == "5 heads do not divide hidden_size 64"
    assert error.place is not None
    assert error.place.line == 5


def test_key_and_value_heads_must_divide_the_heads(tmp_path: Path) -> None:
    error = refused(tmp_path, {**SMALL, "num_key_value_heads": 3})

    assert error.message == "3 does not divide 4 attention heads"
    assert error.hint == "use 1, 2 or 4"


def test_a_mixture_of_an_unknown_type_is_taken_as_llama_with_experts(tmp_path: Path) -> None:
    loaded = imported(tmp_path, {**SMALL, "model_type": "brand_new", "num_local_experts": 8, "num_experts_per_tok": 2})

    assert transformer_of(loaded).experts == Experts(n_experts=8, top_k=2, intermediate_size=128)
    assert codes(loaded) == ["model_type_unknown"]


def test_keys_of_experts_and_ranks_mean_nothing_without_them(tmp_path: Path) -> None:
    dense = imported(tmp_path, {**SMALL, "n_routed_experts": None, "num_experts_per_tok": 8, "v_head_dim": 16})

    assert transformer_of(dense) == transformer_of(imported(tmp_path, SMALL))


def test_sparse_attention_is_a_flag(tmp_path: Path) -> None:
    loaded = imported(tmp_path, {**SMALL, "model_type": "deepseek_v32", "index_topk": 2048})

    assert codes(loaded) == ["left_out"]


def test_the_text_part_of_llama_4_is_read_and_the_rest_left_out(tmp_path: Path) -> None:
    text = {**SMALL, "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1}
    both: dict[str, Data] = {"model_type": "llama4", "text_config": text, "vision_config": {"hidden_size": 8}}

    assert transformer_of(imported(tmp_path, both)) == transformer_of(imported(tmp_path, text))
    assert codes(imported(tmp_path, both)) == ["text_only"]


@pytest.mark.parametrize(
    ("kind", "more", "seen"),
    [
        ("mistral", {"sliding_window": 8}, "LLLL"),
        ("gemma2", {"sliding_window": 8}, "LGLG"),
        ("cohere2", {"sliding_window": 8}, "LLLG"),
        ("llama4_text", {"attention_chunk_size": 8}, "LLLG"),
        ("gemma2", {"sliding_window": 8, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, "GGGL"),
        ("exaone4", {"sliding_window": 8, "sliding_window_pattern": "LG"}, "LGLG"),
        ("gpt_neo", {"window_size": 8, "max_position_embeddings": 16}, "GLGL"),
        ("gpt_neo", {"window_size": 8, "max_position_embeddings": 16, "attention_types": [[["local", "local"], 2]]}, "LLLL"),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, "GGGL"),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 3}, "GGGG"),
        ("qwen2", {"sliding_window": 8}, "GGGG"),
    ],
)
def test_layers_with_a_window_are_those_of_the_type_s_pattern(tmp_path: Path, kind: str, more: dict[str, Data], seen: str) -> None:
    model = transformer_of(imported(tmp_path, {**SMALL, "model_type": kind, "num_hidden_layers": 4, **more}))

    assert "".join("L" if model.layer_kind(layer).windowed else "G" for layer in range(4)) == seen


def test_as_many_types_as_layers_are_needed(tmp_path: Path) -> None:
    error = refused(tmp_path, {**SMALL, "sliding_window": 8, "layer_types": ["full_attention"]})

    assert error.message == "there are 1 types for 2 layers"
    assert error.place is not None


@pytest.mark.parametrize(
    ("more", "moe"),
    [
        ({"first_k_dense_replace": 2}, "--ee"),
        ({"decoder_sparse_step": 2}, "-e-e"),
        ({"interleave_moe_layer_step": 2}, "-e-e"),
        ({"moe_layer_freq": 2}, "e-e-"),
        ({"mlp_only_layers": [0, 3]}, "-ee-"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, "--e-"),
        ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1}, "-eee"),
        ({"model_type": "ernie4_5_moe", "moe_layer_interval": 2}, "-e-e"),
        ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 1, "moe_layer_end_index": 2}, "-ee-"),
    ],
)
def test_layers_with_experts_are_those_of_the_configuration(tmp_path: Path, more: dict[str, Data], moe: str) -> None:
    config = {**SMALL, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 1, **more}
    model = transformer_of(imported(tmp_path, config))

    assert "".join("e" if model.layer_kind(layer).experts else "-" for layer in range(4)) == moe


def test_one_expert_is_dense(tmp_path: Path) -> None:
    assert imported(tmp_path, {**SMALL, "num_local_experts": 1}).flags == ()


@pytest.mark.parametrize("key", ["shared_expert_gate", "router_bias", "swiglu_limit", "linear_rule", "attention_sinks"])
def test_a_key_that_only_our_files_give_is_not_read_from_the_hub(tmp_path: Path, key: str) -> None:
    assert imported(tmp_path, {**SMALL, key: 1}).model == imported(tmp_path, SMALL).model


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(("spelling", "position"), [("rope_type", "yarn"), ("type", "yarn"), ("factor", "rope")])
def test_yarn_is_read_in_each_spelling_of_the_library(tmp_path: Path, key: str, spelling: str, position: str) -> None:
    scaling: Data = {"factor": 4.0, spelling: position if position == "yarn" else 4.0}

    assert transformer_of(imported(tmp_path, {**SMALL, "model_type": "qwen2", key: scaling})).position == position


def test_yarn_of_latent_attention_is_left_to_its_own_rotation(tmp_path: Path) -> None:
    latent: dict[str, Data] = {"kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    config: dict[str, Data] = {**SMALL, **latent, "model_type": "deepseek_v2", "rope_scaling": {"type": "yarn", "factor": 40}}

    assert transformer_of(imported(tmp_path, config)).position == "rope"


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"model_type": "t5"}, "model_type", "an encoder and a decoder"),
        ({"model_type": "mamba2"}, "model_type", "state-space"),
        ({"model_type": "albert"}, "model_type", "share their weights"),
        ({"model_type": "strange", "linear_num_key_heads": 2}, "linear_num_key_heads", "this is a recurrent or state-space"),
        ({"model_type": "qwen2", "ssm_cfg": {"layer": "Mamba2"}}, "ssm_cfg", "this is a recurrent or state-space"),
        ({"model_type": "qwen2_moe", "mamba_d_state": 16}, "mamba_d_state", "this is a recurrent or state-space"),
        ({"model_type": "hunyuan_v1_moe", "use_cla": True}, "use_cla", "share keys and values"),
        ({"model_type": "hunyuan_v1_moe", "use_mixed_mlp_moe": False}, "use_mixed_mlp_moe", "no shared experts in some"),
        ({"model_type": "gemma3n"}, "model_type", "more than text"),
        ({"model_type": "switch_transformers"}, "model_type", "an encoder and a decoder"),
        ({"model_type": "strange", "is_encoder_decoder": True}, "is_encoder_decoder", "an encoder and a decoder"),
    ],
)
def test_what_is_no_plain_transformer_is_refused(tmp_path: Path, config: dict[str, Data], field: str, words: str) -> None:
    error = refused(tmp_path, {**SMALL, **config})

    assert error.field == field
    assert words in error.message


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_the_language_model_of_any_model_of_pictures_is_read(tmp_path: Path, key: str) -> None:
    found = imported(tmp_path, {"model_type": "strange", "thinker_config": {key: {**SMALL}, "vision_config": {}}})

    assert transformer_of(found) == transformer_of(imported(tmp_path, SMALL))
    assert codes(found) == ["text_only"]


def test_a_key_without_a_value_says_nothing(tmp_path: Path) -> None:
    loaded = imported(tmp_path, {**SMALL, "linear_attn_config": None, "use_cla": None, "vision_config": None})

    assert loaded.flags == ()


def test_a_list_of_equal_numbers_for_each_layer_is_the_number(tmp_path: Path) -> None:
    config = {**SMALL, "num_experts": 4, "num_shared_experts": 1}

    listed = imported(tmp_path, {**config, "moe_topk": [2, 2], "moe_intermediate_size": [8, 8]})

    assert transformer_of(listed) == transformer_of(imported(tmp_path, {**config, "moe_topk": 2, "moe_intermediate_size": 8}))


def test_places_are_those_of_the_top_level_keys_only() -> None:
    text = '{\r\n\t"inner": {"hidden_size": 1, "odd \\" key": "}{"},\r\n\t"hidden_size" : 64\r\n}'

    document = parse_config(text, "config.json")

    value, key = document.place(("hidden_size",)), document.place(("hidden_size",), key=True)
    assert (value.line, value.column) == (3, 18)
    assert (key.line, key.column) == (3, 2)


def test_the_hub_s_own_spelling_goes_before_the_others() -> None:
    document = parse_config(json.dumps({**SMALL, "dim": 32}), "config.json")

    reading = config_fields(ModelDocument(document=document), document.data)

    assert reading.fields["hidden_size"] == 64
