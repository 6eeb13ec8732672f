"""``clustersim collective``: the columns of nccl-tests."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Cli


def test_json_has_one_entry_for_each_size(cli: Cli) -> None:
    outcome = cli("collective", "--cluster", "dgx-h100", "--nodes", "4", "--sizes", "1 MB,64 MB", "--json")

    rows = json.loads(outcome.out)
    assert outcome.code == 0
    assert "assumed_constants" in outcome.err
    assert [row["bytes"] for row in rows] == [1e6, 64e6]
    assert set(rows[0]) == {"bytes", "time_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "algorithm", "protocol"}


def test_the_table_has_the_columns_of_nccl_tests(cli: Cli) -> None:
    outcome = cli("collective", "--cluster", "dgx-a100-80g", "--sizes", "1MB,64MB")

    header, *rows = outcome.out.splitlines()
    assert outcome.code == 0
    assert [word for word in header.split() if not word.startswith("(")] == ["size", "count", "type", "time", "algbw", "busbw", "algorithm"]
    assert [row.split()[0] for row in rows] == ["1000000", "64000000"]
    assert [row.split()[1] for row in rows] == ["250000", "16000000"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cluster", "dgx-h10"), "did you mean 'dgx-h100'"),
        (("--cluster", "dgx-h100", "--op", "alreduce"), "did you mean 'all_reduce'"),
        (("--cluster", "dgx-a100-80g", "--algorithm", "nvls"), "nvls needs a switch that adds"),
        (("--cluster", "dgx-h100", "--algorithm", "rink"), "'rink' is not an algorithm of all_reduce"),
        (("--cluster", "dgx-h100", "--op", "all_to_all", "--algorithm", "parameter_server"), "parameter servers do not serve all_to_all"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(cli: Cli, words: tuple[str, ...], said: str) -> None:
    outcome = cli("collective", *words)

    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
