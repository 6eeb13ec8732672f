"""``clustersim schema``."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from clustersim.config.scenario_schema import scenario_json_schema
from clustersim.config.serving_scenario import serving_json_schema
from tests.unit.cli.conftest import Cli


def test_the_schema_is_one_json_document(cli: Cli) -> None:
    outcome = cli("schema")

    assert outcome.code == 0
    assert json.loads(outcome.out) == scenario_json_schema()


def properties_in(part: object, at: str = "") -> Iterator[tuple[str, object]]:
    """Yield all properties of a schema with their paths, those inside of alternatives too."""
    below: dict[str, object] = part if isinstance(part, dict) else {}
    for key, each in below.items() if below else enumerate(part if isinstance(part, list) else []):
        yield from properties_in(each, f"{at}.{key}")
    held = below.get("properties")
    yield from ((f"{at}.{key}", each) for key, each in held.items()) if isinstance(held, dict) else ()


@pytest.mark.parametrize("schema", [scenario_json_schema(), serving_json_schema()])
def test_every_property_is_described_by_a_noun(schema: dict[str, object]) -> None:
    described = {path: str(each.get("description", "")) for path, each in properties_in(schema) if isinstance(each, dict)}
    questions = ("", "What", "Which", "Who", "Where", "How", "Of")

    assert {path: text for path, text in described.items() if text.partition(" ")[0] in questions} == {}
    assert str(schema["$id"]).startswith("urn:clustersim:schema:")
