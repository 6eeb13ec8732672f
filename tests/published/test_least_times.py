"""Least times of published rows, and whether the fastest of their layouts was found."""

from __future__ import annotations

from typing import Final

import pytest

from tests.published.validated import everything

pytestmark = [pytest.mark.xdist_group("published"), pytest.mark.slow]

REGRETS: Final = {("vtrain-multi", "gpt-18.4b"): 0.05}
"""Largest excess of the layout with the shortest prediction over the fastest one."""


@pytest.mark.parametrize("source_id", ["vtrain-multi", "bloom-jean-zay"])
def test_the_layout_that_is_predicted_to_be_the_fastest_was_nearly_so(source_id: str) -> None:
    (source,) = (each for each in everything().sources if each.source_id == source_id)

    for ranking in source.rankings:
        assert ranking.regret_fraction <= REGRETS.get((source_id, ranking.model), 0.0), ranking


def test_no_prediction_is_shorter_than_its_bound() -> None:
    bounds = {row.id: (row.bound_s, row.predicted_s) for source in everything().sources for row in source.rows}

    assert [row_id for row_id, (bound_s, predicted_s) in bounds.items() if bound_s is None or predicted_s < bound_s * (1 - 1e-9)] == []


def test_no_measurement_is_shorter_than_the_peak_of_the_data_sheet_allows() -> None:
    assert everything().faster_than_peak() == ()
