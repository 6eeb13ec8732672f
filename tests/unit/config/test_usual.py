"""Settings that nobody said, as software has them."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.apps.plan.asking import asked_of
from clustersim.config.build import Built
from clustersim.config.overriding import parse_override, set_options
from clustersim.config.usual import AS_IN_TABLE, USUAL
from clustersim.config.yaml_text import flat_text
from clustersim.documents.check import value_at
from clustersim.parallel.step_settings import DataParallelSettings, Training
from clustersim.parallel.training_plan import StrategySettings
from tests.unit.config.samples import built, small

TEXTS = st.from_regex(r"[a-z][a-z0-9_]*|[0-9]+ (MB|s)|[a-z]+, [a-z]+|true|null|1e5", fullmatch=True)


def usual_flag(run: Built) -> str:
    return " ".join(flag.message for flag in run.flags if flag.code == "usual_settings")


def test_fp16_is_taken_as_it_was_trained_with_before_fused_attention() -> None:
    plan = built("training.precision=fp16").plan

    assert (plan.training.attention, plan.training.gradient_precision, plan.training.fused_gradient_accumulation) == (
        "unfused",
        "same",
        False,
    )
    assert (plan.strategy.sequence_parallel, plan.strategy.overlap_tp, plan.strategy.data_parallel.overlap) == (False, "none", False)


def test_fp16_on_a_later_accelerator_is_of_today() -> None:
    plan = built("cluster.node=dgx-h100", "training.precision=fp16", "strategy.tp=2", "strategy.pp=1").plan

    assert (plan.training.attention, plan.training.launch_overhead) == ("flash", 1.7)


def test_selective_recomputation_in_fp16_is_of_2022() -> None:
    plan = built("training.precision=fp16", "strategy.recompute=selective").plan

    assert (plan.training.gradient_precision, plan.strategy.sequence_parallel, plan.training.attention) == ("fp32", True, "unfused")


def test_what_is_said_is_kept() -> None:
    said = built("training.precision=fp16", "training.attention=flash", "strategy.data_parallel.overlap=true")

    assert (said.plan.training.attention, said.plan.strategy.data_parallel.overlap) == ("flash", True)
    assert "attention" not in usual_flag(said)


@pytest.mark.parametrize(("schedule", "beside"), [("interleaved_1f1b", False), ("zb_v", True)])
def test_interleaved_stages_in_fp16_wait_for_what_they_send(schedule: str, beside: bool) -> None:
    plan = built("training.precision=fp16", f"strategy.schedule={schedule}", "strategy.virtual_stages=2").plan

    assert plan.strategy.overlap_p2p is beside


def test_sharded_parameters_in_fp16_have_no_fused_attention_on_accelerators_before_it() -> None:
    assert built("training.precision=fp16", "strategy.zero_stage=3", "strategy.pp=1").plan.training.attention == "unfused"


def test_context_parallelism_keeps_attention_fused() -> None:
    assert built("training.precision=fp16", "strategy.cp=2").plan.training.attention == "flash"


def test_sharded_parameters_come_with_the_kernels_of_pytorch() -> None:
    sharded = built("strategy.zero_stage=3", "strategy.recompute=full", "strategy.pp=1")

    assert (sharded.plan.training.kernels, sharded.plan.training.attention) == ("eager", "flash_2")
    assert sharded.plan.strategy.recompute_stops_early
    assert "recompute_stops_early true (sharded parameters, as PyTorch's FSDP)" in usual_flag(sharded)


@pytest.mark.parametrize(("node", "scaling"), [("dgx-h100", "tensor"), ("dgx-b200", "mx")])
def test_sharded_parameters_in_fp8_are_compiled_as_torchao_has_them(node: str, scaling: str) -> None:
    training = built(f"cluster.node={node}", "strategy.zero_stage=3", "strategy.pp=1", "training.precision=fp8").plan.training

    assert (training.kernels, training.fp8_scaling, training.attention) == ("fused", scaling, "flash_2" if node == "dgx-h100" else "flash")


@pytest.mark.parametrize("software", [("training.precision=fp16",), ("strategy.tp=2", "strategy.pp=1")])
def test_a_choice_of_kernels_leaves_the_rest_of_the_software(software: tuple[str, ...]) -> None:
    fused, eager = (built(*software, f"training.kernels={kernels}").plan for kernels in ("fused", "eager"))

    for name in ("attention", "gradient_precision", "fused_gradient_accumulation", "launch_overhead", "vocabulary_multiple"):
        assert getattr(eager.training, name) == getattr(fused.training, name)
    assert eager.strategy == fused.strategy


def test_an_encoder_scores_fifteen_hundredths_of_its_tokens() -> None:
    assert built(model="bert-large", strategy={}, training={"global_batch_size": 32, "seq_length": 128}).plan.training.scored_tokens == 19


@pytest.mark.parametrize(("precision", "between"), [("fp16", "fp32"), ("bf16", "fp32"), ("tf32", "same")])
def test_an_encoder_computes_in_fp32_between_products_of_16_bits(precision: str, between: str) -> None:
    run = built(model="bert-large", strategy={}, training={"global_batch_size": 32, "seq_length": 128, "precision": precision})

    assert run.plan.training.elementwise_precision == between


@pytest.mark.parametrize(("zero_stage", "overlap"), [(1, "gemm_chunks"), (3, "none")])
def test_fp8_comes_with_transformer_engine_unless_parameters_are_sharded(zero_stage: int, overlap: str) -> None:
    plan = built("cluster.node=dgx-h100", "training.precision=fp8", "strategy.pp=1", f"strategy.zero_stage={zero_stage}").plan

    assert plan.strategy.overlap_tp == overlap


@pytest.mark.parametrize(
    ("node", "said", "overlap"),
    [
        ("dgx-h100", (), "gemm_chunks"),
        ("dgx-h100", ("strategy.sequence_parallel=false",), "weight_gradient"),
        ("dgx-h100", ("strategy.sequence_parallel=false", "training.precision=fp8"), "weight_gradient"),
        ("dgx-a100-80g", (), "weight_gradient"),
    ],
)
def test_products_are_cut_as_recipes_for_later_accelerators_cut_them(node: str, said: tuple[str, ...], overlap: str) -> None:
    plan = built(f"cluster.node={node}", "strategy.tp=2", "strategy.pp=1", "training.precision=bf16", *said).plan

    assert plan.strategy.overlap_tp == overlap


@pytest.mark.parametrize(
    ("node", "scaling", "grouped", "graphs"),
    [("dgx-h100", "tensor", True, False), ("dgx-b200", "mx", True, ("attention", "router")), ("gb200-nvl72", "mx", "fused", True)],
)
def test_experts_in_fp8_are_those_of_recipes(node: str, scaling: str, grouped: object, graphs: object) -> None:
    training = built(f"cluster.node={node}", "strategy.pp=1", "strategy.ep=4", "training.precision=fp8", model="mixtral-8x7b").plan.training

    assert (training.fp8_scaling, training.grouped_experts, training.cuda_graphs) == (scaling, grouped, graphs)


@pytest.mark.parametrize(("preset", "expected"), [("null", ("eager", "momentum")), ("gpipe", ("fused", "adam"))])
def test_layers_of_a_list_are_run_as_pytorch_runs_them(preset: str, expected: tuple[str, str]) -> None:
    training = built(f"strategy.preset={preset}", model="resnet-50", strategy={}, training={"global_batch_size": 32}).plan.training

    assert (training.kernels, training.optimizer) == expected


@pytest.mark.parametrize(("node", "dispatch"), [("dgx-h100", "per_node"), ("dgx-a100-80g", "all_to_all")])
def test_experts_on_later_accelerators_are_sent_by_node(node: str, dispatch: str) -> None:
    run = built(f"cluster.node={node}", "strategy.pp=1", "strategy.ep=4", "training.precision=bf16", model="mixtral-8x7b")

    assert run.plan.strategy.dispatch == dispatch


def test_bf16_alone_brings_nothing_and_says_nothing() -> None:
    assert usual_flag(built()) == ""


@pytest.mark.parametrize(
    ("said", "overhead"),
    [
        (("strategy.tp=2", "strategy.pp=1"), 1.7),
        (("strategy.tp=1", "strategy.pp=1"), 1.7),
        (("strategy.tp=1", "strategy.pp=1", "strategy.zero_stage=1"), 1.7),
        (("strategy.tp=1", "strategy.pp=1", "strategy.zero_stage=3"), 1.0),
        (("strategy.tp=1", "strategy.pp=1", "cluster.nodes=1", "cluster.accelerators_per_node=1"), 1.0),
        (("strategy.tp=2", "strategy.pp=1", "training.precision=fp16"), 1.0),
        (("strategy.tp=2", "strategy.pp=1", "strategy.preset=deepspeed_3d"), 1.0),
        (("strategy.tp=2", "strategy.pp=1", "training.launch_overhead=1.2"), 1.2),
    ],
)
def test_models_of_today_on_several_accelerators_are_issued_as_megatron_core_issues_them(said: tuple[str, ...], overhead: float) -> None:
    found = built(*said)

    assert found.plan.training.launch_overhead == overhead
    assert any(flag.code == "assumed_launch_overhead" for flag in found.flags) == (overhead == 1.7)


@pytest.mark.parametrize(
    ("node", "said", "graphs"),
    [
        ("dgx-b200", ("training.precision=fp8",), ("attention", "router")),
        ("dgx-b200", ("training.precision=bf16",), False),
        ("dgx-b200", ("training.precision=fp8", "strategy.dispatch=all_to_all"), False),
        ("dgx-h100", ("training.precision=fp8",), False),
    ],
)
def test_experts_on_blackwell_are_captured_up_to_their_router_unless_sent_otherwise(
    node: str, said: tuple[str, ...], graphs: object
) -> None:
    batch = ("training.global_batch_size=64", "training.seq_length=256")
    run = built(f"cluster.node={node}", *said, *batch, model="mixtral-8x7b", strategy={"ep": 8})

    assert run.plan.training.cuda_graphs == graphs


@pytest.mark.parametrize("node", ["dgx-b200", "gb200-nvl72"])
def test_a_host_that_waits_for_each_kernel_captures_none(node: str) -> None:
    said = (f"cluster.node={node}", "strategy.pp=1", "strategy.ep=4", "training.precision=fp8", "training.blocking_launches=true")

    assert built(*said, model="mixtral-8x7b").plan.training.cuda_graphs is False


def test_a_search_compares_layouts_of_one_software() -> None:
    training = asked_of(small(training={"global_batch_size": 32, "precision": "bf16", "seq_length": 256})).base["training"]

    assert isinstance(training, dict)
    assert (training["kernels"], training["attention"], training["fused_gradient_accumulation"]) == ("fused", "flash", True)


def test_settings_that_a_plan_prints_are_read_back_from_the_command_line() -> None:
    found = asked_of("gpt-oss-120b", "dgx-b200", nodes=8)

    printed = next(line for line in found.cautions if AS_IN_TABLE in line)
    read = [parse_override(*shlex.split(word)) for word in re.findall(r"-s ('[^']*'|\S+)", printed)]
    values = {".".join(each.path): each.value for each in read}
    assert values["strategy.dispatch"] == "per_node"
    assert all(value_at(dict(found.base), key.split(".")) == value for key, value in values.items())


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS, st.lists(TEXTS).map(tuple)))
def test_a_value_is_read_back_as_it_was_written(value: bool | float | str | tuple[str, ...]) -> None:
    (_, text) = shlex.split(set_options([f"training.kernels={flat_text(value)}"]))

    assert parse_override(text).value == ([*value] if isinstance(value, tuple) else value)


SECTIONS = {"training": Training, "strategy": StrategySettings, "strategy.data_parallel": DataParallelSettings}


@pytest.mark.parametrize("key", sorted({key for each in USUAL for key in each.values}))
def test_a_usual_value_is_one_of_a_setting(key: str) -> None:
    section, _, name = key.rpartition(".")

    assert name in SECTIONS[section].model_fields
