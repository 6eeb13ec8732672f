"""Error bars as a file, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import ScenarioError
from clustersim.scenario.error_bars import read_bands, shipped_bands
from clustersim.studies.validation.residual_file import residuals_text, write_residuals
from clustersim.studies.validation.residuals import error_bars
from tests.unit.studies.validation.test_residuals import DENSE, FOUR


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
