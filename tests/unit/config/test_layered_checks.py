"""Settings of transformers are refused for a list of layers, and the step is laid out without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.resolve import resolved_scenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.workloads.layered import Layered

SMALL: dict[str, Data] = {
    "name": "small",
    "model": {
        "input": [3, 16, 16],
        "tokens_per_sample": 7,
        "layers": [{"conv": {"channels": 8, "kernel": 3, "norm": "batch", "activation": "relu"}}, "flatten", {"linear": {"features": 10}}],
    },
    "cluster": {"node": "dgx1-v100-16g", "nodes": 1},
    "training": {"global_batch_size": 16, "micro_batch_size": 2, "precision": "fp16"},
}


def built(tmp_path: Path, **parts: dict[str, Data]) -> Built:
    """Return the small scenario with some keys of its parts changed."""
    document = {
        key: {**value, **parts.get(key, {})} if isinstance(value, dict) else value for key, value in {**SMALL, "strategy": {}}.items()
    }
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    return build(load_scenario(str(file)))


@pytest.mark.parametrize(
    ("part", "key", "value", "hint"),
    [
        ("strategy", "tp", 2, "replicas alone"),
        ("strategy", "pp", 2, "replicas alone"),
        ("strategy", "sequence_parallel", True, "leave it out"),
        ("strategy", "recompute", "selective", "use none or full"),
        ("strategy", "recompute", "alternate", "use none or full"),
        ("training", "seq_length", 128, "tokens_per_sample = 7"),
        ("training", "attention", "flash", "leave it out"),
    ],
)
def test_what_only_a_transformer_has_is_refused(tmp_path: Path, part: str, key: str, value: Data, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        built(tmp_path, **{part: {key: value}})

    assert caught.value.field == f"{part}.{key}"
    assert hint in (caught.value.hint or "")
    assert caught.value.place is not None


@pytest.mark.parametrize(("key", "value"), [("elementwise_precision", "fp32"), ("vocabulary_multiple", 8), ("loss_metrics", 2)])
def test_what_only_a_transformer_does_is_flagged(tmp_path: Path, key: str, value: Data) -> None:
    flags = built(tmp_path, training={key: value}).flags

    assert [flag.message for flag in flags if flag.code == "no_effect"] == [f"{key} does nothing with a list of layers"]


def test_a_list_of_layers_says_itself_how_much_a_sample_counts(tmp_path: Path) -> None:
    plan = built(tmp_path).plan

    assert isinstance(plan.model, Layered)
    assert plan.training.seq_length == 7


@pytest.mark.parametrize(("training", "last"), [({}, True), ({"precision": "fp32"}, False), ({"channels_last": False}, False)])
def test_images_are_stored_pixel_by_pixel_below_32_bits_unless_said_otherwise(
    tmp_path: Path, training: dict[str, Data], last: bool
) -> None:
    assert built(tmp_path, training=training).plan.training.channels_last is last


def test_the_resolved_scenario_builds_the_same_plan(tmp_path: Path) -> None:
    first = built(tmp_path)
    file = tmp_path / "resolved.yaml"
    file.write_text(json.dumps(resolved_scenario(first)), encoding="utf-8")

    again = build(load_scenario(str(file)))

    assert again.plan == first.plan
    assert resolved_scenario(again) == resolved_scenario(first)


def test_what_a_preset_says_of_the_vocabulary_is_left_out_where_there_is_none(tmp_path: Path) -> None:
    found = built(tmp_path, strategy={"preset": "megatron_lm"})
    training = resolved_scenario(found)["training"]

    assert found.scenario.spec.training.vocabulary_multiple == 128
    assert isinstance(training, dict)
    assert "vocabulary_multiple" not in training


@pytest.mark.parametrize("strategy", [{"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3}, {"recompute": "full"}])
def test_every_kind_of_data_parallelism_is_open_to_it(tmp_path: Path, strategy: dict[str, Data]) -> None:
    assert built(tmp_path, strategy=strategy).plan.strategy.dp == 8
