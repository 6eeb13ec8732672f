"""Presets: what they set, what the scenario may change, and where their mistakes stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.config.presets import PresetSetting, apply_preset, load_preset, preset_names
from clustersim.config.resolve import resolved_scenario
from clustersim.documents.text import Data, plain_document
from clustersim.errors import ScenarioError
from clustersim.units.quantity import parse_quantity
from tests.unit.config.samples import MODEL, built, refusal, small

TEXT = """\
version: 1
model: llama3-8b
cluster: {node: dgx-h100, nodes: 2}
training: {global_batch_size: 64}
strategy:
  zero_stage: 1
  preset: deepspeed_zero1
  data_parallel:
    no_sync: true
"""


NEEDS: dict[str, dict[str, Data]] = {
    "deepspeed_3d": {"tp": 2, "cp": 2},
    "gspmd": {"tp": 2, "cp": 2},
    "torchtitan": {"tp": 2, "cp": 2},
    "deepseek_v3": {"pp": 2},
}
"""Settings that a preset needs."""


def part(data: Data, path: str) -> Data:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def holds(setting: PresetSetting, data: Data) -> bool:
    return all(part(data, key) in values for key, values in (setting.where or {}).items())


def on_one_node(preset: str, **strategy: Data) -> dict[str, Data]:
    return small(cluster={"node": "dgx-a100-40g", "nodes": 1}, strategy={"preset": preset, **NEEDS.get(preset, {}), **strategy})


def text_refused(tmp_path: Path, text: str, *overrides: str) -> str:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(file, overrides))
    return str(caught.value).replace(str(file), "x.yaml")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_laid_out_and_sets_what_it_says(name: str) -> None:
    scenario = load_scenario(on_one_node(name))

    build(scenario)

    for key in {setting.key for setting in load_preset(name).settings}:
        # Of several settings of one key the first whose condition holds.
        values = [setting.data for setting in load_preset(name).settings if setting.key == key and holds(setting, scenario.document.data)]
        said = "bf16" if key == "training.precision" else None
        assert part(scenario.document.data, key) == (said or (values[0] if values else None))


def test_every_setting_says_why_and_where_it_is_written_down() -> None:
    for name in preset_names():
        preset = load_preset(name)

        assert all(setting.reason and setting.reason[-1] != "." for setting in preset.settings), name
        assert all(source.url.startswith("https://") and source.version for source in preset.sources.values()), name


def test_a_preset_sets_a_key_once_for_each_condition() -> None:
    for name in preset_names():
        keys = [(setting.key, setting.where) for setting in load_preset(name).settings]

        assert len(set(map(str, keys))) == len(keys), name


@pytest.mark.parametrize("name", preset_names())
def test_a_resolved_scenario_names_no_preset_and_is_the_same_plan(name: str) -> None:
    first = build(load_scenario(on_one_node(name)))
    resolved = resolved_scenario(first)

    again = build(load_scenario(resolved))

    assert "preset" not in str(resolved)
    assert again.plan == first.plan


@pytest.mark.parametrize("name", preset_names())
def test_a_step_with_a_preset_is_simulated(name: str) -> None:
    result = run(on_one_node(name))

    assert result.metrics.step_time_s > 0


@pytest.mark.parametrize(("precision", "bucket"), [("bf16", 1e9), ("fp16", 1e9), ("fp32", 2e9), ("tf32", 2e9)])
def test_deepspeed_counts_buckets_in_elements(precision: str, bucket: float) -> None:
    plan = built(f"training.precision={precision}", strategy={"preset": "deepspeed_zero2"}).plan

    assert plan.strategy.data_parallel.bucket_bytes == bucket


def test_tensorflow_servers_have_hosts_of_their_own_and_whole_variables_in_turn() -> None:
    service = built(strategy={"preset": "tf_parameter_server"}).plan.strategy.data_parallel.service

    assert service is not None
    assert (service.hosts, service.assignment, service.reduce_in_node) == ((2, 3), "round_robin", False)


def test_what_the_scenario_says_goes_before_a_default() -> None:
    strategy: Data = {"preset": "pytorch_ddp", "data_parallel": {"bucket": "50 MB", "overlap": False}}

    gradients = built(strategy=strategy).plan.strategy.data_parallel

    assert (gradients.bucket_bytes, gradients.overlap, gradients.first_bucket_bytes) == (50e6, False, 2**20)


def test_an_empty_value_is_left_to_the_preset() -> None:
    strategy: Data = {"preset": "pytorch_ddp", "data_parallel": {"first_bucket": None}}

    assert built(strategy=strategy).plan.strategy.data_parallel.first_bucket_bytes == 2**20


def test_a_preset_from_the_command_line_is_applied_after_all_that_is_set() -> None:
    gradients = built("strategy.preset=horovod", "strategy.data_parallel.bucket=1 MB", strategy={"tp": 2}).plan.strategy.data_parallel

    assert gradients.bucket_bytes == 1e6
    assert not gradients.single_process


def test_a_scenario_without_a_preset_is_left_alone() -> None:
    document = plain_document(small(), "scenario")

    assert apply_preset(document).document is document


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"preset": 3}, "strategy.preset"),
        ({"preset": "horovod", "data_parallel": "ring"}, "strategy.data_parallel"),
        ("horovod", "strategy"),
    ],
)
def test_what_is_no_mapping_and_no_name_is_refused_as_without_presets(strategy: Data, field: str) -> None:
    assert refusal(strategy=strategy).field == field


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    error = refusal(strategy={"preset": "pytroch_fsdp"})

    assert (error.field, error.message) == ("strategy.preset", "there is no preset 'pytroch_fsdp'")
    assert error.hint == "did you mean 'pytorch_fsdp'?"


@pytest.mark.parametrize(
    ("strategy", "field", "hint"),
    [
        (
            {"preset": "deepspeed_zero1", "zero_stage": 3},
            "strategy.zero_stage",
            "use 1, or preset deepspeed_zero3, or leave the key out",
        ),
        ({"preset": "pytorch_ddp", "zero_stage": 3}, "strategy.zero_stage", "use 0, or preset pytorch_fsdp, or leave the key out"),
        ({"preset": "horovod", "zero_stage": 2}, "strategy.zero_stage", "use 0, or preset deepspeed_zero2, or leave the key out"),
        ({"preset": "pytorch_fsdp", "zero_stage": 7}, "strategy.zero_stage", "use 3, or leave the key out"),
        (
            {"preset": "pytorch_ddp", "data_parallel": {"single_process": True}},
            "strategy.data_parallel.single_process",
            "use false, or preset pytorch_dp, or leave the key out",
        ),
        (
            {"preset": "tf_parameter_server", "data_parallel": {"algorithm": "ring"}},
            "strategy.data_parallel.algorithm",
            "use parameter_server, or leave the key out",
        ),
        (
            {"preset": "deepspeed_zero2", "data_parallel": {"no_sync": True}},
            "strategy.data_parallel.no_sync",
            "use false, or leave the key out",
        ),
    ],
)
def test_a_contradiction_is_refused_with_what_would_be_right(strategy: Data, field: str, hint: str) -> None:
    error = refusal(strategy=strategy)

    assert (error.field, error.hint) == (field, hint)
    assert "contradicts preset" in error.message


def test_a_contradiction_stands_where_the_scenario_wrote_the_value(tmp_path: Path) -> None:
    message = text_refused(tmp_path, TEXT.replace("zero_stage: 1", "zero_stage: 3"))

    assert message.splitlines()[0] == (
        "x.yaml:6:15: strategy.zero_stage: 3 contradicts preset deepspeed_zero1, for which it is 1: stage 1 shards optimizer state;"
        " use 1, or preset deepspeed_zero3, or leave the key out"
    )


def test_a_contradiction_from_the_command_line_names_it(tmp_path: Path) -> None:
    message = text_refused(tmp_path, TEXT, "strategy.zero_stage=2")

    assert message.startswith("--set strategy.zero_stage=2: strategy.zero_stage: 2 contradicts preset deepspeed_zero1")


def test_a_value_of_the_preset_that_does_not_fit_stands_where_the_preset_is_named(tmp_path: Path) -> None:
    text = TEXT.replace("  zero_stage: 1\n", "").replace("deepspeed_zero1", "pytorch_dp").replace("true", "false")

    message = text_refused(tmp_path, text)

    assert message.startswith("x.yaml:6:11: strategy.data_parallel.single_process: one process drives")
    assert message.splitlines()[1:] == ["    preset: pytorch_dp", "            ^"]


def test_a_value_of_a_preset_from_the_command_line_is_laid_to_the_command_line(tmp_path: Path) -> None:
    text = TEXT.replace("  zero_stage: 1\n", "").replace("true", "false")

    message = text_refused(tmp_path, text, "strategy.preset=pytorch_dp")

    assert message.startswith("--set strategy.preset=pytorch_dp: strategy.data_parallel.single_process: one process drives")


def test_a_value_that_the_scenario_wrote_keeps_its_place_beside_a_preset(tmp_path: Path) -> None:
    message = text_refused(tmp_path, TEXT.replace("no_sync: true", "overlap: maybe"))

    assert message.startswith("x.yaml:9:14: strategy.data_parallel.overlap: 'maybe' is not true or false")


def test_a_job_may_have_a_preset() -> None:
    inner: Data = {"model": dict(MODEL), "training": {"global_batch_size": 32}, "strategy": {"preset": "horovod"}}

    (job,) = built(jobs=[{"nodes": 1, "scenario": inner}], strategy={"tp": 2}).jobs

    assert job.planned.plan.strategy.data_parallel.bucket_bytes == 128 * 2**20


def test_a_contradiction_in_a_job_names_the_job() -> None:
    inner: Data = {"model": dict(MODEL), "training": {"global_batch_size": 32}, "strategy": {"preset": "horovod", "zero_stage": 1}}

    error = refusal(jobs=[{"nodes": 1, "scenario": inner}], strategy={"tp": 2})

    assert error.field == "jobs.0.scenario.strategy.zero_stage"


def test_sizes_are_written_with_units() -> None:
    sizes = [setting for name in preset_names() for setting in load_preset(name).settings if setting.key.endswith("bucket")]

    assert len(sizes) > 8
    assert all(parse_quantity(size_text(setting), "B") >= 2**20 for setting in sizes)


def size_text(setting: PresetSetting) -> str:
    assert isinstance(setting.value, str)
    return setting.value


@pytest.mark.parametrize("preset", ["horovod", "pytorch_ddp", "pytorch_fsdp", "megatron_lm"])
def test_a_preset_without_servers_refuses_them(preset: str) -> None:
    error = refusal(strategy={"preset": preset, "data_parallel": {"algorithm": "parameter_server"}})

    assert error.field == "strategy.data_parallel.algorithm"
    assert error.message == f"parameter_server contradicts preset {preset}: ranks add up their gradients among themselves"
    assert error.hint == "leave the key out, or use preset tf_parameter_server"


@pytest.mark.parametrize("preset", ["pytorch_dp", "tf_parameter_server"])
def test_parameters_under_autocast_travel_in_32_bits(preset: str) -> None:
    settings = {setting.key: setting.value for setting in load_preset(preset).settings}

    assert settings["strategy.data_parallel.gather_precision"] == "fp32"
