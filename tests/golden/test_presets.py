"""The reference of presets is what their files say; ``pytest --update-golden`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clustersim.config.presets import Preset, PresetSetting, load_preset, preset_names
from clustersim.documents.text import Data

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "presets.md"
MARK = "<!-- presets: written by tests/golden/test_presets.py -->\n"


def shown(value: Data) -> str:
    if value is None:
        return "left out"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def row(preset: Preset, setting: PresetSetting) -> str:
    (key, values), *_ = (setting.where or {"": []}).items()
    condition = f", where `{key}` is {' or '.join(shown(value) for value in values)}" if key else ""
    kind = "fixed" if setting.fixed else "default"
    stated = preset.sources[setting.source]
    source = f"[{stated.title}, {stated.version}]({stated.url})"
    return f"| `{setting.key}` | {shown(setting.data)}{condition} | {kind} | {setting.reason} | {source} |\n"


def section(name: str, preset: Preset) -> Iterator[str]:
    yield f"\n## `{name}`\n\n{preset.stands_for}.\n\n| key | value | | why | source |\n|---|---|---|---|---|\n"
    yield from (row(preset, setting) for setting in preset.settings)
    for refusal in preset.refuses:
        but = "all but " if refusal.only else ""
        values = ", ".join(shown(value) for value in refusal.only or refusal.values)
        yield f"\nRefused: `{refusal.key}`, {but}{values}: {refusal.reason}.\n"
    if preset.left_out:
        yield f"\nNot simulated: {'; '.join(preset.left_out)}.\n"


def tables() -> str:
    return "".join(text for name in preset_names() for text in section(name, load_preset(name)))


def test_the_page_of_presets_shows_what_their_files_set(request: pytest.FixtureRequest) -> None:
    head, mark, body = PAGE.read_text(encoding="utf-8").partition(MARK)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{head}{MARK}{tables()}", encoding="utf-8", newline="\n")
        return

    assert mark
    assert body == tables()
