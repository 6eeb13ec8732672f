"""``clustersim schema``."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.terminal import write_json
from clustersim.config.scenario_schema import scenario_json_schema
from clustersim.config.serving_scenario import serving_json_schema
from clustersim.errors import EXIT_OK


def schema_command(*, serving: Annotated[bool, typer.Option("--serving", help="Of a serving scenario.")] = False) -> int:
    """Print the JSON Schema of a scenario."""
    write_json(serving_json_schema() if serving else scenario_json_schema())
    return EXIT_OK
