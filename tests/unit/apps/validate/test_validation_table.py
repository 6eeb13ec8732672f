"""Validation results as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from clustersim.apps.plot.plots import drawn_errors
from clustersim.apps.validate.error_summary import rankings, summarise
from clustersim.apps.validate.published import Validation, validate
from clustersim.apps.validate.rows import MisfitResult, RowPlace, RowResult
from clustersim.apps.validate.validation_table import (
    MANY_ROWS,
    error_text,
    fitted_text,
    layout_text,
    layouts_table,
    measured_text,
    memory_text,
    misfit_lines,
    predicted_text,
    ranking_lines,
    row_error_text,
    share_text,
    source_text,
    summary_text,
)
from clustersim.errors import ScenarioError
from clustersim.measure.metrics import Parallelism
from clustersim.report.plots.canvas import title_of
from tests.published.validation_page import markdown_page, summary_table
from tests.unit.apps.samples import ROW, TEXT, rows, write


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
def validation(tmp_path: Path) -> Validation:
    return validate([write(tmp_path)])


def test_a_layout_is_tensor_by_pipeline_by_data_parallel() -> None:
    assert layout_text(replace(ROW, parallelism=Parallelism(dp=4, tp=8, pp=12, cp=1, ep=1))) == "8x12x4"


def test_a_layout_names_context_and_expert_parallelism_where_there_is_any() -> None:
    assert layout_text(replace(ROW, parallelism=Parallelism(dp=4, tp=8, pp=1, cp=2, ep=1))) == "8x1x4 cp 2"
    assert layout_text(replace(ROW, parallelism=Parallelism(dp=8, tp=4, pp=2, cp=2, ep=8))) == "4x2x8 cp 2 ep 8"


def test_a_measurement_keeps_its_digits_and_is_marked_where_it_was_derived() -> None:
    assert measured_text(replace(ROW, measured_s=13.75)) == "13.75 s"
    assert measured_text(replace(ROW, measured_s=24.817, derived_from="a rate")) == "24.82 s*"


def test_a_prediction_has_as_many_digits_as_a_measurement() -> None:
    assert predicted_text(replace(ROW, predicted_s=31.0939)) == "31.09 s"


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [(0.0207, 1, "+2.1 %"), (-0.0669, 2, "-6.69 %"), (-0.0001, 1, "+0.0 %"), (0.0001, 1, "+0.0 %"), (1.5, 1, "+150.0 %")],
)
def test_an_error_has_a_sign_unless_it_rounds_to_nothing(fraction: float, digits: int, text: str) -> None:
    assert error_text(fraction, digits) == text


def test_a_share_has_no_sign() -> None:
    assert share_text(0.0323) == "3.2 %"


def test_a_summary_is_one_sentence() -> None:
    assert summary_text(summarise(rows(-0.06, 0.02, 0.01))) == (
        "3 rows: mean absolute error 3.0 %, median 2.0 %, mean with its sign -1.0 %, worst -6.0 % (row-0)"
    )
    assert summary_text(summarise(rows(0.02))).startswith("1 row: ")


def test_rows_that_are_predicted_not_to_fit_are_named() -> None:
    good, bad = rows(0.0, 0.0)

    assert memory_text(summarise([good])) == "wrongly predicted not to fit: none"
    assert memory_text(summarise([good, replace(bad, fits=False)])) == "wrongly predicted not to fit: row-1"


def test_what_was_fitted_to_a_source_is_said(validation: Validation) -> None:
    (source,) = validation.sources

    assert fitted_text(source) == "no calibration constant was fitted to this source"
    assert "ampere.memory_fraction" in fitted_text(replace(source, fitted=("ampere.memory_fraction",)))


def test_the_summary_table_has_a_line_for_each_source_and_one_for_all(validation: Validation) -> None:
    header, rule, source, everything = summary_table(validation).splitlines()

    assert cells(header)[0] == "source"
    assert set(rule) == {"|", "-", ":"}
    assert cells(source)[:3] == ["`small`", "2", share_text(validation.summary.mean_absolute_error_fraction)]
    assert cells(everything)[0] == "all"
    assert {line.count("|") for line in (header, rule, source, everything)} == {9}


def test_rows_that_hide_a_setting_have_a_range_of_errors_and_no_error(validation: Validation) -> None:
    hidden = replace(ROW, measured_s=1.0, predicted_s=1.0, predicted_range_s=(0.9, 1.2))
    source = replace(validation.sources[0], rows=(hidden,))
    together = replace(validation, sources=(source,))

    assert row_error_text(hidden) == "-10.0 % to +20.0 %"
    assert cells(summary_table(together).splitlines()[2])[1:5] == ["1", "", "", "-10.0 % to +20.0 %"]
    assert source_text(source) == "rows with a hidden setting: mean error -10.0 % to +20.0 % over all that it allows"
    assert "| -10.00 % to +20.00 % |" in markdown_page(together)


def test_a_picture_has_no_point_for_a_run_with_a_hidden_setting(validation: Validation) -> None:
    (source,) = validation.sources
    scored, hidden = source.rows[0], replace(source.rows[0], id="hides", predicted_range_s=(0.09, 0.12))

    def drawn(*rows: RowResult) -> Axes:
        return drawn_errors(replace(validation, sources=(replace(source, rows=rows),)))

    ax = drawn(scored, hidden)

    assert title_of(ax).startswith("1 published run")
    assert "1 left out: a hidden setting" in [text.get_text() for text in ax.texts]
    with pytest.raises(ScenarioError, match="there is no error to draw"):
        drawn(hidden)


def test_the_page_has_a_line_for_each_row_with_its_place_in_the_source(validation: Validation) -> None:
    page = markdown_page(validation)

    (one,) = [cells(line) for line in page.splitlines() if line.startswith("| one ")]
    (two,) = [cells(line) for line in page.splitlines() if line.startswith("| two ")]
    row = validation.sources[0].rows[0]
    assert one == [
        "one", "model", "16", "2x2x4", "1", "100 ms", predicted_text(row), error_text(row.error_fraction, 2), "yes", "A", "table 1, first",
    ]  # fmt: skip
    assert two[5] == r"200 ms\*"
    assert r"\* not printed, but derived from the rate." in page
    assert 'A. Author, "Timings", 2024: <https://example.org/paper>.' in page


def test_a_source_without_derived_step_times_has_no_footnote(tmp_path: Path) -> None:
    page = markdown_page(validate([write(tmp_path, TEXT.replace("    derived_from: the rate\n", ""))]))

    assert "derived" not in page


def test_a_row_that_does_not_fit_says_so(tmp_path: Path) -> None:
    validation = validate([write(tmp_path)])
    (source,) = validation.sources
    misfit = replace(source.rows[0], fits=False)

    page = markdown_page(Validation(sources=(replace(source, rows=(misfit,)),), summary=summarise([misfit])))

    assert "wrongly predicted not to fit: one" in page
    assert "| no | A |" in page


def test_memory_errors_stand_before_what_does_not_fit() -> None:
    summary = summarise([replace(ROW, measured_peak_bytes=2e9, memory_error_fraction=-0.125)])

    assert memory_text(summary) == "memory of 1 row: mean absolute error 12.5 %, worst -12.5 %; wrongly predicted not to fit: none"


def test_many_rows_are_shown_by_their_layouts(validation: Validation) -> None:
    (source,) = validation.sources
    other = Parallelism(dp=2, tp=4, pp=2, cp=1, ep=1)
    many = [replace(row, parallelism=other) if place == 0 else row for place, row in enumerate(rows(*(0.1,) * (MANY_ROWS + 1)))]
    source = replace(source, rows=tuple(many))

    table = layouts_table(source)

    assert table.names[:3] == ("GPUs", "tp x pp x dp", "rows")
    assert table.rows == (
        ("16", "4x2x2", "1", "10.0 %", "+10.0 %", "+10.0 % (row-0)"),
        ("16", "8x2x1", f"{MANY_ROWS}", "10.0 %", "+10.0 %", "+10.0 % (row-1)"),
    )
    page = markdown_page(replace(validation, sources=(source,)))
    assert "| 16 | 4x2x2 | 1 |" in page
    assert "row-7 |" not in page


def test_a_choice_by_predictions_is_judged_in_words(validation: Validation) -> None:
    other = Parallelism(dp=2, tp=4, pp=2, cp=1, ep=1)
    slow = [
        replace(ROW, id="a"),
        replace(ROW, id="b", measured_s=1.05, predicted_s=0.9, parallelism=other),
        replace(ROW, id="c", predicted_s=2.0),
    ]
    source = replace(validation.sources[0], rankings=rankings(slow))

    assert ranking_lines(source) == ["small on 16 GPUs: of 3 rows b is predicted to be the fastest, 5.0 % slower than a; Kendall tau -0.82"]
    right = replace(source, rankings=rankings([*slow[::2], replace(slow[1], predicted_s=3.0)]))
    assert ranking_lines(right) == ["small on 16 GPUs: of 3 rows a is predicted to be the fastest and is; Kendall tau 0.82"]


def test_a_run_that_did_not_fit_is_judged_in_words(validation: Validation) -> None:
    place = RowPlace(table="table 1", row="last", url="https://example.org")
    misfit = MisfitResult(id="huge", source=place, fits=False, peak_bytes=9e10, capacity_bytes=8e10, assumed=())
    source = replace(validation.sources[0], out_of_memory=(misfit, replace(misfit, fits=True, peak_bytes=7e10)))

    assert misfit_lines(source) == [
        "huge ran out of memory, and is predicted not to fit: 90 GB of 80 GB",
        "huge ran out of memory, and is predicted to fit: 70 GB of 80 GB",
    ]
