"""``clustersim schedule``: the order of passes as a file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.conftest import Cli


def test_a_row_for_each_rank_is_printed(cli: Cli) -> None:
    outcome = cli("schedule", "1f1b", "--set", "training.global_batch_size=4")

    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "0F0,0F1,0B0,0B1"
    assert outcome.out.splitlines()[3] == "3F0,3B0,3F1,3B1"


def test_a_file_can_be_written_and_used(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"

    written = cli("schedule", "zb-v", "--out", path)
    again = cli("schedule", "zb-v", "-s", f"strategy.schedule={path}")

    assert (written.code, written.out) == (0, "")
    assert str(path) in written.err
    assert again.out == path.read_text(encoding="utf-8")


def test_json_holds_the_cells(cli: Cli) -> None:
    outcome = cli("schedule", "dualpipe", "--json")

    document = json.loads(outcome.out)
    assert (document["schedule"], document["ranks"], document["stages"], document["micro_batches"]) == ("dualpipe", 4, 4, 8)
    assert document["passes"][0][7] == "(0F3;3B5)OVERLAP_F_B"


def test_without_a_pipeline_there_is_no_schedule(cli: Cli) -> None:
    outcome = cli("schedule", "gpt2-dp-8xv100")

    assert outcome.code == 2
    assert "strategy.pp: there is no pipeline; use pp of 2 or more" in outcome.err


def test_a_folder_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("schedule", "1f1b", "--out", tmp_path / "none" / "mine.csv")

    assert outcome.code == 2
    assert "cannot write" in outcome.err
