"""Words and ticks that studies share."""

from __future__ import annotations

import pytest

from clustersim.studies.reported import Table, span_text, ticks


@pytest.mark.parametrize(
    ("values", "text"),
    [([2.0], "2 kB"), ([5.0, 2.0, 3.0], "2 to 5 kB"), ([2.0, None], "2 kB or none"), ([None, None], "none"), ([2.0, 2.0], "2 kB")],
)
def test_a_span_names_its_ends_and_its_unit_once(values: list[float | None], text: str) -> None:
    assert span_text(values, lambda value: f"{value:g} kB", "none") == text


def test_ends_with_different_units_keep_both() -> None:
    assert span_text([0.5, 2.0], lambda value: f"{value:g} MB" if value >= 1 else f"{1000 * value:g} kB", "none") == "500 kB to 2 MB"


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.02, 0.3], ["20 ms", "50 ms", "100 ms", "200 ms"]),
        ([0.002, 3.0], ["10 ms", "100 ms", "1 s"]),
        ([1e-6, 2.0], ["1 us", "1 ms", "1 s"]),
        ([1.0, 1.0], ["1 s"]),
    ],
)
def test_an_axis_has_a_few_round_ticks_however_long_it_is(values: list[float], texts: list[str]) -> None:
    assert [text.replace("µ", "u") for _, text in ticks(values, "s")] == texts


def test_a_table_gives_its_rows_by_the_names_of_its_columns() -> None:
    table = Table(name="some", header=("a", "b"), rows=((1, None), (2.5, "x")))

    assert table.records() == [{"a": 1, "b": None}, {"a": 2.5, "b": "x"}]
