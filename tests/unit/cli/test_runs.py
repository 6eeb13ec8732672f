"""``clustersim runs``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_earlier_runs_are_listed_with_what_was_set(cli: Cli) -> None:
    for batch in (4, 8):
        assert cli("run", "1f1b", "--no-plots", "-s", f"training.global_batch_size={batch}").code == 0

    listed = cli("runs").out.splitlines()
    found = json.loads(cli("runs", "--json").out)

    assert listed[0].split()[:2] == ["run", "written"]
    assert {run["changes"][0] for run in found} == {"training.global_batch_size=4", "training.global_batch_size=8"}
    assert [run["written_at"] for run in found] == sorted((run["written_at"] for run in found), reverse=True)
    assert all(run["folder"] in "\n".join(listed) and run["step_time_s"] > 0 for run in found)


def test_a_folder_that_is_not_there_or_has_no_run_is_said(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("runs", "elsewhere")

    assert "keeps no run" in cli("runs", tmp_path).err
    assert outcome.code == 2
    assert "elsewhere: there is no such folder" in outcome.err


def test_a_run_that_cannot_be_read_is_told_and_the_others_are_listed(cli: Cli, tmp_path: Path) -> None:
    cli("run", "llama3-8b-8xh100", "--out", tmp_path, "--quiet")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "results.json").write_text("{}", encoding="utf-8")
    (broken / "manifest.json").write_text("[]", encoding="utf-8")

    outcome = cli("runs", tmp_path)

    assert outcome.code == 0
    assert "llama3-8b-8xh100" in outcome.out
    assert outcome.err.startswith(f"left out: {broken / 'manifest.json'}: is no document of a run")


def test_tagged_runs_are_listed_and_compared_and_keep_their_tag_when_they_are_made_again(cli: Cli) -> None:
    for batch in (4, 8, 16):
        assert cli("run", "1f1b", "--no-plots", "-o", f"runs/{batch}", "-s", f"training.global_batch_size={batch}").code == 0
    for batch in (4, 8):
        assert "wide" in cli("runs", f"runs/{batch}", "--tag", "wide").out
    cli("run", "1f1b", "--no-plots", "-o", "runs/8", "-s", "training.global_batch_size=8")

    tagged = json.loads(cli("runs", "--tagged", "wide", "--json").out)
    compared = cli("runs", "--tagged", "wide", "--compare").out

    assert {run["changes"][0] for run in tagged} == {"training.global_batch_size=4", "training.global_batch_size=8"}
    assert "training.global_batch_size" in compared
    assert cli("runs", "--tag", "all").err == "tagged 3 runs below runs\n"
    assert "keeps no run tagged wide" in [cli("runs", "--untag", "wide"), cli("runs", "--tagged", "wide")][1].err


def test_one_run_alone_is_not_compared(cli: Cli) -> None:
    cli("run", "1f1b", "--no-plots")

    outcome = cli("runs", "--compare")

    assert outcome.code == 2
    assert "1 of the runs can be compared, and two are needed" in outcome.err
