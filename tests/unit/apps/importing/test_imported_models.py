"""Models as frameworks describe them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.importing.importing import import_files
from tests.unit.apps.importing.test_jobs import MEGATRON, ON_H100, at, written


@pytest.mark.parametrize(
    ("flags", "position"),
    [
        (" --position-embedding-type yarn", "yarn"),
        (" --position-embedding-type yarn --use-rotary-position-embeddings", "yarn"),
        (" --use-rotary-position-embeddings", "rope"),
    ],
)
def test_yarn_of_megatron_is_kept(tmp_path: Path, flags: str, position: str) -> None:
    assert at(import_files([written(tmp_path, MEGATRON + flags)], ON_H100).data, "model.position_embedding") == position


@pytest.mark.parametrize("option", ["--data-path", "--num-layers", "--tp-comm-overlap-cfg"])
def test_an_option_with_the_output_of_a_command_is_unknown(tmp_path: Path, option: str) -> None:
    found = import_files([written(tmp_path, f"{MEGATRON} {option} <(echo 2)")], ON_H100)

    assert [key.how for key in found.keys if key.key == option and key.note and "is not run" in key.note] == ["unknown"]
