"""``clustersim compare``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli


def test_it_compares_examples_by_name(cli: Cli) -> None:
    outcome = cli("compare", "1f1b", "gpipe", "zb-h1")

    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert lines[0].startswith("gpipe against 1f1b: as fast, ")
    assert lines[1].startswith("zb-h1 against 1f1b: +")
    assert any(line.split() == ["strategy.schedule", "1f1b", "gpipe", "zb_h1"] for line in lines)
    assert any(line.startswith("pipeline bubble ") for line in lines)
    assert not any("strategy.tp" in line for line in lines)


def test_a_run_directory_without_the_scenario_it_was_given_stands_beside_a_scenario(cli: Cli, tmp_path: Path) -> None:
    cli("run", "1f1b", "--no-plots", "-q")
    next((tmp_path / "runs" / "1f1b").rglob("scenario.yaml")).unlink()

    outcome = cli("compare", tmp_path / "runs" / "1f1b", "gpipe", "--json")

    found = json.loads(outcome.out)
    assert outcome.code == 0
    assert [run["scenario"] for run in found["runs"]] == ["1f1b", "gpipe"]
    assert [row["key"] for row in found["differences"]] == ["strategy.schedule"]


def test_set_changes_all_scenarios(cli: Cli) -> None:
    found = json.loads(cli("compare", "1f1b", "gpipe", "-s", "training.micro_batch_size=2", "--json").out)

    assert [row["key"] for row in found["differences"]] == ["strategy.schedule"]


def test_the_name_of_a_file_gives_the_format(cli: Cli, tmp_path: Path) -> None:
    for name in ("both.md", "both.csv", "both.json"):
        outcome = cli("compare", "1f1b", "gpipe", "-o", name)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", f"wrote {name}\n")

    assert (tmp_path / "both.md").read_text(encoding="utf-8").startswith("# 1f1b against gpipe\n")
    assert json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))["schema_version"] == 1
    assert (tmp_path / "both.csv").read_text(encoding="utf-8") == cli("compare", "1f1b", "gpipe", "--csv").out


def test_csv_on_stdout_is_a_table(cli: Cli) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("compare", "1f1b", "gpipe", "--csv").out)))

    assert rows[0] == {"kind": "scenario", "key": "strategy.schedule", "1f1b": "1f1b", "gpipe": "gpipe", "relative gpipe": ""}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1f1b"], "one run alone cannot be compared; name two or more"),
        (["1f1b"] * 21, "21 runs do not fit side by side; name at most 20"),
        (["1f1b", "gpipe", "--md", "--csv"], "--md and --csv exclude each other; ask for one of them"),
        (["1f1b", "gpipe", "-o", "x.txt"], "'x.txt' does not say its format; name a file that ends in .md, .csv or .json"),
        (["1f1b", "gpipe", "-o", "nowhere/x.md"], "cannot write nowhere/x.md: its folder does not exist"),
        (["1f1b", "serve-llama3-70b-chat"], "serve-llama3-70b-chat serves requests, and 1f1b trains; hold runs of one kind"),
        (["1f1b", "gpip"], "there is no file and no shipped example 'gpip'; did you mean 'gpipe'?; or name a run directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.setattr("clustersim.apps.compare.compared_runs.run_built", None)  # nothing is simulated first

    outcome = cli("compare", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {message}")
    assert outcome.err.count("\n") == 1


ITERATION = " iteration {0:8d}/     100 | consumed samples: 64 | elapsed time per iteration (ms): {1:.1f} | lr: 1E-05 |\n"
NEMO = "Epoch 0: :  {0}%|[01:22<12:20, v_num=, global_step={0}.00, train_step_timing in s={2:.4f}]\n"
BRIDGE = "Step Time : {2:.4f}s GPU utilization: 663.5MODEL_TFLOP/s/GPU\n"


def step_lines(folder: Path, step_ms: float, form: str = ITERATION) -> Path:
    """Write the lines of steps of Megatron alone, as people keep them; the first step is slow."""
    lines = (form.format(number, factor * step_ms, factor * step_ms / 1e3) for number, factor in ((1, 9.0), (2, 1.0), (3, 1.0)))
    path = folder / "it.log"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(("share", "side", "form"), [(1.01, "inside", ITERATION), (3.0, "outside", BRIDGE), (1.0, "inside", NEMO)])
def test_the_step_lines_of_a_log_are_held_against_the_error_bar_of_a_scenario(
    cli: Cli, tmp_path: Path, share: float, side: str, form: str
) -> None:
    found = json.loads(cli("compare", "1f1b", "gpipe", "--json").out)
    predicted_s = next(row["values"][0] for row in found["figures"] if row["key"] == "step_time_s")

    outcome = cli("compare", "1f1b", step_lines(tmp_path, share * predicted_s * 1e3, form), "--json")

    found = json.loads(outcome.out)
    measured_s = next(row["values"][1] for row in found["figures"] if row["key"] == "step_time_s")
    assert measured_s == pytest.approx(share * predicted_s, rel=1e-3)
    assert f"measured is {side} the 80 % interval of the prediction, " in found["verdicts"][0]["text"]
    assert found["runs"][1]["note"].endswith("it.log holds no arguments: taken as of 1f1b")


@pytest.mark.parametrize("command", [("compare",), ("import",), ("import", "--as", "megatron_lm")])
def test_step_lines_alone_ask_for_a_scenario(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    outcome = cli(*command, step_lines(tmp_path, 500.0))

    assert outcome.code == 2
    assert "is a log without the arguments of its job; compare it beside a scenario: clustersim compare SCENARIO" in outcome.err


def test_step_lines_do_not_measure_a_service(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("compare", "serve-llama3-70b-chat", step_lines(tmp_path, 500.0))

    assert "it.log: measures training, and the run beside it serves; name a scenario of training" in outcome.err
