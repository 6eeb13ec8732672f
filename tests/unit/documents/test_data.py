from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.documents import data
from clustersim.documents.data import data_path


@pytest.mark.parametrize("kind", ["hardware_profiles", "scenarios"])
def test_the_shipped_data_is_found(kind: str) -> None:
    assert data_path(kind).is_dir()
    assert data_path(kind).name == kind


def test_the_data_of_an_installed_wheel_comes_before_that_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "clustersim"
    (tmp_path / "scenarios").mkdir()
    package.mkdir()
    monkeypatch.setattr(data, "_PACKAGE", package)

    in_checkout = data_path("scenarios")
    (package / "_data" / "scenarios").mkdir(parents=True)

    assert in_checkout == tmp_path / "scenarios"
    assert data_path("scenarios") == package / "_data" / "scenarios"
