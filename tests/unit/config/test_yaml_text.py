"""YAML whose bytes depend on the data alone, and that reads back as the same data."""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest

from clustersim.config.yaml_text import plain, yaml_text
from clustersim.documents.text import Data, parse_document
from clustersim.hardware.catalog import load_node
from clustersim.notices import Flag
from tests.golden.reference import reference_metrics, reference_timeline


def test_mappings_stand_in_blocks_and_scalars_of_a_list_on_one_line() -> None:
    text = yaml_text({"strategy": {"tp": 8, "placement": ["tp", "dp"]}, "offload": [], "model": {}})

    assert text == "strategy:\n  tp: 8\n  placement: [tp, dp]\noffload: []\nmodel: {}\n"


def test_mappings_in_a_list_begin_with_a_dash() -> None:
    text = yaml_text({"links": [{"between": ["a", "b"], "state": "down"}, {"state": "up"}]})

    assert text == "links:\n  - between: [a, b]\n    state: down\n  - state: up\n"


@pytest.mark.parametrize("word", ["25 MB", "1f1b", "dgx-h100", "400 Gbit/s", "path/to.yaml"])
def test_plain_words_stand_without_quotes(word: str) -> None:
    assert yaml_text({"key": word}) == f"key: {word}\n"


@pytest.mark.parametrize(
    "word", ["true", "No", "null", "12", "1e3", "0x1f", "2026-11-20", "", " a", "a: b", "a #b", "- a", "*a", "é", "1_000"]
)
def test_words_that_yaml_would_misread_stand_in_quotes(word: str) -> None:
    assert yaml_text({"key": word}) == f'key: "{word}"\n'


@pytest.mark.parametrize(
    "value", ['say "no"', "back\\slash", "two\nlines", "\u2028", "\x07bell", "tab\t", True, None, 0.1, 1e300, -3, [[1], [2]], [{}, []]]
)
def test_every_value_reads_back_the_same(value: Data) -> None:
    data: dict[str, Data] = {"outer": {"key": value}}

    assert parse_document(yaml_text(data), "text").data == data


def test_dataclasses_are_mappings_and_tuples_are_lists() -> None:
    assert plain((Flag(code="a", message="b"), MappingProxyType({"c": 1.5}))) == [{"code": "a", "message": "b"}, {"c": 1.5}]


def test_metrics_are_the_same_as_their_own_dictionary() -> None:
    metrics = reference_metrics(reference_timeline())

    assert json.dumps(plain(metrics)) == json.dumps(metrics.to_dict())


def test_a_whole_node_goes_into_json() -> None:
    node = plain(load_node("dgx-h100"))

    assert isinstance(node, dict)
    assert json.loads(json.dumps(node)) == node


def test_what_has_no_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no plain form"):
        plain({1, 2})
