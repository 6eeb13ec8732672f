"""Predictions beside measurements: errors, summaries, and which figures a calibration has taken from a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.apps.calibrate.fit_steps import steps_of
from clustersim.apps.run.running import run
from clustersim.apps.validate.error_summary import summarise
from clustersim.apps.validate.published import Validation, parse_error_limit, validate, validate_defaults
from clustersim.apps.validate.rows import RowPlace
from clustersim.apps.validate.sources import as_typed, read_source
from clustersim.errors import ScenarioError
from clustersim.measure.metrics import Parallelism
from tests.published.validation_page import summary_table
from tests.unit.apps.samples import ROW, TEXT, rows, write


def test_the_prediction_is_that_of_a_plain_run(tmp_path: Path) -> None:
    path = write(tmp_path)

    row = validate([path]).sources[0].rows[1]

    assert row.predicted_s == run(read_source(path).scenario(1)).step_time_s


def test_the_error_is_the_prediction_over_the_measurement_less_one(tmp_path: Path) -> None:
    (source,) = validate([write(tmp_path)]).sources

    for row in source.rows:
        assert (1.0 + row.error_fraction) * row.measured_s == pytest.approx(row.predicted_s, rel=1e-12)


def test_a_row_carries_layout_memory_source_and_flags(tmp_path: Path) -> None:
    one, two = validate([write(tmp_path)]).sources[0].rows

    assert (one.gpus, one.parallelism) == (16, Parallelism(dp=4, tp=2, pp=2, cp=1, ep=1))
    assert one.fits
    assert 0 < one.peak_bytes < one.capacity_bytes
    assert one.source == RowPlace(table="table 1", row="first", url="https://example.org/paper")
    assert two.source.url == "https://example.org/appendix"
    assert (two.derived_from, two.assumed) == ("the rate", ("one sequence in a micro-batch",))
    assert "assumed_reserve" in [flag.code for flag in one.flags]


def test_a_source_carries_its_conventions_with_the_values_they_explain(tmp_path: Path) -> None:
    (source,) = validate([write(tmp_path)]).sources

    assert [(choice.key, choice.value, choice.reason) for choice in source.conventions] == [("training.precision", "bf16", "as stated")]
    assert (source.title, source.urls, source.notes) == ('A. Author, "Timings", 2024', ("https://example.org/paper",), ("Timed by hand.",))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("strategy.tp", "2"),
        ("strategy.overlap_tp", "true"),
        ("strategy.placement", "[tp, cp, ep, dp, pp]"),
        ("strategy.recompute", ""),  # the rows share no value
    ],
)
def test_the_value_of_a_convention_is_shown_as_it_is_written(tmp_path: Path, key: str, shown: str) -> None:
    text = TEXT.replace("training.precision: as", f"{key}: as")
    text = text.replace("{tp: 2, pp: 2}", "{tp: 2, pp: 2, overlap_tp: true, placement: [tp, cp, ep, dp, pp]}")
    text = text.replace("scenario: {}", "scenario: {strategy: {recompute: full}}")

    (source,) = validate([write(tmp_path, text)], quality="A").sources

    assert [choice.value for choice in source.conventions] == [shown]


def test_only_rows_of_the_quality_asked_for_are_run(tmp_path: Path) -> None:
    path = write(tmp_path)

    assert [row.id for row in validate([path], quality="A").sources[0].rows] == ["one"]
    assert [row.id for row in validate([path], quality="B").sources[0].rows] == ["one", "two"]


def test_a_quality_that_no_row_has_is_an_input_error(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace("quality: A", "quality: B"))

    with pytest.raises(ScenarioError, match="no row has quality A; use quality B"):
        validate([path], quality="A")


def test_a_source_without_a_row_of_the_quality_is_left_out(tmp_path: Path) -> None:
    first = write(tmp_path)
    second = write(tmp_path, TEXT.replace("quality: A", "quality: B").replace("source_id: small", "source_id: other"), "other.yaml")

    validation = validate([first, second], quality="A")

    assert [source.source_id for source in validation.sources] == ["small"]


def test_a_source_that_is_named_twice_is_run_once(tmp_path: Path) -> None:
    path = write(tmp_path)

    assert len(validate([path, path], quality="A").sources) == 1


def test_a_source_that_a_calibration_cites_is_not_independent(tmp_path: Path) -> None:
    cited = TEXT.replace("https://example.org/paper", "https://arxiv.org/abs/2205.05198")

    assert validate([write(tmp_path)]).sources[0].fitted == ()
    assert validate([write(tmp_path, cited)]).sources[0].fitted == ("ampere.memory_fraction",)


def test_a_row_from_elsewhere_that_a_calibration_cites_is_not_independent_either(tmp_path: Path) -> None:
    cited = TEXT.replace("https://example.org/appendix", "https://arxiv.org/abs/2205.05198")

    assert validate([write(tmp_path, cited)], quality="A").sources[0].fitted == ()
    assert validate([write(tmp_path, cited)]).sources[0].fitted == ("ampere.memory_fraction",)


def test_the_summary_is_made_of_absolute_errors() -> None:
    summary = summarise(rows(-0.06, 0.02, 0.01))

    assert summary.n_rows == 3
    assert summary.mean_absolute_error_fraction == pytest.approx(0.03, rel=1e-12)
    assert summary.median_absolute_error_fraction == pytest.approx(0.02, rel=1e-12)
    assert summary.mean_error_fraction == pytest.approx(-0.01, rel=1e-12)
    assert (summary.worst_row, summary.worst_error_fraction) == ("row-0", -0.06)


def test_the_first_of_equally_bad_rows_is_the_worst() -> None:
    assert summarise(rows(0.05, -0.05)).worst_row == "row-0"


def test_rows_that_ran_and_are_predicted_not_to_fit_are_named() -> None:
    good, bad = rows(0.0, 0.0)

    assert summarise([good, replace(bad, fits=False)]).false_out_of_memory == ("row-1",)


@pytest.mark.parametrize(("limit", "good"), [(0.05, True), (0.04, True), (0.039, False)])
def test_a_validation_is_better_than_a_limit_by_its_mean(limit: float, good: bool) -> None:
    assert Validation(sources=(), summary=summarise(rows(0.04, -0.04))).better_than(limit) is good


def test_no_limit_is_kept_by_a_false_out_of_memory() -> None:
    summary = summarise([replace(ROW, fits=False)])

    assert Validation(sources=(), summary=summary).better_than(1.0) is False


@pytest.mark.parametrize(("text", "fraction"), [("8%", 0.08), ("8 %", 0.08), (" 2.5 % ", 0.025), ("0%", 0.0), ("100%", 1.0)])
def test_a_limit_is_a_percentage(text: str, fraction: float) -> None:
    assert parse_error_limit(text) == pytest.approx(fraction, rel=1e-12)


@pytest.mark.parametrize("text", ["8", "0.08", "", "%", "-1%", "nan%", "8 %%", "1e3%", "٨%", "9" * 400 + "%"])
def test_a_limit_without_its_sign_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="is not a percentage"):
        parse_error_limit(text)


@pytest.mark.parametrize(
    ("printed", "measured_s", "method"),
    [
        ("samples_per_s: 320 samples/s", 32 / 320, "the printed samples per second"),
        ("tokens_per_s_per_gpu: 5120 tokens/s", 32 * 256 / (5120 * 16), "the printed tokens per second and GPU"),
        ("step_time: 100 ms", 0.1, None),
    ],
)
def test_a_printed_rate_becomes_a_step_time(tmp_path: Path, printed: str, measured_s: float, method: str | None) -> None:
    file = write(tmp_path, TEXT.replace("step_time: 100 ms", printed))

    row = validate([file]).sources[0].rows[0]

    assert row.measured_s == pytest.approx(measured_s, rel=1e-12)
    assert row.derived_from == method
    assert row.error_fraction == pytest.approx(row.predicted_s / measured_s - 1.0, rel=1e-12)


def test_a_printed_peak_of_memory_is_compared_with_the_predicted_one(tmp_path: Path) -> None:
    file = write(tmp_path, TEXT.replace("{step_time: 100 ms}", "{step_time: 100 ms, memory: 4 GB}"))

    validation = validate([file])
    first, second = validation.sources[0].rows

    assert first.memory_error_fraction == pytest.approx(first.peak_bytes / 4e9 - 1.0, rel=1e-12)
    assert second.memory_error_fraction is None
    assert validation.summary.n_memory_rows == 1
    assert first.memory_error_fraction is not None
    assert validation.summary.mean_absolute_memory_error_fraction == abs(first.memory_error_fraction)
    assert validation.summary.worst_memory_error_fraction == first.memory_error_fraction


def test_without_printed_memory_nothing_is_said_of_it() -> None:
    summary = summarise(rows(0.1))

    assert (summary.n_memory_rows, summary.mean_absolute_memory_error_fraction, summary.worst_memory_error_fraction) == (0, None, None)


def test_a_run_that_ran_out_of_memory_is_compared_with_what_there_is(tmp_path: Path) -> None:
    misfit = "out_of_memory:\n  - id: small-after-all\n    source: {table: table 3, row: last}\n    scenario: {}\n"

    (result,) = validate([write(tmp_path, TEXT + misfit)]).sources[0].out_of_memory

    assert (result.id, result.source.table, result.fits) == ("small-after-all", "table 3", True)
    assert 0.0 < result.peak_bytes < result.capacity_bytes


GIVEN = """\
source_id: small
title: Rates
urls: [https://example.org/rates]
retrieved: 2026-11-21
common:
  model: {layers: alexnet, samples_per_s: 500 samples/s}
  cluster: {node: dgx1-v100-16g, nodes: 1}
  training: {global_batch_size: 256, precision: fp32}
  strategy: {}
rows:
  - {id: one, source: {table: table 1, row: first}, quality: A, measured: {samples_per_s: 3000 samples/s}, scenario: {}}
"""


def test_a_row_whose_speed_alone_is_given_is_no_row_of_all(tmp_path: Path) -> None:
    validation = validate([write(tmp_path, GIVEN)])

    (source,) = validation.sources
    assert source.stated == ()
    assert {row.interval_s for row in source.rows} == {None}
    assert "| `small`† |" in summary_table(validation)
    assert steps_of(read_source(tmp_path / "small.yaml")) == []


def test_what_was_fitted_to_the_rows_is_said_with_the_source(tmp_path: Path) -> None:
    assert validate([write(tmp_path, f"{TEXT}fitted: [strategy.tp]\n")]).sources[0].fitted == ("strategy.tp",)


def test_typed_rows_keep_model_machine_batch_and_degrees_and_leave_the_fine_print_to_defaults() -> None:
    source = read_source("bloom-jean-zay")

    typed = as_typed(source).scenario(0)

    full = source.scenario(0)
    assert (typed["model"], typed["cluster"]) == (full["model"], full["cluster"])
    assert typed["training"] == {"seq_length": 2048, "precision": "fp16", "global_batch_size": 2048, "micro_batch_size": 1}
    assert isinstance(typed["strategy"], dict)
    assert set(typed["strategy"]) == {"tp", "schedule", "virtual_stages", "zero_stage", "recompute", "dp", "pp"}


def test_formats_that_are_named_as_a_precision_are_typed() -> None:
    source = as_typed(read_source("megatron-bridge"))
    sections = [source.scenario(index)["training"] for index in range(len(source.spec.rows))]

    assert {str(each.get("fp8_scaling")) for each in sections if isinstance(each, dict)} == {"mx", "nvfp4", "None"}


def test_rows_that_defaults_refuse_are_named_with_the_reason_and_the_others_are_compared(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT.replace("global_batch_size: 64", "global_batch_size: 63"))

    found = validate_defaults([path])

    assert [row.id for source in found.sources for row in source.rows] == ["one"]
    assert "63 is not a multiple of" in found.refused["two"]
