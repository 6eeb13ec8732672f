"""Starting points of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.apps.run.rundir import write_run_directory
from clustersim.apps.run.running import run
from clustersim.apps.ui.contained import start, starts
from clustersim.config.load import example_names, load_scenario
from clustersim.errors import ScenarioError


def test_examples_can_be_started_from_where_there_are_no_runs(tmp_path: Path) -> None:
    assert starts(tmp_path / "none") == example_names()
    assert start("starter", tmp_path) == load_scenario("starter").document.data


def test_a_run_can_be_started_from(tmp_path: Path) -> None:
    folder = write_run_directory(run("starter", set=["strategy.tp=4"]), tmp_path, plots=False)
    name = f"run starter/{folder.name}"

    assert starts(tmp_path)[-1] == name
    assert start(name, tmp_path)["strategy"]["tp"] == 4  # pyright: ignore[reportArgumentType, reportCallIssue, reportIndexIssue, reportOptionalSubscript]


def test_an_example_is_not_a_file_of_the_same_name(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "starter").write_text("model: secret\n")
    monkeypatch.chdir(tmp_path)

    assert start("starter", tmp_path)["model"] == "llama3-8b"


@pytest.mark.parametrize("name", ["startr", "run starter/../../etc", "../starter.yaml", "/etc/passwd", "", "run "])
def test_nothing_else_can_be_started_from(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="to start from"):
        start(name, tmp_path)


def test_a_run_that_reads_files_is_refused(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "vocab_size": 32000}
    (tmp_path / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in sizes.items()))
    folder = write_run_directory(
        run("starter", set=[f"model={tmp_path}/mine.yaml", "training.seq_length=2048"]), tmp_path / "runs", plots=False
    )

    with pytest.raises(ScenarioError, match="no file is read here"):
        start(f"run starter/{folder.name}", tmp_path / "runs")


def test_a_service_is_told_to_be_for_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="'serve-llama3-70b-chat' is a serving scenario"):
        start("serve-llama3-70b-chat", tmp_path)
