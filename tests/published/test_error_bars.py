"""The shipped error bars are what the shipped sources give, and cover what they say."""

from __future__ import annotations

import pytest

from clustersim.apps.plan.search import MEMORY_MARGIN
from clustersim.apps.run.intervals import MEMORY, STEP_TIME, residuals_path, shipped_bands
from clustersim.apps.validate.published import memory_error_bars
from clustersim.apps.validate.residuals import PEAKS, residuals_text, write_residuals
from tests.published.validated import bars, everything

pytestmark = [pytest.mark.xdist_group("published"), pytest.mark.slow]


def test_the_shipped_error_bars_are_what_the_shipped_sources_give(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        write_residuals(bars(), residuals_path(STEP_TIME))
        return

    assert residuals_path(STEP_TIME).read_text(encoding="utf-8") == residuals_text(bars()), "run clustersim validate --write-residuals"


def test_the_shipped_error_bars_of_memory_are_what_the_shipped_sources_give(request: pytest.FixtureRequest) -> None:
    made, file = memory_error_bars(everything()), residuals_path(STEP_TIME).with_name(MEMORY)
    if request.config.getoption("--update-golden"):
        write_residuals(made, file, PEAKS)
        return

    assert file.read_text(encoding="utf-8") == residuals_text(made, PEAKS), "run clustersim validate --write-residuals"


def test_no_published_run_is_predicted_not_to_fit_and_the_margin_of_plan_would_have_kept_nearly_all() -> None:
    shares = [row.peak_bytes / row.capacity_bytes for source in everything().sources for row in source.rows]

    assert max(shares) <= 1.0
    # Runs that took place are predicted to fill more of the memory than a plan may by default in one of fifty cases at most.
    assert sum(share > 1.0 - MEMORY_MARGIN for share in shares) <= len(shares) / 50


def test_intervals_that_other_sources_give_cover_what_they_say_of_every_kind() -> None:
    # Promised: 75 to 85 %, in whichever way rows are counted.
    coverage, words = bars().coverage, [each.covered for each in bars().words]

    for fraction in (coverage.weighted_fraction, coverage.rows_fraction, coverage.sources_fraction, *words):
        assert 0.75 <= fraction <= 0.85


def test_a_row_is_judged_by_an_interval_that_its_own_source_has_no_part_in() -> None:
    for source in everything().sources:
        for row in source.stated:
            assert row.interval_s is not None
            assert row.interval_s == shipped_bands().held_out[source.source_id].band(row.kind).interval_s(row.predicted_s)
