"""``clustersim buy``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli

SMALL = (
    *("--only", "tp=1", "--only", "pp=1", "--only", "cp=1", "--only", "recompute=none", "--only", "zero_stage=1"),
    *("--only", "micro_batch_size=1", "-s", "training.global_batch_size=64", "-s", "training.seq_length=1024"),
)
OPTIONS = ("--tokens", "100B", "--option", "1 dgx-h100", "--option", "2 dgx-a100-80g")


def test_the_first_lines_answer_and_files_are_written(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("buy", "llama3.2-1b", *OPTIONS, *SMALL, "--plot", "offers.png", "--page", "offers.html")

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0] == "Not decided which is cheapest: 1 dgx-h100 or 2 dgx-a100-80g, within the error bars"
    assert "1 dgx-h100, first by cost: " in lines[1]
    assert re.search(r"\nLayout: .*\n\nThe order turns on\n  .* costs as much as 1 dgx-h100 at ", outcome.out)
    assert re.search("; 64 sequences a step, [0-9,]+ tokens/s; ", " ".join(outcome.out.split()))
    assert re.search(r"^\d+ notes on prices and what is assumed: --verbose shows them\n", outcome.err, re.MULTILINE)
    assert "prices: on-demand-2026-10" not in outcome.err
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("offers.png", "offers.html"))


def test_the_document_has_all_offers_and_who_stops_is_told_the_one_in_progress(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr("clustersim.apps.buy.purchase.noted", notes.append)
    found = json.loads(cli("buy", "llama3.2-1b", *OPTIONS, *SMALL, "--json").out)

    assert [each["option"] for each in found["offers"]] == ["1 dgx-h100", "2 dgx-a100-80g"]
    assert found["best"] == "1 dgx-h100"
    assert notes[1].startswith("so far: 1 dgx-h100: ")
    assert notes[1].endswith("\nin progress: 2 dgx-a100-80g")
    assert found["ordered_by"] == "cost"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--option", "1 dgx-h100"), "error: --option: there is nothing to choose from; write --option"),
        (("--option", "1 dgx-h100", "--nic", "200"), "error: --nic: 200 has no unit"),
        (("--option", "1 dgx-h100", "--option", "1 dgx-h100"), "error: --option: '1 dgx-h100' stands twice"),
        (("--option", "1 dgx-h100", "--option", "2 dgx-h100", "--plot", "x.pdf"), "error: --plot: 'x.pdf' does not say its format"),
    ],
)
def test_a_wrong_command_line_is_told_at_once(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("buy", "llama3.2-1b", "--tokens", "1T", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)


def test_another_batch_than_the_one_asked_for_is_always_told(cli: Cli) -> None:
    options = ("--tokens", "100B", "--option", "3 dgx-h100", "--option", "2 dgx-h100")
    assert "3 dgx-h100: the batch is 72 and not 64, which 24 GPUs do not divide\n" in cli("buy", "llama3.2-1b", *options, *SMALL).err
