"""Values of each key."""

from __future__ import annotations

from typing import get_args

import pytest

from clustersim.collectives import ALGORITHMS
from clustersim.config.load import load_scenario
from clustersim.config.scenario_schema import ScenarioSpec, scenario_json_schema
from clustersim.documents.text import Data
from clustersim.parallel.step_settings import DataParallelSettings
from tests.unit.config.samples import refusal, small


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("verison=1", "unknown field 'verison'", "did you mean 'version'?"),
        ("version=2", "2 is not 1", None),
        ("strategy.tensor=2", "unknown field 'tensor'", None),
        ("training.global_batch_size=32.5", "32.5 is not a whole number", None),
        ("training.global_batch_size=-1", "-1 is out of range", "write a number that is more than 0"),
        ("training.global_batch_size=true", "true is not a whole number", None),
        ("training.global_batch_size='32'", "'32' is not a whole number", "write 32, without quotes"),
        ("training.seq_length=1e4", "10000.0 is not a whole number", "write 10000"),
        ("cluster.nodes=1e1", "10.0 is not a whole number or a list", "write 10"),
        ("training.micro_batch_size=0", "0 is out of range", "write a number that is more than 0"),
        ("training.precision=bf61", "'bf61' is not one of fp32, tf32, fp16, bf16, fp8", "did you mean 'bf16'?"),
        ("training.optimizer=lion", "'lion' is not one of adam, sgd, momentum, adafactor, lamb, muon", None),
        ("training.tokens=15 TB/s", "'15 TB/s' is not a count", "write it such as '15T'"),
        ("strategy.data_parallel.staleness=-1", "-1 is out of range", "write a number that is at least 0"),
        ("training.data_loader={rate: 2000}", "2000 has no unit", "write it with a unit, such as '2500 samples/s'"),
        ("strategy.data_parallel.bucket=25", "25 has no unit", "write it with a unit, such as '25 MB'"),
        ("strategy.data_parallel.bucket=25 Gbit/s", "'25 Gbit/s' is not a size", "write it such as '25 MB'"),
        ("strategy.data_parallel.bucket=288 gb", "'288 gb' is not a size", "write it such as '288 GB'"),
        ("strategy.data_parallel.bucket=-25 MB", "-25 MB is negative", "write a size such as '25 MB'"),
        ("strategy.sequence_parallel='yes'", "'yes' is not true or false", None),
        ("strategy.zero_stage=4", "4 is not one of 0, 1, 2, 3", None),
        ("strategy.zero_stage=true", "true is not a number", "write a number"),
        ("strategy.dp=many", "'many' is not auto or a whole number", None),
        ("strategy.dp=0", "0 is out of range", "write a number that is more than 0"),
        ("strategy.placement=[tp, pp]", "the placement does not name each of tp, cp, ep, dp and pp once", "such as [tp, cp, ep, dp, pp]"),
        (
            "strategy.placement=[tp, tp, ep, dp, pp]",
            "the placement does not name each of tp, cp, ep, dp and pp once",
            "such as [tp, cp, ep, dp, pp]",
        ),
        ("model=5", "5 is not text or a mapping", None),
        ("cluster=[1]", "a list is not a mapping", None),
        ("cluster.nodes=0", "0 is out of range", "write a number that is more than 0"),
        ("training.precision=fp4", "fp4 is a scaling of fp8", "write precision: fp8 and fp8_scaling: nvfp4"),
        ("cluster.nics.bandwidth=400 GB", "'400 GB' is not a bandwidth", "write it such as '400 Gbit/s'"),
        ("cluster.nics={count: 4, bandwidth: 200}", "200 has no unit", "write it with a unit, such as '400 Gbit/s'"),
        (
            "strategy.offload=true",
            "what is offloaded is a list of parts",
            "write such as [optimizer] or [optimizer, gradients, {to: nvme}]",
        ),
        ("checks=memory_fraction <= 1", "'memory_fraction <= 1' is not a list", None),
        ("cost.pue=0.5", "0.5 is out of range", "write a number that is at least 1.0"),
        ("reliability.node_mtbf=5", "5 has no unit", "write it with a unit, such as '5 us', '5 s', '5 h' or '5 years'"),
    ],
)
def test_a_wrong_value_is_told_what_would_be_right(override: str, message: str, hint: str | None) -> None:
    error = refusal(override)

    assert error.message == message
    assert hint is None or error.hint == hint
    assert error.field is not None
    assert error.field.startswith(override.partition("=")[0])


def test_brackets_are_not_advised_where_a_number_is_wanted() -> None:
    assert refusal("cluster.nodes=nan").hint is None


@pytest.mark.parametrize("key", ["model", "cluster", "training"])
def test_a_missing_section_is_named(key: str) -> None:
    data = small()
    del data[key]

    with pytest.raises(Exception, match=f"'{key}' is missing"):
        load_scenario(data)


@pytest.mark.parametrize("key", ["model", "cluster", "training"])
def test_an_empty_section_is_refused(key: str) -> None:
    error = refusal(**{key: None})

    assert error.field is not None
    assert error.field.startswith(key)


def test_the_whole_promise_is_accepted_where_it_asks_for_nothing() -> None:
    spec = load_scenario(
        small(
            strategy={
                "dp": "auto", "tp": 2, "pp": 2, "cp": 1, "ep": 1, "sequence_parallel": True, "schedule": "1f1b", "virtual_stages": 1,
                "zero_stage": 1, "recompute": "selective", "shard_degree": "auto", "offload": [], "expert_load": "balanced",
                "data_parallel": {"mode": "sync", "algorithm": "auto", "overlap": True, "bucket": "25 MB"},
                "placement": ["tp", "cp", "ep", "dp", "pp"],
            },
            cost={"gpu_hour": "2.50 USD", "power_price": "0.08 USD/kWh", "pue": 1.2},
            reliability={"node_mtbf": "5 years", "checkpoint_every": "30 min", "restart": "8 min"},
        )
    ).spec  # fmt: skip

    assert spec.strategy.data_parallel.bucket_bytes == 25e6
    assert spec.reliability is not None
    assert spec.reliability.checkpoint_every == 1800.0


def test_every_all_reduce_of_the_library_can_be_named() -> None:
    names = get_args(DataParallelSettings.model_fields["algorithm"].annotation)

    assert names == ("auto", *ALGORITHMS["all_reduce"], "parameter_server")


def test_the_json_schema_knows_every_key_of_the_models() -> None:
    schema = scenario_json_schema()
    properties = schema["properties"]

    assert isinstance(properties, dict)
    assert list(properties) == list(ScenarioSpec.model_fields)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["model", "cluster", "training"]


def test_the_json_schema_shows_how_a_quantity_and_a_schedule_are_written() -> None:
    definitions = scenario_json_schema()["$defs"]
    assert isinstance(definitions, dict)

    def field(part: str, name: str) -> Data:
        found = definitions[part]
        assert isinstance(found, dict)
        properties = found["properties"]
        assert isinstance(properties, dict)
        return properties[name]

    bucket, schedule = field("DataParallelSettings", "bucket"), field("StrategySettings", "schedule")

    assert isinstance(bucket, dict)
    assert (bucket["type"], bucket["examples"]) == ("string", ["25 MB"])
    assert isinstance(schedule, dict)
    assert "interleaved_1f1b" in str(schedule["anyOf"])
