"""``clustersim schema``."""

from __future__ import annotations

import json

import pytest

from clustersim.config.scenario_schema import scenario_json_schema
from clustersim.config.serving_scenario import serving_json_schema
from tests.unit.cli.conftest import Cli


def test_the_schema_is_one_json_document(cli: Cli) -> None:
    outcome = cli("schema")

    assert outcome.code == 0
    assert json.loads(outcome.out) == scenario_json_schema()


@pytest.mark.parametrize("schema", [scenario_json_schema(), serving_json_schema()])
def test_every_property_is_described(schema: dict[str, dict[str, dict[str, dict[str, str]]]]) -> None:
    parts = {"": schema, **schema["$defs"]}

    bare = [
        f"{name}.{key}" for name, part in parts.items() for key, each in part.get("properties", {}).items() if "description" not in each
    ]

    assert bare == []
    assert str(schema["$id"]).startswith("urn:clustersim:schema:")
