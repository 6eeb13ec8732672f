"""Error bars from residuals: middles, sizes, factors, weights, sources that are left out."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from clustersim.apps.run.intervals import read_bands
from clustersim.apps.validate.quantiles import LEVEL_FRACTION, Residual, weighted_quantile
from clustersim.apps.validate.residuals import Widenings, digest, error_bars, residuals_text, write_residuals
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import RunKind

PLAIN: RunKind = ()
EXPERTS: RunKind = ("experts",)


def source(name: str, *ratios: float, kind: RunKind = PLAIN) -> list[Residual]:
    """Return rows whose measured time is the predicted one times a ratio."""
    return [
        Residual(source_id=name, row_id=f"{name}-{place}", kind=kind, measured_s=2.0 * ratio, predicted_s=2.0)
        for place, ratio in enumerate(ratios)
    ]


def spread(name: str, middle: float = 0.0, n_rows: int = 21, width: float = 0.2, kind: RunKind = PLAIN) -> list[Residual]:
    """Return rows whose logarithms are spread evenly about a middle."""
    return source(name, *(exp(middle + width * (place / (n_rows - 1) - 0.5)) for place in range(n_rows)), kind=kind)


FOUR = [*spread("a"), *spread("b", 0.02), *spread("c", -0.02), *spread("d", 0.01)]


def test_fewer_sources_than_can_be_left_out_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sources, of at least 3"):
        error_bars([*spread("a"), *spread("b")])


def test_the_interval_is_about_where_measurements_lie() -> None:
    band = error_bars([*spread("a", 0.1), *spread("b", 0.1), *spread("c", 0.1)]).bands.spread.band(PLAIN)

    assert log(band.least_fraction) == pytest.approx(0.1 - LEVEL_FRACTION * 0.1, abs=0.02)
    assert log(band.most_fraction) == pytest.approx(0.1 + LEVEL_FRACTION * 0.1, abs=0.02)


def test_most_rows_of_a_source_that_gave_nothing_are_covered() -> None:
    bars = error_bars(FOUR)

    assert bars.coverage.weighted_fraction == pytest.approx(LEVEL_FRACTION, abs=0.05)
    assert bars.coverage.rows_fraction == pytest.approx(bars.coverage.sources_fraction, rel=1e-12)  # sources are of one size


def test_sources_that_differ_need_wider_intervals_than_their_rows() -> None:
    alike = error_bars([*spread("a"), *spread("b"), *spread("c"), *spread("d")])
    apart = error_bars([*spread("a", -0.2), *spread("b", 0.2), *spread("c", 0.0), *spread("d", 0.3)])

    assert log(apart.bands.spread.most_fraction) > 2 * log(alike.bands.spread.most_fraction)


def test_a_source_of_many_rows_does_not_drown_the_others() -> None:
    few = [*spread("a"), *spread("b"), *spread("c")]
    many = spread("large", 0.5, n_rows=2000)

    middle = error_bars([*few, *many]).bands.spread.band(PLAIN)

    # As the root of 2000 stands against three roots of 21, most weight but not all is at 0.5.
    assert middle.least_fraction < exp(0.1)


def test_what_a_source_is_judged_by_does_not_depend_on_it() -> None:
    other = [replace(row, measured_s=3.0 * row.measured_s) for row in spread("d", 0.01)]
    before, after = error_bars(FOUR).bands.held_out, error_bars([*FOUR[:-21], *other]).bands.held_out

    assert before["d"] == after["d"]
    assert before["a"] != after["a"]


def test_a_word_widens_intervals_as_much_as_it_makes_errors_larger() -> None:
    larger = [row for name in "abcd" for row in spread(name, width=0.6, kind=EXPERTS)]

    found = error_bars([*FOUR, *larger]).bands.spread

    assert found.factors["experts"] == pytest.approx(3.0, rel=0.1)
    assert log(found.band(EXPERTS).most_fraction / found.middle_fraction) == pytest.approx(
        found.factors["experts"] * log(found.most_fraction), rel=1e-9
    )


def test_two_words_multiply() -> None:
    widths: dict[RunKind, float] = {EXPERTS: 0.4, ("short step",): 0.6, ("experts", "short step"): 1.2}
    rows = [row for kind, width in widths.items() for name in "abcd" for row in spread(name, width=width, kind=kind)]

    found = error_bars([*FOUR, *rows]).bands.spread

    assert found.factor(("experts", "short step")) == found.factors["experts"] * found.factors["short step"]
    assert found.factors["experts"] == pytest.approx(2.0, rel=0.1)
    assert found.factors["short step"] == pytest.approx(3.0, rel=0.1)


def test_a_word_of_three_sources_has_a_surcharge_for_being_few() -> None:
    few, many = ([row for name in names for row in spread(name, width=0.2, kind=EXPERTS)] for names in ("abc", "abcd"))
    factors = [error_bars([*FOUR, *rows]).bands.spread.factors["experts"] for rows in (few, many)]

    assert factors[0] / factors[1] == pytest.approx(1.5**0.5, rel=0.05)


def test_a_word_that_makes_errors_smaller_narrows_nothing() -> None:
    smaller = [row for name in "abcd" for row in spread(name, width=0.05, kind=EXPERTS)]

    assert error_bars([*FOUR, *smaller]).bands.spread.factors["experts"] == 1.0


@pytest.mark.parametrize("rows", [spread("a", width=0.6, kind=EXPERTS), []])
def test_a_word_of_one_source_alone_has_no_factor(rows: list[Residual]) -> None:
    found = error_bars([*FOUR, *rows])

    assert "experts" not in found.bands.spread.factors
    assert found.bands.spread.band(EXPERTS) == found.bands.spread.band(PLAIN)
    assert found.words == ()


def test_error_bars_say_what_they_come_from() -> None:
    bars = error_bars([*FOUR, *spread("a", width=0.6, kind=EXPERTS), *spread("b", width=0.6, kind=EXPERTS)])

    (experts,) = bars.words
    assert (experts.word, experts.rows, experts.sources) == ("experts", 42, 2)
    # A run that is predicted in two ways is one.
    assert (bars.n_rows, bars.source_ids) == (84, ("a", "b", "c", "d"))


def test_runs_reach_as_far_as_three_sources_have_gone() -> None:
    rows = [replace(row, n_accelerators=8 * ("abcd".index(row.source_id) + 1), seq_length=4096) for row in FOUR]

    reach = error_bars(rows, Widenings(unmeasured=1.3, borrowed=2.0, borrowed_ratios=1.4)).bands.reach

    assert reach is not None
    assert (reach.n_accelerators, reach.seq_length) == (16, 4096)
    assert (reach.widening, reach.borrowed_widening, reach.borrowed_ratio_widening) == (1.3, 2.0, 1.4)


def test_the_digest_knows_a_changed_prediction_and_no_order() -> None:
    changed = [replace(FOUR[0], predicted_s=2.001), *FOUR[1:]]

    assert digest(FOUR) == digest(FOUR[::-1]) != digest(changed)


def test_the_digest_does_not_know_round_off() -> None:
    assert digest(FOUR) == digest([replace(FOUR[0], predicted_s=2.0 * (1 + 1e-12)), *FOUR[1:]])


@pytest.mark.parametrize(("fraction", "value"), [(0.0, 1.0), (0.5, 2.0), (1.0, 3.0)])
def test_a_quantile_of_equal_weights_is_the_usual_one(fraction: float, value: float) -> None:
    assert weighted_quantile([3.0, 1.0, 2.0], [1.0, 1.0, 1.0], fraction) == value


def test_a_heavy_value_pulls_a_quantile() -> None:
    assert weighted_quantile([0.0, 1.0], [1.0, 9.0], 0.5) > weighted_quantile([0.0, 1.0], [1.0, 1.0], 0.5) == 0.5


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    bars, file = error_bars(FOUR, Widenings(unmeasured=1.3)), tmp_path / "step-time.yaml"

    write_residuals(bars, file)

    read = read_bands(file)
    assert read.level_fraction == 0.8
    assert read.spread.most_fraction == pytest.approx(bars.bands.spread.most_fraction, abs=5e-5)
    assert read.ratio(PLAIN) == pytest.approx(bars.bands.ratio(PLAIN), abs=5e-5)
    assert read.reach == bars.bands.reach
    assert read.held_out["a"].middle_fraction == pytest.approx(bars.bands.held_out["a"].middle_fraction, abs=5e-5)


def test_equal_error_bars_give_equal_text() -> None:
    assert residuals_text(error_bars(FOUR)) == residuals_text(error_bars(FOUR))


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot write"):
        write_residuals(error_bars(FOUR), tmp_path / "missing" / "step-time.yaml")
