"""The tables of settings are what their declarations say; ``pytest --update-golden`` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clustersim.config.scenario_schema import ScenarioSpec

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scenario.md"
SECTION = r"(<!-- settings of {}: written by tests/golden/test_settings_page.py -->\n\n).*?(?=\n\n)"


def choices(declared: dict[str, Any]) -> list[str]:
    """Return the names that a setting may have."""
    parts = (declared, *declared.get("anyOf", ()))
    return [f"`{choice}`" for part in parts for choice in part.get("enum", ()) if isinstance(choice, str)]


def shown(value: object) -> str:
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return str(value).lower() if isinstance(value, bool | int | float) else f"`{value}`"


def rows(section: str, schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    """Yield the rows of a section, those of sections inside it last."""
    inside = dict[str, dict[str, Any]]()
    for key, declared in schema["properties"].items():
        reference = next((part["$ref"] for part in (declared, *declared.get("anyOf", ())) if "$ref" in part), None)
        if reference:
            inside[f"{section}.{key}"] = definitions[reference.rpartition("/")[2]]
            continue
        what, _, default = declared["description"].removesuffix(".").rpartition("; default: ")
        if not what:
            what, default = default, shown(declared["default"]) if declared.get("default") is not None else "required"
        names = choices(declared)
        what += f". One of {', '.join(names)}" if any(name not in what for name in names) else ""
        yield f"| `{section}.{key}` | {what} | {default} |"
    for name, part in inside.items():
        yield from rows(name, part, definitions)


@pytest.mark.parametrize("section", ["training", "strategy"])
def test_the_tables_of_settings_show_what_is_declared(section: str, request: pytest.FixtureRequest) -> None:
    schema = ScenarioSpec.model_json_schema()
    definitions = schema["$defs"]
    part = definitions[schema["properties"][section]["$ref"].rpartition("/")[2]]
    table = "\n".join(("| key | what | default |", "|---|---|---|", *rows(section, part, definitions)))
    text = PAGE.read_text(encoding="utf-8")
    written, found = re.subn(SECTION.format(section), lambda match: match[1] + table, text, flags=re.DOTALL)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(written, encoding="utf-8", newline="\n")
        return

    assert (found, text) == (1, written)
