"""Every setting changes the result, or the run says that it has no effect, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise, product
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from clustersim.apps.run.running import run_built
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.yaml_text import plain
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.parallel.contributors import stage_holds
from clustersim.parallel.needs import Idle
from clustersim.parallel.settings import Settings, key_of
from clustersim.parallel.stage import stages_of
from clustersim.parallel.step_settings import DataParallelSettings, Training
from clustersim.parallel.training_plan import StrategySettings

BOOLEAN: Final[list[Data]] = [False, True]
WIRE: Final[list[Data]] = ["fp8", "fp32"]
SECTIONS: Final[Mapping[str, type[Settings]]] = {
    "training": Training,
    "strategy": StrategySettings,
    "strategy.data_parallel": DataParallelSettings,
}


def keys_of(prefix: str, section: type[Settings]) -> dict[str, FieldInfo]:
    fields = {key_of(name, field): field for name, field in section.model_fields.items()}
    return {f"{prefix}.{name}": field for name, field in fields.items() if name not in ("data_parallel", "preset")}


FIELDS: Final[Mapping[str, FieldInfo]] = {
    key: field for prefix, section in SECTIONS.items() for key, field in keys_of(prefix, section).items()
}
VALUES: Final[Mapping[str, list[Data]]] = {
    **{key: BOOLEAN for key, field in FIELDS.items() if field.annotation is bool},
    "training.global_batch_size": [32, 64],
    "training.micro_batch_size": [1, 2],
    "training.seq_length": [256, 512],
    "training.precision": ["fp32", "fp16", "fp8"],
    "training.fp8_scaling": ["tensor", "delayed"],
    "training.fp8_amax_group": ["stage", "none"],
    "training.bf16_layers": [[0, 0], [1, 1]],
    "training.optimizer": ["adam", "sgd"],
    "training.moment_precision": ["fp8", "fp32"],
    "training.launch_overhead": [1.0, 3.0],
    "training.cuda_graphs": [False, True, ["mlp"], ["experts"]],
    "training.optimizer_kernels": ["fused", "foreach", "loop"],
    "training.attention": ["flash", "unfused"],
    "training.tokens": ["1T", "2T"],
    "training.gradient_precision": ["fp32", "same"],
    "training.elementwise_precision": ["same", "fp32"],
    "training.kernels": ["fused", "eager"],
    "training.scored_tokens": [32, 64],
    "training.vocabulary_multiple": [1, 1024],
    "training.loss_metrics": [0, 2],
    "training.grouped_experts": [False, True, "fused"],
    "training.router_padding": [False, True],
    "training.loss_gradient": ["copy", "in_place"],
    "training.document_tokens": [64, {"lognormal": {"mean": 64, "p90": 120}}],
    "training.batch_ramp": [{"start": 8, "increment": 8, "tokens": "1M"}, {"start": 16, "increment": 16, "tokens": "2M"}],
    "training.lora_rank": [8, 64],
    "training.lora_layers": [["q", "v"], ["qkv", "down"]],
    "training.frozen_precision": ["same", "nf4"],
    "training.data_loader.rate": ["1 samples/s", "2 samples/s"],
    "strategy.dp": [2, 4, 8],
    "strategy.tp": [1, 2],
    "strategy.pp": [1, 2],
    "strategy.cp": [1, 2],
    "strategy.ep": [1, 2],
    "strategy.schedule": ["gpipe", "1f1b", "zb_h1"],
    "strategy.virtual_stages": [2, 4],
    "strategy.stage_layers": ["even", [3, 5], [5, 3], [8]],
    "strategy.zero_stage": [0, 1, 2, 3],
    "strategy.recompute": ["none", "selective", "full"],
    "strategy.recompute_layers": [1, 2],
    "strategy.recompute_modules": [["core_attention"], ["mlp", "norms"]],
    "strategy.overlap_tp": ["none", "weight_gradient", "gemm_chunks", "async_tp"],
    "strategy.shard_degree": [2, 4],
    "strategy.gather": ["layer", "tensor"],
    "strategy.prefetch": [0, 1, 2],
    "strategy.offload": [[], ["optimizer"], ["activations"]],
    "strategy.etp": [1, 2],
    "strategy.overlap_ep": [False, True, "micro_batches"],
    "strategy.expert_load": ["balanced", "zipf"],
    "strategy.expert_skew": [0.5, 2.0],
    "strategy.expert_capacity": [1.0, 1.25],
    "strategy.dispatch": ["all_to_all", "per_node"],
    "strategy.dispatch_precision": WIRE,
    "strategy.context_parallel": ["ring", "all_gather", "ulysses"],
    "strategy.placement": [["tp", "cp", "ep", "dp", "pp"], ["pp", "dp", "ep", "cp", "tp"]],
    "strategy.data_parallel.mode": ["sync", "async"],
    "strategy.data_parallel.algorithm": ["ring", "tree", "parameter_server"],
    "strategy.data_parallel.bucket": ["1 MB", "1 GB"],
    "strategy.data_parallel.servers": [1, 2],
    "strategy.data_parallel.placement": ["dedicated", "colocated"],
    "strategy.data_parallel.assignment": ["key_ranges", "round_robin"],
    "strategy.data_parallel.priority": ["layers", "none"],
    "strategy.data_parallel.staleness": [0, 3],
    "strategy.data_parallel.backup_workers": [0, 1],
    "strategy.data_parallel.first_bucket": ["100 kB", "200 MB"],
    "strategy.data_parallel.gather_precision": WIRE,
    "strategy.data_parallel.reduce_precision": WIRE,
}
ECHOES: Final = ("scenario", "parallelism", "trained", "resolved", "engine", "flags")
"""Parts of a result that say what was asked, or how it was worked out."""


def test_every_setting_has_values_to_draw() -> None:
    assert {key.removesuffix(".rate") for key in VALUES} == FIELDS.keys()


MODEL: Final[dict[str, Data]] = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 2048,
    "vocab_size": 32001,
    "max_position_embeddings": 512,
}
SPARSE: Final[dict[str, Data]] = {
    **MODEL,
    "model_type": "qwen2_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 1024,
}


CONTEXTS: Final[list[dict[str, Data]]] = [
    {},
    {"strategy.tp": 2},
    {"strategy.cp": 2},
    {"strategy.pp": 2},
    {"strategy.pp": 2, "strategy.zero_stage": 2},
    {"strategy.pp": 2, "strategy.schedule": "zb_h1"},
    {"strategy.pp": 2, "strategy.schedule": "interleaved_1f1b", "strategy.virtual_stages": 2},
    {"strategy.zero_stage": 1},
    {"strategy.zero_stage": 2},
    {"strategy.zero_stage": 3},
    {"strategy.zero_stage": 2, "strategy.offload": ["optimizer"]},
    {"strategy.zero_stage": 3, "strategy.pp": 2},
    {"strategy.zero_stage": 3, "strategy.data_parallel.overlap": False},
    {"strategy.zero_stage": 3, "strategy.tp": 8},
    {"strategy.zero_stage": 3, "strategy.offload": ["optimizer", "gradients", "parameters"]},
    {"strategy.recompute": "full"},
    {"strategy.recompute": "selective"},
    {"strategy.data_parallel.algorithm": "parameter_server"},
    {"strategy.data_parallel.algorithm": "parameter_server", "strategy.data_parallel.mode": "ssp", "strategy.data_parallel.staleness": 1},
    {"strategy.data_parallel.single_process": True},
    {"training.fused_gradient_accumulation": False},
    {"training.precision": "fp8"},
    {"training.lora_rank": 16},
    {"training.tokens": "1B"},
]
"""Surroundings in which some of the settings matter."""
ROUTED: Final[list[dict[str, Data]]] = [
    {"strategy.ep": 2},
    {"strategy.ep": 8},
    {"strategy.ep": 8, "strategy.expert_load": "zipf"},
    {"strategy.ep": 2, "strategy.tp": 2},
]


def put(scenario: dict[str, Data], key: str, value: Data) -> dict[str, Data]:
    changed = deepcopy(scenario)
    here = changed
    *sections, name = key.split(".")
    for section in sections:
        below = here.setdefault(section, {})
        assert isinstance(below, dict)
        here = below
    here[name] = value
    return changed


MODELS: Final[Mapping[str, Data]] = {"dense": MODEL, "sparse": SPARSE, "images": "resnet-50"}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Data]:
    kind = draw(st.sampled_from(["dense", "dense", "sparse", "sparse", "images"]))
    cluster: dict[str, Data] = {"node": draw(st.sampled_from(["dgx-h100", "dgx1-v100-32g"])), "nodes": draw(st.sampled_from([1, 2]))}
    scenario: dict[str, Data] = {"version": 1, "name": "drawn", "model": MODELS[kind], "cluster": cluster}
    around = draw(st.sampled_from(CONTEXTS)) | (draw(st.sampled_from(ROUTED)) if kind == "sparse" else {})
    few = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=3, unique=True))
    some = {key: draw(st.sampled_from(VALUES[key])) for key in few}
    for key, value in ({"training.global_batch_size": 32} | some | around).items():
        scenario = put(scenario, key, value)
    return scenario


def measured(scenario: dict[str, Data]) -> tuple[Data, set[str]]:
    """Return the figures of a run, and the keys that it says do nothing."""
    built = build(load_scenario(scenario))
    result = run_built(built)
    document = plain(result.metrics)
    assert isinstance(document, dict)
    idle = {flag.message.partition(" ")[0] for flag in result.flags if flag.code == "no_effect"}
    figures = {key: part for key, part in document.items() if key not in ECHOES}
    # Memory over time matters too where something else makes the peak.
    held = repr([(stage_holds(stage), stage.order) for stage in stages_of(built.plan)])
    return {"time_to_train_s": result.time_to_train_s, "held": held, **figures}, idle


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(scenario=scenarios(), key=st.sampled_from(sorted(VALUES)), data=st.data())
def test_a_setting_changes_the_result_unless_the_run_says_that_it_does_nothing(
    scenario: dict[str, Data], key: str, data: st.DataObject
) -> None:
    first, second = data.draw(st.permutations(VALUES[key]))[:2]
    with pytest.MonkeyPatch.context() as patch:
        # Lowering sees what was asked for, so that equal results are its own doing.
        patch.setattr(Idle, "left_out", lambda _, spec: spec)
        try:
            one, idle = measured(put(scenario, key, first))
            other, other_idle = measured(put(scenario, key, second))
        except ScenarioError:
            assume(False)
            return

    name = key.removesuffix(".rate").rpartition(".")[2]
    if name in idle & other_idle:
        assert one == other
    elif name not in idle | other_idle:
        assert one != other


def surroundings() -> Iterator[dict[str, Data]]:
    for nodes, model in product((2, 1), MODELS.values()):
        for around in [*CONTEXTS, *(ROUTED if model == SPARSE else ())]:
            scenario: dict[str, Data] = {"version": 1, "name": "one", "model": model, "cluster": {"node": "dgx-h100", "nodes": nodes}}
            for key, value in ({"training.global_batch_size": 32} | around).items():
                scenario = put(scenario, key, value)
            yield scenario


def matters(scenario: dict[str, Data], key: str) -> bool:
    found: list[Data] = []
    for value in VALUES[key]:
        with suppress(ScenarioError):
            found.append(measured(put(scenario, key, value))[0])
    return any(one != other for one, other in pairwise(found))


# The other degrees leave one value of dp.
@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(VALUES.keys() - {"strategy.dp"}))
def test_every_setting_changes_the_result_of_some_scenario(key: str) -> None:
    assert any(matters(scenario, key) for scenario in surroundings())
