"""Errors of ratios of two times on one machine: pairs, weights, factors, sources left out."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest

from clustersim.apps.run.intervals import RatiosSpec
from clustersim.apps.validate.quantiles import LEVEL_FRACTION, MOST_ROWS, Residual, ratios_of
from clustersim.measure.error_bars import Spread
from tests.unit.apps.validate.test_residuals import EXPERTS, PLAIN, spread

SPREAD = Spread(middle_fraction=1.0, most_fraction=1.1, factors={"experts": 2.0})


def of(*sources: list[Residual]) -> RatiosSpec:
    ratios = ratios_of({rows[0].source_id: rows for rows in sources}, SPREAD)
    assert ratios is not None
    return ratios


def test_an_error_that_all_rows_of_a_source_share_is_not_in_their_ratios() -> None:
    near, far = (of(*(spread(name, shift * place) for place, name in enumerate("abcd"))) for shift in (0.0, 0.3))

    assert far.most == pytest.approx(near.most, rel=1e-9)


def test_the_quantile_is_that_of_differences() -> None:
    ratios = of(*(spread(name, n_rows=41, width=0.2) for name in "abcd"))

    # Differences of two numbers spread evenly over a width: the share below d is 1 - (1 - d / width)^2.
    expected = 0.2 * (1.0 - (1.0 - LEVEL_FRACTION) ** 0.5)
    assert log(ratios.most) == pytest.approx(expected, abs=0.2 / 40)  # the step between neighbours
    assert ratios.coverage == pytest.approx(LEVEL_FRACTION, abs=0.05)


def test_rows_on_different_machines_are_not_paired() -> None:
    def apart(name: str) -> list[Residual]:
        rows = spread(name, n_rows=10, width=0.01)
        return [*rows, *(replace(row, row_id=f"{row.row_id}-b", machine="b", measured_s=2.0 * row.measured_s) for row in rows)]

    assert of(*(apart(name) for name in "abcd")).most < exp(0.02)


def test_a_source_weighs_as_the_root_of_its_rows() -> None:
    few = [spread(name, n_rows=6, width=0.4) for name in "abc"]
    many = [spread(name, n_rows=MOST_ROWS, width=0.04) for name in "de"]

    # By pairs, those of the two large sources are 99.7 % of all, and the quantile were within their width.
    assert log(of(*few, *many).most) > 0.04


def test_of_a_large_source_every_so_manieth_row_is_paired() -> None:
    found = of(*(spread(name, n_rows=2 * MOST_ROWS) for name in "abc"))

    assert found.pairs == 3 * MOST_ROWS * (MOST_ROWS - 1) // 2


def test_what_makes_errors_larger_is_taken_out_of_a_pair_that_has_it() -> None:
    wide = [spread(name, width=0.4, kind=EXPERTS) for name in "abcd"]

    assert of(*wide).most == pytest.approx(of(*(spread(name, width=0.2, kind=PLAIN) for name in "abcd")).most, rel=1e-9)


def test_without_pairs_nothing_is_known() -> None:
    assert ratios_of({name: spread(name)[:1] for name in "abcd"}, SPREAD) is None
