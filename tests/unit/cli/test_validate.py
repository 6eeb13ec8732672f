"""``clustersim validate``: report, JSON, progress, exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from clustersim.apps.validate.capabilities import CAPABILITIES
from clustersim.apps.validate.published import validate
from clustersim.apps.validate.sources import source_names
from clustersim.apps.validate.validation_table import error_text, summary_text
from clustersim.cli import watching
from clustersim.config.yaml_text import plain
from tests.unit.apps.samples import TEXT, write
from tests.unit.cli.conftest import Cli


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path)


def test_each_row_has_a_line_with_its_error(cli: Cli, source: Path) -> None:
    outcome = cli("validate", source)

    rows = validate([source]).sources[0].rows
    lines = {line.split()[0]: line for line in outcome.out.splitlines() if line.startswith(("one ", "two "))}
    assert outcome.code == 0
    assert outcome.err == ""
    for row in rows:
        assert error_text(row.error_fraction) in lines[row.id]
    assert lines["one"].split()[:4] == ["one", "16", "2x2x4", "1"]
    assert lines["two"].endswith("yes   B")


def test_the_report_names_source_conventions_and_assumptions(cli: Cli, source: Path) -> None:
    out = cli("validate", source).out

    assert 'A. Author, "Timings", 2024\n  https://example.org/paper\n' in out
    assert "Notes\n  Timed by hand.\n" in out
    assert "Conventions\n  training.precision: bf16 - as stated\n" in out
    assert "Assumed, where the source does not say\n  two: one sequence in a micro-batch\n" in out
    assert "* not printed, but derived from the rate\n" in out
    assert "no calibration constant was fitted to this source" in " ".join(out.split())
    assert f"All together, {summary_text(validate([source]).summary)}" in " ".join(out.split())
    assert [path.name for path in source.parent.iterdir()] == ["small.yaml"]


def test_a_narrow_terminal_gets_narrow_paragraphs(cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    out = cli("validate", source).out

    # Tables keep their lines whole.
    assert max(len(line) for line in out.splitlines() if not line.startswith(("row", "one", "two", "Ampere", *CAPABILITIES))) <= 40


def test_a_row_that_ran_and_is_predicted_not_to_fit_stands_out(cli: Cli, tmp_path: Path) -> None:
    text = TEXT.replace("scenario: {}", "scenario: {training: {global_batch_size: 65536, micro_batch_size: 16384}}")

    out = cli("validate", write(tmp_path, text)).out

    assert next(line for line in out.splitlines() if line.startswith("one ")).split()[-2:] == ["NO", "A"]
    assert "wrongly predicted not to fit: one" in " ".join(out.split())


def test_json_is_the_validation_as_data(cli: Cli, source: Path) -> None:
    outcome = cli("validate", source, "--json")

    validation = validate([source])
    expected = {
        "schema_version": 1,
        "sources": plain(validation.sources),
        "summary": plain(validation.summary),
        "hidden": None,
        "capabilities": plain(validation.capabilities),
        "rankings": None,
        "missed_out_of_memory": [],
        "refused": {},
        "interval_coverage": {"weighted_fraction": 0.0, "rows_fraction": 0.0, "sources_fraction": 0.0},
    }
    assert outcome.code == 0
    assert json.loads(outcome.out) == json.loads(json.dumps(expected))


def test_a_quality_leaves_rows_out(cli: Cli, source: Path) -> None:
    document = json.loads(cli("validate", source, "--json", "--quality", "A").out)

    assert [row["id"] for row in document["sources"][0]["rows"]] == ["one"]


def test_an_error_over_the_limit_is_the_answer_no(cli: Cli, source: Path) -> None:
    outcome, near = (cli("validate", source, "--fail-over", limit) for limit in ("1 %", "300%"))

    assert (near.code, near.err, outcome.code) == (0, "", 1)
    assert outcome.err.startswith("no: 2 rows: mean absolute error ")
    assert outcome.err.endswith("the limit is 1 %\n")
    assert "one" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["megatron-sc12"], "error: unknown source 'megatron-sc12'; did you mean 'megatron-sc21'?\n"),
        (["zzz"], f"error: unknown source 'zzz'; use one of {', '.join(source_names()[:12])}"),
        (["nowhere.yaml"], "error: nowhere.yaml: no such file"),
        (["--quality", "C"], "error: --quality: 'C' is not a quality; use one of A, B\n"),
        (["--defaults", "--quality", "A"], "error: --quality: is not for defaults alone"),
        (["--fail-over", "8"], "error: --fail-over: '8' is not a percentage; write a number with its sign, such as '8 %'\n"),
    ],
)
def test_bad_input_is_one_error_and_nothing_on_stdout(cli: Cli, arguments: list[str], message: str) -> None:
    outcome = cli("validate", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)


def test_a_mistake_in_a_row_shows_its_line(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, TEXT.replace("strategy: {tp: 4}", "strategy: {tp: 3}"))

    outcome = cli("validate", "small.yaml")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "error: small.yaml:35:22: rows.1.scenario.strategy.tp: 3 does not divide 8 attention heads; use 1, 2, 4 or 8\n"
        "        strategy: {tp: 3}\n"
        "                       ^\n"
    )


def test_a_person_at_the_terminal_sees_the_progress_and_it_is_gone_in_the_end(
    cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True, raising=False)
    monkeypatch.setattr(watching, "PATIENCE_S", 0.0)

    outcome = cli("validate", source, "--json")

    assert "simulate published rows" in outcome.err
    # Erased when all is over.
    assert outcome.err.endswith("\x1b[2K")
    assert json.loads(outcome.out)["summary"]["n_rows"] == 2


def test_the_progress_is_gone_before_an_error(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True, raising=False)
    monkeypatch.setattr(watching, "PATIENCE_S", 0.0)

    err = cli("validate", write(tmp_path, TEXT.replace("strategy: {tp: 4}", "strategy: {tp: 3}"))).err

    assert "simulate published rows" in err
    assert "\x1b[2Kerror:" in err
    assert re.search(r"^ *strategy: {tp: 3}\n *\^$", err, re.MULTILINE)


def test_defaults_alone_may_be_asked_for(cli: Cli, source: Path) -> None:
    source.write_text(source.read_text(encoding="utf-8").replace("precision: bf16", "precision: bf16, kernels: eager"), encoding="utf-8")

    (full,) = json.loads(cli("validate", source, "--json").out)["sources"]
    (typed,) = json.loads(cli("validate", source, "--defaults", "--json").out)["sources"]

    assert typed["rows"][0]["predicted_s"] < full["rows"][0]["predicted_s"]


def test_json_keys_end_in_their_unit(cli: Cli, source: Path) -> None:
    row = json.loads(cli("validate", source, "--json").out)["sources"][0]["rows"][0]

    assert {"id", "gpus", "measured_s", "predicted_s", "error_fraction", "fits", "peak_bytes", "capacity_bytes", "quality"} <= row.keys()
