"""``clustersim schema``."""

from __future__ import annotations

from clustersim.cli.terminal import write_json
from clustersim.errors import EXIT_OK
from clustersim.scenario.schema import scenario_json_schema


def schema_command() -> int:
    """Print the JSON Schema of a scenario and return the exit code."""
    write_json(scenario_json_schema())
    return EXIT_OK
