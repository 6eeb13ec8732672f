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


SLOWER_THAN_TWO_PERCENT: Final = {("vtrain-multi", "gpt-18.4b"): 0.045}
"""Groups in which the choice of a plan was measured to be farther from the best, and by how much."""


def test_a_plan_restricted_to_measured_layouts_is_two_percent_from_the_best_but_where_said() -> None:
    chosen: dict[tuple[str, str], float] = {}
    for source in everything().sources:
        if source.source_id not in ("vtrain-multi", "bloom-jean-zay"):
            continue
        for ranking in source.rankings:
            group = [row for row in source.rows if (row.model, row.gpus) == (ranking.model, ranking.gpus)]
            # The search replays what its bounds do not rule out: with these layouts alone it takes the least prediction.
            # A layout that was measured more than once is as fast as its fastest run.
            least = min(group, key=lambda row: (row.predicted_s / row.global_batch_size, row.measured_s / row.global_batch_size))
            assert least.id == ranking.chosen_row
            best_s = min(row.measured_s / row.global_batch_size for row in group)
            chosen[source.source_id, ranking.model] = least.measured_s / least.global_batch_size / best_s - 1.0

    farther = {group: regret for group, regret in chosen.items() if regret > 0.02}
    assert chosen
    assert farther == {group: pytest.approx(regret, abs=0.001) for group, regret in SLOWER_THAN_TWO_PERCENT.items()}
