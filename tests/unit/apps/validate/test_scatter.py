"""Measured against predicted as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.validate.published import Validation, validate
from clustersim.apps.validate.validation_table import scatter, write_scatter
from clustersim.errors import ScenarioError
from tests.unit.apps.samples import ROW, write


@pytest.fixture
def validation(tmp_path: Path) -> Validation:
    return validate([write(tmp_path)])


def test_each_row_is_a_point_of_measured_and_predicted_time(validation: Validation) -> None:
    (panel,) = scatter(validation).panels

    rows = validation.sources[0].rows
    assert panel.title == "many nodes, 2 rows"
    assert [point for group in panel.groups for point in group.points] == [(row.measured_s, row.predicted_s) for row in rows]


def test_experts_have_a_colour_of_their_own(validation: Validation) -> None:
    (source,) = validation.sources
    mixed = replace(source, rows=(*source.rows, replace(ROW, capabilities=("experts", "one node"))))

    one, many = scatter(replace(validation, sources=(mixed,))).panels

    assert [group.label for group in one.groups] == ["experts"]
    assert {group.colour for group in one.groups}.isdisjoint(group.colour for group in many.groups)


def test_a_picture_that_cannot_be_written_is_an_input_error(validation: Validation, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot write"):
        write_scatter(validation, tmp_path / "missing" / "all.png")
