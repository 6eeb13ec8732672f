"""Configurations that cannot be read as what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.workloads.reading.hf_config import parse_config, read_config


@pytest.mark.parametrize(("text", "line", "column"), [("{", 1, 2), ('{\n  "a" 1\n}', 2, 7), ("nul", 1, 1), ("\0", 1, 1)])
def test_broken_json_is_refused_at_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(ScenarioError, match="is not JSON") as caught:
        parse_config(text, "config.json")

    place = caught.value.place
    assert place is not None
    assert (place.line, place.column) == (line, column)


@pytest.mark.parametrize("text", ["", "  \n", "[1, 2]", '"text"', "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_what_is_no_json_object_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_config(text, "config.json")

    assert str(caught.value).startswith("config.json")


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"x" * 2_000_001])
def test_binary_and_huge_files_are_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(raw)

    with pytest.raises(ScenarioError, match=r"not text in UTF-8|larger than 2 MB"):
        read_config(path)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"config\.json: no such file"):
        read_config(tmp_path)
