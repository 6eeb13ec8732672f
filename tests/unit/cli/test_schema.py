"""``clustersim schema``."""

from __future__ import annotations

import json

from clustersim.config.scenario_schema import scenario_json_schema
from tests.unit.cli.conftest import Cli


def test_the_schema_is_one_json_document(cli: Cli) -> None:
    outcome = cli("schema")

    assert outcome.code == 0
    assert json.loads(outcome.out) == scenario_json_schema()
