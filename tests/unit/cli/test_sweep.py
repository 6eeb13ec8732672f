"""``clustersim sweep``: what it prints, and that nothing that befalls it costs a point."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clustersim.apps.study.results import RESULTS
from clustersim.apps.study.store import POINTS
from tests.interrupts import hear_interrupts
from tests.unit.cli.conftest import Cli

ROOT = Path(__file__).parents[3]
SWEEP = ("sweep", "gpt2-dp-8xv100", "--over", "training.micro_batch_size=1..8 times 2", "--over", "strategy.zero_stage=0..2")
LONG = ("sweep", "llama3-70b-h100-512", "--over", "training.global_batch_size=512..1024 step 64", "--over", "strategy.tp=4,8")
TABLE = f"{RESULTS}.csv"
PATIENCE_S = 60.0


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def started(*arguments: str | int | Path, limit_bytes: int | None = None) -> subprocess.Popen[str]:
    """Return a command in a process of its own, which may write no file that is longer than a limit."""
    command = [sys.executable, "-m", "clustersim", *map(str, arguments)]
    if limit_bytes is not None:
        command = ["prlimit", f"--fsize={limit_bytes}", *command]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - no threads here
    )


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def workers_of(pid: int) -> list[int]:
    return [child for child in children_of(pid) if "spawn_main" in command_of(child)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_it_answers_and_keeps_a_row_for_each_point(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*SWEEP, "-o", "out", "--workers", 1)

    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "wrote out/results.csv\n")
    assert lines[0].startswith("First of 12 points: training.micro_batch_size=8 strategy.zero_stage=2 (tokens_per_s ")
    assert lines[1] == "12 ok"
    rows = rows_of(tmp_path / "out")
    assert [row["point"] for row in rows] == [f"{number}" for number in range(1, 13)]
    assert [(row["training.micro_batch_size"], row["strategy.zero_stage"]) for row in rows[2:4]] == [("1", "2"), ("2", "0")]
    assert all(float(row["step_time_s"]) > 0 for row in rows)


def test_points_that_cannot_run_are_kept_with_the_reason(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(
        "sweep", "llama3-8b-8xh100", "--over", "strategy.tp=1,3,8", "--over", "strategy.zero_stage=0,3", "-o", "out", "--workers", 1
    )

    assert outcome.code == 0
    assert "2 points infeasible: strategy.tp: 3 does not divide 32 attention heads; use 1, 2, 4, 8, 16 or 32" in " ".join(
        outcome.out.split()
    )
    assert "1 point infeasible: does not fit in memory" in outcome.out
    status = [row["status"] for row in rows_of(tmp_path / "out")]
    assert status == ["infeasible", "ok", "infeasible", "infeasible", "ok", "ok"]
    assert rows_of(tmp_path / "out")[0]["reason"].startswith("does not fit in memory: ")


def test_the_same_command_repeats_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli(*SWEEP, "--workers", 1)

    def fail(*_: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr("clustersim.apps.study.point.evaluate", fail)
    again = cli(*SWEEP, "--workers", 1, "--where", "mfu > 0.1", "--metrics", "mfu,step_time_s", "--sort", "mfu")

    assert first.err.startswith("wrote runs/sweeps/gpt2-dp-8xv100/")
    assert (again.code, again.err) == (0, first.err)
    assert "12 were kept from before" in again.out
    assert again.out.splitlines()[3].split() == ["point", "training.micro_batch_size", "strategy.zero_stage", "mfu", "step_time_s"]


def test_json_is_one_document(cli: Cli) -> None:
    found = json.loads(cli(*SWEEP, "--workers", 1, "--where", "strategy.zero_stage >= 1", "--json").out)

    assert found["counts"] == {"ok": 12, "unmet": 0, "infeasible": 0, "failed": 0}
    assert found["best"]["strategy.zero_stage"] == 2
    assert found["answers"][0] == found["best"]["point"]
    assert len(found["answers"]) == 8
    assert len(found["points"]) == 12
    assert found["points"][0]["step_time_s"] > 0


def test_nothing_that_is_good_enough_is_a_no(cli: Cli) -> None:
    outcome = cli(*SWEEP, "--workers", 1, "--where", "mfu > 0.9")

    assert outcome.code == 1
    assert outcome.out.startswith("None of 12 points meets mfu > 0.9\n")
    assert outcome.err.endswith("no: no point runs and meets every condition\n")


def test_points_that_fail_end_with_three_and_are_tried_again(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("clustersim.apps.study.point.build", lambda scenario: 1 / 0)
        outcome = cli(*SWEEP, "--workers", 1, "-o", "out")
    assert outcome.code == 3
    assert "12 points failed: ZeroDivisionError: division by zero" in outcome.out
    assert "12 of 12 points failed; the same command tries them again" in outcome.err
    assert {row["status"] for row in rows_of(tmp_path / "out")} == {"failed"}

    assert cli(*SWEEP, "--workers", 1, "-o", "out").code == 0
    assert {row["status"] for row in rows_of(tmp_path / "out")} == {"ok"}


def test_a_dry_run_shows_the_points_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*SWEEP, "--dry-run", "--exclude", "strategy.zero_stage > 1")

    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "8 points"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--over", "strategy.ttp=1,2"], "--over strategy.ttp=1,2: strategy.ttp: unknown field 'ttp'; did you mean 'tp'?"),
        ([], "nothing is varied; name a key and its values, such as --over strategy.tp=1,2,4,8"),
        (["--over", "strategy.tp=1,2", "--where", "mfuu > 1"], "--where: there is no metric 'mfuu'; did you mean 'mfu'?"),
        (["--over", "strategy.tp=1,2", "--sort", "mffu"], "--sort: there is no metric 'mffu'; did you mean 'mfu'?"),
        (["--over", "strategy.tp=1,2", "--metrics", "mffu"], "--metrics: there is no metric 'mffu'; did you mean 'mfu'?"),
        (["--over", "strategy.tp=1,2", "--format", "xls"], "--format: 'xls' is not a format; use one of csv, parquet, duckdb"),
        (["--over", "strategy.tp=1,2", "--executor", "task"], "--executor: 'task' is no executor; did you mean 'dask'?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(cli: Cli, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = cli("sweep", "gpt2-dp-8xv100", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {message}")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_killing_a_worker_and_then_the_parent_costs_nothing(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = started(*LONG, "-o", killed, "--workers", 2)
    until(lambda: n_lines(killed / POINTS) > 3)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    before = n_lines(killed / POINTS)
    until(lambda: n_lines(killed / POINTS) > before + 2)
    children = children_of(process.pid)
    process.kill()
    process.communicate()

    assert len(children) >= 2
    until(lambda: not any(alive(child) for child in children))
    kept = n_lines(killed / POINTS) - 1
    again = started(*LONG, "-o", killed, "--workers", 2)
    out, _ = again.communicate(timeout=PATIENCE_S)
    uninterrupted = started(*LONG, "-o", whole, "--workers", 1)
    uninterrupted.communicate(timeout=PATIENCE_S)

    assert (again.returncode, uninterrupted.returncode) == (0, 0)
    assert 0 < kept < 18
    assert f"{kept} were kept from before" in out
    for name in (POINTS, TABLE):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_an_interrupted_sweep_says_so_and_leaves_no_process(tmp_path: Path) -> None:
    process = started(*LONG, "-o", tmp_path, "--workers", 2)
    until(lambda: n_lines(tmp_path / POINTS) > 3)
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out) == (130, "")
    # A slow machine has told its progress before.
    assert err.splitlines()[-2:] == [f"what is finished is kept in {tmp_path}; the same command goes on", "interrupted"]
    until(lambda: not any(alive(child) for child in children))
    rows = rows_of(tmp_path)
    assert len(rows) == n_lines(tmp_path / POINTS) - 1
    assert {row["status"] for row in rows} == {"ok"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="there is no prlimit")
def test_a_disk_that_fills_up_is_told_and_costs_nothing(tmp_path: Path) -> None:
    process = started(*LONG, "-o", tmp_path, "--workers", 2, limit_bytes=16_000)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out) == (2, "")
    # A slow machine has told its progress before.
    assert err.splitlines()[-1] == (
        f"error: cannot write {tmp_path / POINTS}: File too large; make room; what is finished is kept, and the same command goes on"
    )
    kept = n_lines(tmp_path / POINTS) - 1
    assert kept > 1
    again = started(*LONG, "-o", tmp_path, "--workers", 1)
    out, _ = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0
    assert f"{kept} were kept from before" in out
