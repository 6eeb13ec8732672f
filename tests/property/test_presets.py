"""Whatever a scenario says stays as it is under every preset, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.config.presets import apply_preset, load_preset, preset_names
from clustersim.config.yaml_text import yaml_text
from clustersim.documents.text import Data, Document, parse_document
from clustersim.errors import ScenarioError

KEYS = sorted({setting.key for name in preset_names() for setting in load_preset(name).settings})
VALUES = st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["same", "50 MB", "auto", "1f1b", "dualpipe"]))


@st.composite
def documents(draw: st.DrawFn) -> tuple[Document, dict[str, Data]]:
    """Return a document with a preset and values for some of the keys that presets set, and these values."""
    given_values: dict[str, Data] = draw(st.dictionaries(st.sampled_from(KEYS), VALUES))
    document = parse_document(yaml_text({"strategy": {"preset": draw(st.sampled_from(preset_names()))}}), "x.yaml")
    for key, value in given_values.items():
        document = document.with_value(key.split("."), value)
    return parse_document(yaml_text(document.data), "x.yaml"), given_values


def part(data: Data, path: str) -> Data:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


@given(documents())
def test_what_a_scenario_says_is_kept_at_its_place_or_contradicts_what_is_fixed(case: tuple[Document, dict[str, Data]]) -> None:
    document, said = case
    preset = load_preset(str(part(document.data, "strategy.preset")))
    fixed = {setting.key: setting.data for setting in preset.settings if setting.fixed}
    refused = {key for key, value in said.items() for refusal in preset.refuses if refusal.key == key and refusal.refuses(value)}
    wrong = [key for key, value in said.items() if (key in fixed and fixed[key] != value) or key in refused]

    if wrong:
        with pytest.raises(ScenarioError) as caught:
            apply_preset(document)
        assert caught.value.field in wrong
        assert caught.value.place == document.place(str(caught.value.field).split("."))
        return
    merged = apply_preset(document).document

    for key, value in said.items():
        assert part(merged.data, key) == value
        assert merged.place(key.split(".")) == document.place(key.split("."))


@given(documents())
def test_what_a_preset_brings_stands_where_it_is_named_and_is_all_that_changes(case: tuple[Document, dict[str, Data]]) -> None:
    document, said = case
    preset = load_preset(str(part(document.data, "strategy.preset")))
    fixed = {s.key: s.data for s in preset.settings if s.fixed}
    # What is refused is set to what would be there without it.
    fixed |= {refusal.key: None for refusal in preset.refuses if refusal.refuses(said.get(refusal.key))}
    for key in said.keys() & fixed.keys():
        document = document.with_value(key.split("."), fixed[key])

    merged = apply_preset(document).document

    for key in KEYS:
        before, after = part(document.data, key), part(merged.data, key)
        if before is None and after is not None and key not in said:
            assert merged.place(key.split(".")) == document.place(["strategy", "preset"])
    assert apply_preset(merged).document.data == merged.data
