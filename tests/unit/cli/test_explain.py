"""``clustersim explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.unit.cli.conftest import Cli

FILES: Final = Path(__file__).parents[1] / "apps" / "importing" / "files"


def test_it_says_what_sets_the_step_and_what_would_shorten_it(cli: Cli) -> None:
    outcome = cli("explain", "1f1b")

    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert lines[0].startswith("A step takes ")
    assert any(line.startswith("Changes that shorten the step, each by itself") for line in lines)
    assert any(line.startswith("ampere.gemm.under_load.default") for line in lines)


def test_changes_may_be_left_out(cli: Cli) -> None:
    outcome = cli("explain", "1f1b", "--no-changes")

    assert outcome.code == 0
    assert "Changes that shorten" not in outcome.out


def test_the_document_is_one_of_json(cli: Cli) -> None:
    found = json.loads(cli("explain", "1f1b", "--no-changes", "--json").out)

    assert found["changes"] is None
    assert sum(found["critical_path"]["shares_s"].values()) - found["step_time_s"] < 1e-9
    assert {"name", "value", "formula", "inputs", "remark"} == set(found["figures"][0])
    assert all(constant["sources"] for constant in found["constants"])


def test_of_a_run_that_does_not_fit_it_says_so_and_what_would_make_it_fit(cli: Cli) -> None:
    outcome = cli("explain", "llama3-8b-8xh100", "-s", "strategy.recompute=none")

    assert (outcome.code, outcome.err) == (1, "no: does not fit in memory, 101.4 GiB of 79.6 GiB\n")
    assert outcome.out.startswith("The run does not fit in memory, ")
    assert "\nWhat would make it fit\nZeRO stage 2 instead of 1: " in outcome.out
    assert "shorten" not in outcome.out


def test_an_unknown_run_is_one_clear_error(cli: Cli) -> None:
    outcome = cli("explain", "1f1c")

    assert outcome.code == 2
    assert "1f1c" in outcome.err
    assert "1f1b" in outcome.err


def test_a_file_of_a_framework_is_imported(cli: Cli) -> None:
    outcome = cli("explain", str(FILES / "megatron-llama3-8b.args.txt"), "-s", "cluster.node=dgx-h100", "--no-changes")

    assert (outcome.code, outcome.out.startswith("A step takes ")) == (0, True), outcome.err
