"""Ticks of logarithmic axes."""

from __future__ import annotations

import pytest

from clustersim.report.pictures import ticks


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
