"""Frozen objects as plain data."""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest

from clustersim.config.plain import plain
from clustersim.hardware.catalog import load_node
from clustersim.notices import Flag
from tests.golden.reference import reference_metrics, reference_timeline


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
