"""Tables of frameworks: every row names a setting that there is, and values that it can have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import clustersim
from clustersim.apps.importing.table import Foreign, Vocabulary, framework_names, load_table
from clustersim.config.presets import preset_names
from clustersim.config.serving_scenario import BatchWaitSpec, ReplicaPoolSpec, RequestsSpec, ServingSpec
from clustersim.parallel.settings import key_of
from clustersim.parallel.step_settings import DataParallelSettings, Training
from clustersim.parallel.training_plan import StrategySettings
from clustersim.workloads.reading.hub_names import shipped_name
from clustersim.workloads.reading.model_fields import ModelSpec
from clustersim.workloads.reading.model_spec import load_model, model_names

SECTIONS: Final = (
    ("strategy.data_parallel.", DataParallelSettings),
    ("strategy.", StrategySettings),
    ("training.", Training),
    ("model.", ModelSpec),
    ("serving.", ServingSpec),
    ("serving.batch_wait.", BatchWaitSpec),
    ("serving.disaggregated.prefill.", ReplicaPoolSpec),
    ("serving.disaggregated.decode.", ReplicaPoolSpec),
    ("requests.", RequestsSpec),
)
KEYS: Final = {
    "model",
    "cluster.node",
    *(f"{prefix}{key_of(name, field)}" for prefix, section in SECTIONS for name, field in section.model_fields.items()),
}


def targets(table: Vocabulary, *, facts: bool = False) -> set[str]:
    """Return all settings that a table sets, or the facts that others follow from."""
    found = {row.to for row in table.rows if row.to} | {default.to for default in table.defaults}
    for row in table.rows:
        for value in (row.values or {}).values():
            found |= set(value) if isinstance(value, dict) else set()
    return {key for key in found if key.startswith("job.") is facts}


def test_a_table_sets_keys_that_a_scenario_has() -> None:
    assert {name: missing for name in framework_names() if (missing := targets(load_table(name)) - KEYS)} == {}


def test_a_table_names_presets_and_models_that_are_shipped() -> None:
    tables = [load_table(name) for name in framework_names()]
    presets = {str(default.value) for table in tables for default in table.defaults if default.to == "strategy.preset"}
    for row in (row for table in tables for row in table.rows):
        for value in (row.values or {}).values():
            presets |= {str(value["strategy.preset"])} if isinstance(value, dict) and "strategy.preset" in value else set()

    assert presets <= set(preset_names())
    assert {model for table in tables for model in table.models.values()} <= set(model_names())


def test_every_fact_of_a_table_is_used() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in Path(clustersim.__file__).parent.glob("apps/importing/*.py"))
    for name in framework_names():
        table = load_table(name)
        asked = {key for default in table.defaults for key in default.where}
        facts = {key for key in targets(table, facts=True) if key not in asked and not key.startswith("job.offload_")}

        assert {key for key in facts if f'"{key}"' not in code and f'job("{key.removeprefix("job.")}")' not in code} == set(), name


def test_no_two_rows_of_a_table_have_one_key() -> None:
    for name in framework_names():
        keys = [key for row in load_table(name).file.rows for key in row.keys]
        assert sorted(keys) == sorted(set(keys)), name


@pytest.mark.parametrize(
    ("framework", "key", "meant"),
    [
        ("sglang", "mem_fraction_statc", "mem_fraction_static"),
        ("megatron_bridge", "model.moe_tokn_dispatcher_type", "moe_token_dispatcher_type"),
        ("nemo", "trainer.num_node", "trainer.num_nodes"),
        ("transformers", "launcher.fsdp_sharding_stratgy", "fsdp_sharding_strategy"),
        ("megatron_bridge", "model.fp4_recipe", None),
        ("vllm", "block_size", None),
        ("sglang", "tp_sixe", "tp_size"),
        ("sglang", "mem_fraction_statik", "mem_fraction_static"),
        ("maxtext", "lora_rank", None),
    ],
)
def test_a_pattern_hides_no_misspelt_key(framework: str, key: str, meant: str | None) -> None:
    assert load_table(framework).misspelt(key) == (None if meant is None else f"did you mean '{meant}'?")


@pytest.mark.parametrize("framework", ["sglang", "vllm"])
def test_an_option_of_a_server_is_known_by_its_name(framework: str) -> None:
    table = load_table(framework)

    assert table.has_no_effect("ssl_keyfile")
    assert not table.has_no_effect("ssl_keyfle")


def test_no_name_of_a_model_belongs_to_two() -> None:
    names = [other for name in model_names() if isinstance(spec := load_model(name).spec, ModelSpec) for other in spec.names]

    assert sorted(names) == sorted(set(names) - set(model_names()))


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("NousResearch/Llama-2-7b-hf", "llama2-7b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("llama3.1_70B", "llama3.1-70b"),
        ("/models/deepseek-v3/", "deepseek-v3"),
        ("zai-org/GLM-4.5-Air-FP8", "glm-4.5-air"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama3.3-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Devstral-Small-2507", "mistral-small-3.1-24b"),
        ("a/model-of-mine", None),
    ],
)
def test_a_name_of_the_hub_is_a_shipped_model(written: str, model: str | None) -> None:
    assert shipped_name(written) == model


def test_a_kind_of_file_in_other_words_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        Foreign.model_validate({"title": "Parquet", "kind": "a trase", "patterns": ["PAR1"]})
