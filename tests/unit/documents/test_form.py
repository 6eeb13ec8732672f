"""Keys of files and attributes name each other."""

from __future__ import annotations

import pytest

from clustersim.documents.form import attribute_of, keys_of
from clustersim.hardware.catalog import load_node
from clustersim.hardware.models import Node


@pytest.mark.parametrize("part", ["accelerator", "host", "nic", "fabric"])
def test_every_key_finds_its_attribute(part: str) -> None:
    node: Node = load_node("dgx-h100")
    whole: object = getattr(node, part)

    assert {key: attribute_of(whole, key) for key in keys_of(type(whole))} == dict(keys_of(type(whole)))
