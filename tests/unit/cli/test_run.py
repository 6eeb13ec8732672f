"""``clustersim run``: report, JSON, run directory, exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from clustersim.apps.run.running import run
from clustersim.documents.text import parse_document
from tests.unit.cli.conftest import Cli
from tests.unit.config.samples import TEXT, small


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_reports_to_stdout_and_says_on_stderr_where_it_is_kept(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "--no-plots")

    digits = run(small()).scenario_hash
    assert outcome.code == 0
    assert "step time" in outcome.out
    assert outcome.err == f"wrote runs/small/{digits}\n"
    assert (scenario.parent / "runs" / "small" / digits / "results.json").exists()


def test_json_is_one_document_on_stdout(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "--json", "--no-plots")
    document = json.loads(outcome.out)

    expected = run(small()).to_dict()
    expected["engine"] = document["engine"]
    assert outcome.code == 0
    assert document == json.loads(json.dumps(expected))
    assert "wall_s" in document["engine"]


def test_quiet_writes_nothing_to_the_terminal(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "--quiet", "--no-plots", "-o", "kept/here")

    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert left(scenario.parent) == ["kept", "small.yaml"]
    assert left(scenario.parent / "kept" / "here") == ["small"]


def test_set_changes_the_run(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "-s", "strategy.tp=4", "--set", "training.global_batch_size=64", "--json", "--no-plots")

    document = json.loads(outcome.out)
    assert document["parallelism"] == {"dp": 2, "tp": 4, "pp": 2, "cp": 1, "ep": 1}
    assert document["samples_per_s"] * document["step_time_s"] == pytest.approx(64, rel=1e-12)


def test_a_scenario_can_come_from_stdin(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode()), encoding="utf-8"))

    assert cli("run", "-", "--no-plots").code == 0
    assert left(tmp_path / "runs") == ["small"]


def test_a_seed_is_kept_apart_in_its_own_run(cli: Cli, scenario: Path) -> None:
    cli("run", scenario, "--no-plots")
    cli("run", scenario, "--no-plots", "--seed", "1")

    assert len(left(scenario.parent / "runs" / "small")) == 2


def test_what_does_not_fit_is_the_answer_no_and_is_kept(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("run", "llama3-8b-8xh100", "-s", "strategy.recompute=none", "--no-plots")

    assert outcome.code == 1
    assert outcome.err.startswith("no: does not fit in memory, ")
    assert "does not fit" in outcome.out
    assert left(tmp_path / "runs") == ["llama3-8b-8xh100"]


def test_a_check_that_is_false_is_the_answer_no(cli: Cli, scenario: Path) -> None:
    outcome, data = (cli("run", scenario, "-s", "checks=[mfu > 1, step_time_s > 0]", "--no-plots", *more) for more in ((), ("--json",)))

    assert outcome.code == data.code == 1
    assert [check["holds"] for check in json.loads(data.out)["checks"]] == [False, True]
    assert outcome.err.startswith("no: the check 'mfu > 1' is false: mfu is 0.")
    assert "  mfu > 1 is false (" in outcome.out
    assert "  step_time_s > 0 holds (" in outcome.out


def test_an_input_error_leaves_stdout_empty_also_with_json(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "--json", "-s", "strategy.tp=6")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: --set strategy.tp=6: strategy.tp: 6 does not divide 8 attention heads; use 1, 2, 4 or 8\n"
    assert left(scenario.parent) == ["small.yaml"]


def test_an_error_in_a_file_shows_the_line_with_a_caret(cli: Cli, scenario: Path) -> None:
    scenario.write_text(TEXT.replace("nodes: 2", "nodes: 0"), encoding="utf-8")

    outcome = cli("run", "small.yaml")

    assert outcome.err == (
        "error: small.yaml:14:10: cluster.nodes: 0 is out of range; write a number that is more than 0\n    nodes: 0\n           ^\n"
    )


def test_a_dry_run_prints_the_resolved_scenario_and_simulates_and_writes_nothing(
    cli: Cli, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("clustersim.apps.run.running.simulate", None)
        outcome = cli("run", scenario, "--dry-run")

    assert outcome.code == 0
    assert left(scenario.parent) == ["small.yaml"]
    assert parse_document(outcome.out, "stdout").data == run(small()).resolved
    assert "#   dp     4  stride     2  inside a node\n" in outcome.out
    assert f"# scenario hash {run(small()).scenario_hash}\n" in outcome.out


def test_a_dry_run_has_json_too(cli: Cli, scenario: Path) -> None:
    document = json.loads(cli("run", scenario, "--dry-run", "--json").out)

    assert document["ranks"] == 16
    assert document["layout"][0] == {"dimension": "tp", "degree": 2, "stride": 1, "reach": "inside a node"}
    assert document["scenario"] == run(small()).resolved


@pytest.mark.slow
def test_long_sentences_are_folded_and_percent_signs_stay_with_their_numbers(cli: Cli, scenario: Path) -> None:
    outcome = cli(
        "run",
        scenario,
        "--no-plots",
        "-s",
        "cost.gpu_hour=2 USD",
        "-s",
        "reliability={node_mtbf: 1 day, replays: 4, checkpoint: {size: 1 TB, bandwidth: 1 GB/s}}",
    )

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert "With failures" in lines
    assert max(len(line) for line in lines[lines.index("With failures") :]) < 120
    assert not any(line.lstrip().startswith("%") for line in lines)
    assert "\N{NO-BREAK SPACE}" not in outcome.out


def test_without_folding_every_rank_is_replayed_and_the_result_is_the_same(cli: Cli, scenario: Path) -> None:
    folded, apart = (json.loads(cli("run", scenario, "--json", "--no-plots", option).out) for option in ("--fold", "--no-fold"))

    assert folded["engine"]["folded"]
    assert (apart["engine"]["folded"], apart["engine"]["rank_classes"]) == (False, apart["ranks"])
    assert apart["step_time_s"] == pytest.approx(folded["step_time_s"], rel=1e-9)


def test_a_profile_says_on_stderr_where_the_time_went(cli: Cli, scenario: Path) -> None:
    outcome = cli("run", scenario, "--no-collapse", "--quiet", "--no-plots", "--profile")

    assert outcome.out == ""
    assert [line.split()[0] for line in outcome.err.splitlines()] == [
        "read", "simulate", "lower", "fold", "replay", "measure",
        "write", "lower", "fold", "replay", "measure",  # the bound of the step
        "elsewhere", "altogether",
    ]  # fmt: skip
    assert outcome.err.splitlines()[-1].endswith("100.0 %")
