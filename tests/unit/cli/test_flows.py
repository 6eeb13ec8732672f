"""``clustersim flows``: the network model alone."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli

TEXT = json.dumps(
    {
        "links": [
            {"name": "a", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5},
            {"name": "b", "bandwidth_bytes_per_s": 1e9, "latency_s": 2e-5},
        ],
        "flows": [{"route": ["a", "b"], "bytes": 1e6, "start_s": 0.0}, {"route": ["a"], "bytes": 1e9, "start_s": 0.0}],
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flows.json"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_table_has_a_line_for_each_flow(cli: Cli, file: Path) -> None:
    lines = [line.split() for line in cli("flows", file).out.splitlines()]

    assert lines == [
        ["flow", "route", "bytes", "start", "finish", "mean", "rate"],
        ["0", "a", ">", "b", "1", "MB", "0", "s", "2.03", "ms", "492.611", "MB/s"],
        ["1", "a", "1", "GB", "0", "s", "1.00101", "s", "998.991", "MB/s"],
    ]


def test_a_flow_without_bytes_and_way_has_no_rate(cli: Cli, file: Path) -> None:
    file.write_text(
        '{"links": [{"name": "a", "bandwidth_bytes_per_s": 1}], "flows": [{"route": ["a"], "bytes": 0, "start_s": 2}]}', encoding="utf-8"
    )

    assert cli("flows", file).out.splitlines()[1].split() == ["0", "a", "0", "B", "2", "s", "2", "s", "-"]


def test_packed_stdin_is_read_and_json_holds_the_finish_times_in_its_order(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT.encode()))))

    outcome = cli("flows", "-", "--json")

    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {"finish_s": pytest.approx([0.00203, 1.00101], rel=1e-12)}


def test_a_mistake_is_one_line_with_its_place(cli: Cli, file: Path) -> None:
    file.write_text(TEXT.replace('["a"]', '["c"]'), encoding="utf-8")

    outcome = cli("flows", file, "--json")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {file}:1:")
    assert "flows.1.route.0: unknown link 'c'; use one of a, b" in outcome.err


def test_a_time_beyond_all_numbers_is_an_error(cli: Cli, file: Path) -> None:
    file.write_text(
        '{"links": [{"name": "a", "bandwidth_bytes_per_s": 1e-300}], "flows": [{"route": ["a"], "bytes": 1e300}]}', encoding="utf-8"
    )

    outcome = cli("flows", file, "--json")

    assert outcome.code == 2
    assert "flows[0]: takes longer than a number can say" in outcome.err
