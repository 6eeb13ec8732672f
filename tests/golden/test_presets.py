"""The reference of presets is the table of the code; ``pytest --update-golden`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clustersim.documents.spots import Data
from clustersim.scenario.preset_sources import NO_SERVERS, Preset, Setting
from clustersim.scenario.preset_table import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "presets.md"
MARK = "<!-- presets: written by tests/golden/test_presets.py -->\n"


def shown(value: Data) -> str:
    if value is None:
        return "left out"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def row(setting: Setting) -> str:
    key, values = setting.where or ("", ())
    condition = f", where `{key}` is {' or '.join(shown(value) for value in values)}" if key else ""
    kind = "fixed" if setting.fixed else "default"
    source = f"[{setting.source.title}, {setting.source.version}]({setting.source.url})"
    return f"| `{setting.key}` | {shown(setting.value)}{condition} | {kind} | {setting.reason} | {source} |\n"


def section(name: str, preset: Preset) -> Iterator[str]:
    yield f"\n## `{name}`\n\n{preset.stands_for}.\n\n| key | value | | why | source |\n|---|---|---|---|---|\n"
    yield from (row(setting) for setting in preset.settings)
    refused = [refusal for refusal in preset.refuses if refusal not in NO_SERVERS]
    for reason in dict.fromkeys(refusal.reason for refusal in refused):
        cases = [f"`{refusal.key}: {refusal.value}`" for refusal in refused if refusal.reason == reason]
        yield f"\nRefused: {', '.join(cases)}: {reason}.\n"
    if preset.left_out:
        yield f"\nNot simulated: {'; '.join(preset.left_out)}.\n"


def tables() -> str:
    return "".join(text for name, preset in PRESETS.items() for text in section(name, preset))


def test_the_page_of_presets_shows_what_the_code_sets(request: pytest.FixtureRequest) -> None:
    head, mark, body = PAGE.read_text(encoding="utf-8").partition(MARK)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{head}{MARK}{tables()}", encoding="utf-8", newline="\n")
        return

    assert mark
    assert body == tables()
