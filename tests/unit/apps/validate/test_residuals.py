"""Error bars from residuals: quantiles, weights, borrowing, what is left out."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from clustersim.apps.run.intervals import read_bands, shipped_bands
from clustersim.apps.validate.quantiles import FEWEST_ROWS, FEWEST_SOURCES, LEVEL_FRACTION, Residual, weighted_quantile
from clustersim.apps.validate.residuals import digest, error_bars, residuals_text, write_residuals
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import RunKind

DENSE: RunKind = ("dense", "one node", "measured accelerator")
EXPERTS: RunKind = ("experts", "one node", "measured accelerator")


def source(name: str, *ratios: float, kind: RunKind = DENSE) -> list[Residual]:
    """Return rows whose measured time is the predicted one times a ratio."""
    return [
        Residual(source_id=name, row_id=f"{name}-{place}", kind=kind, measured_s=2.0 * ratio, predicted_s=2.0)
        for place, ratio in enumerate(ratios)
    ]


def spread(name: str, middle: float = 0.0, n_rows: int = 21, width: float = 0.2, kind: RunKind = DENSE) -> list[Residual]:
    """Return rows whose logarithms are spread evenly about a middle."""
    return source(name, *(exp(middle + width * (place / (n_rows - 1) - 0.5)) for place in range(n_rows)), kind=kind)


FOUR = [*spread("a"), *spread("b", 0.02), *spread("c", -0.02), *spread("d", 0.01)]


def test_fewer_sources_than_can_be_left_out_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sources, of at least 3"):
        error_bars([*spread("a"), *spread("b")])


def test_the_interval_is_about_where_measurements_lie() -> None:
    band = error_bars([*spread("a", 0.1), *spread("b", 0.1), *spread("c", 0.1)]).bands.band(DENSE)

    assert log(band.least_fraction) == pytest.approx(0.1 - LEVEL_FRACTION * 0.1, abs=0.02)
    assert log(band.most_fraction) == pytest.approx(0.1 + LEVEL_FRACTION * 0.1, abs=0.02)


def test_most_rows_of_a_source_that_gave_nothing_are_covered() -> None:
    bars = error_bars(FOUR)

    assert bars.coverage.weighted_fraction == pytest.approx(LEVEL_FRACTION, abs=0.05)
    assert bars.coverage.rows_fraction == pytest.approx(bars.coverage.sources_fraction, rel=1e-12)  # sources are of one size


def test_sources_that_differ_need_wider_intervals_than_their_rows() -> None:
    alike = error_bars([*spread("a"), *spread("b"), *spread("c"), *spread("d")])
    apart = error_bars([*spread("a", -0.2), *spread("b", 0.2), *spread("c", 0.0), *spread("d", 0.3)])

    assert apart.widening > alike.widening == pytest.approx(1.0, abs=0.05)


def test_a_source_of_many_rows_does_not_drown_the_others() -> None:
    few = [*spread("a"), *spread("b"), *spread("c")]
    many = spread("large", 0.5, n_rows=2000)

    middle = error_bars([*few, *many]).bands.band(DENSE)

    # As the root of 2000 stands against three roots of 21, most weight but not all is at 0.5.
    assert middle.least_fraction < exp(0.1)


def test_what_a_source_is_judged_by_does_not_depend_on_it() -> None:
    other = [replace(row, measured_s=3.0 * row.measured_s) for row in spread("d", 0.01)]
    before, after = error_bars(FOUR).bands.held_out, error_bars([*FOUR[:-21], *other]).bands.held_out

    assert before["d", DENSE] == after["d", DENSE]
    assert before["a", DENSE] != after["a", DENSE]


def test_a_kind_of_too_few_sources_borrows_from_a_wider_one() -> None:
    bars = error_bars([*FOUR, *spread("a", 0.05, kind=EXPERTS), *spread("b", 0.05, kind=EXPERTS)])

    assert FEWEST_SOURCES == 3
    assert bars.bands.band(EXPERTS).kind == ()
    assert bars.bands.band(DENSE).kind == DENSE


def test_what_is_borrowed_reaches_as_far_as_the_few_rows_there_are() -> None:
    few = [*spread("a", 1.0, n_rows=5, kind=EXPERTS), *spread("b", 1.0, n_rows=5, kind=EXPERTS)]

    band = error_bars([*FOUR, *few]).bands.band(EXPERTS)

    assert band.kind == ()
    assert band.most_fraction > exp(1.0)
    assert band.least_fraction < exp(-0.05)


def test_a_kind_of_too_few_rows_borrows_too() -> None:
    ends = (0.9, 1.0, 1.1)
    rare = [*source("a", *ends, kind=EXPERTS), *source("b", *ends, kind=EXPERTS), *source("c", *ends, kind=EXPERTS)]

    assert len(rare) < FEWEST_ROWS
    assert error_bars([*FOUR, *rare]).bands.band(EXPERTS).kind == ()


def test_bands_say_what_they_come_from() -> None:
    bars = error_bars(FOUR)

    (dense,) = (each for each in bars.counted if each.band.kind == DENSE)
    assert (dense.n_rows, dense.n_sources) == (84, 4)
    assert (bars.n_rows, bars.source_ids) == (84, ("a", "b", "c", "d"))


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
    bars, file = error_bars(FOUR, unmeasured_widening=1.3), tmp_path / "step-time.yaml"

    write_residuals(bars, file)

    read = read_bands(file)
    assert read.level_fraction == 0.8
    assert read.band(DENSE).least_fraction == pytest.approx(bars.bands.band(DENSE).least_fraction, abs=5e-5)
    assert read.ratio(DENSE) == pytest.approx(bars.bands.ratio(DENSE), abs=5e-5)
    assert (read.accelerators, read.unmeasured_widening) == (bars.bands.accelerators, 1.3)
    assert read.held_out["a", DENSE].most_fraction == pytest.approx(bars.bands.held_out["a", DENSE].most_fraction, abs=5e-5)


def test_equal_error_bars_give_equal_text() -> None:
    assert residuals_text(error_bars(FOUR)) == residuals_text(error_bars(FOUR))


def test_a_file_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot write"):
        write_residuals(error_bars(FOUR), tmp_path / "missing" / "step-time.yaml")


def test_the_shipped_file_covers_any_run() -> None:
    assert shipped_bands().band(("served", "many nodes", "accelerator not measured")).kind == ()
