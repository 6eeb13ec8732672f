"""Properties of error bars for any residuals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.apps.validate.quantiles import Residual
from clustersim.apps.validate.residuals import error_bars
from clustersim.measure.error_bars import WORDS, RunKind

KINDS: tuple[RunKind, ...] = ((), ("experts",), ("usual settings",), ("experts", "short step"))


@st.composite
def residuals(draw: st.DrawFn) -> list[Residual]:
    """Return three to five sources of two to thirty rows each, of any kinds; no two rows are quite alike."""
    rows: list[Residual] = []
    for name in "abcde"[: draw(st.integers(3, 5))]:
        ratios = draw(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=30, unique=True))
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=len(ratios), max_size=len(ratios)))
        rows += [
            Residual(source_id=name, row_id=f"{name}{place}", kind=kind, measured_s=ratio, predicted_s=1.0)
            for place, (ratio, kind) in enumerate(zip(ratios, kinds, strict=True))
        ]
    return rows


@settings(deadline=None, max_examples=20)
@given(residuals())
def test_every_kind_has_an_interval_and_a_word_more_never_narrows_it(rows: list[Residual]) -> None:
    spread = error_bars(rows).bands.spread

    plain = spread.band(())
    for kind in KINDS:
        band = spread.band(kind)
        assert 0.0 < band.least_fraction <= plain.least_fraction <= plain.most_fraction <= band.most_fraction
    assert set(spread.factors) <= set(WORDS)


@settings(deadline=None, max_examples=20)
@given(residuals(), st.floats(0.1, 10.0))
def test_what_is_slower_by_a_factor_has_intervals_that_are_later_by_it(rows: list[Residual], factor: float) -> None:
    slower = [
        Residual(source_id=row.source_id, row_id=row.row_id, kind=row.kind, measured_s=factor * row.measured_s, predicted_s=1.0)
        for row in rows
    ]

    before, after = error_bars(rows).bands.spread.band(KINDS[1]), error_bars(slower).bands.spread.band(KINDS[1])

    assert after.least_fraction == pytest.approx(factor * before.least_fraction, rel=1e-6)
    assert after.most_fraction == pytest.approx(factor * before.most_fraction, rel=1e-6)


@settings(deadline=None, max_examples=20)
@given(residuals())
def test_the_order_of_rows_does_not_matter(rows: list[Residual]) -> None:
    turned = [*rows[1:], rows[0]]

    assert error_bars(turned).digest == error_bars(rows).digest
    assert error_bars(turned).bands.spread.most_fraction == pytest.approx(error_bars(rows).bands.spread.most_fraction, rel=1e-6)
