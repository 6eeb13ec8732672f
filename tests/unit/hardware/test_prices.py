"""Price lists: shipped ones load with a source for every figure, and name accelerators that exist."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import profile_names
from clustersim.hardware.prices import load_price_list, price_list_names, read_price_list

SOURCES = "sources: [{title: An offer, url: 'https://example.org', accessed: 2026-11-20, covers: [gpu_hour]}]\n"


@pytest.mark.parametrize("name", price_list_names())
def test_a_shipped_list_loads_and_a_rent_on_one_page_alone_is_known_as_such(name: str) -> None:
    prices = load_price_list(name)

    covered = [cover for source in prices.sources for cover in source.covers]
    assert set(prices.gpu_hour) | set(prices.accelerator_price) <= set(profile_names("accelerators"))
    for accelerator in prices.gpu_hour:
        assert prices.one_source(accelerator) == (covered.count("gpu_hour") + covered.count(f"gpu_hour.{accelerator}") == 1)
    for field in {cover.partition(".")[0] for cover in covered} - {"gpu_hour"}:
        assert covered.count(field) >= 2


def test_an_unknown_list_has_the_nearest_ones() -> None:
    with pytest.raises(ScenarioError, match="unknown price list 'rented'") as caught:
        load_price_list("rented")

    assert caught.value.hint == "did you mean 'rented-2026'?"


def test_a_file_is_a_list_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\ntitle: Mine\nas_of: 2026-11\ngpu_hour: {{a100-sxm4-40g: 1.10 USD/h}}\n{SOURCES}", encoding="utf-8")

    prices = read_price_list(path)

    assert (prices.as_of, dict(prices.gpu_hour), prices.pue) == ("2026-11", {"a100-sxm4-40g": 1.1}, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gpu_hour: {a100-sxm4-40g: 1.1}\n", "1.1 has no unit"),
        ("gpu_hour: {a100-sxm4-40g: 1.10 USD/h}\npue: 0.9\n", "0.9 is out of range"),
        ("gpu_hour: {a100-sxm4-40g: 1.10 USD/h}\npue: 1.1\n", "no source covers 'pue'"),
        ("gpu_hours: {}\n", "unknown field 'gpu_hours'"),
    ],
)
def test_a_list_that_is_wrong_has_its_place(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\ntitle: Mine\nas_of: 2026-11\n{line}{SOURCES}", encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        read_price_list(path)

    assert caught.value.message == message
    assert caught.value.place is not None
    assert caught.value.place.line in {4, 5}


@pytest.mark.parametrize(("as_of", "months"), [("2026-11-20", 0), ("2026-09", 2), ("2024", 23), ("2027-01", 0)])
def test_prices_are_so_many_months_old(tmp_path: Path, as_of: str, months: int) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\ntitle: Mine\nas_of: '{as_of}'\ngpu_hour: {{h200-sxm: 3 USD/h}}\n{SOURCES}", encoding="utf-8")

    assert read_price_list(path).age_months(date(2026, 11, 23)) == months
