"""The command line as a whole: help, usage mistakes, exit codes, bugs, interruption."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clustersim
from clustersim import __main__
from clustersim.cli.app import COMMANDS
from clustersim.errors import DeadlockError, InfeasibleError
from tests.interrupts import hear_interrupts
from tests.unit.cli.conftest import Cli


def process(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(clustersim.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "clustersim", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": root, **environment},
    )  # fmt: skip


def test_help_lists_every_command_with_a_line_that_is_not_cut_off(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    outcome = cli("--help")

    assert outcome.code == 0
    assert [line for line in outcome.out.splitlines() if line.endswith("...") and "Usage" not in line] == []
    for command in COMMANDS:
        assert any(line.split()[:1] == [command] and len(line.split()) > 2 for line in outcome.out.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_own_help(command: str) -> None:
    assert (COMMANDS[command].load(command).help or "").splitlines()[0] == COMMANDS[command].summary


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_in_plain_names(cli: Cli, command: str) -> None:
    outcome = cli(command, "--help")

    assert outcome.code == 0
    assert f"Usage: clustersim {command}" in outcome.out
    assert re.search(r"<[a-z]", outcome.out) is None


def test_help_loads_no_large_library(tmp_path: Path) -> None:
    outcome = process("--help", folder=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in outcome.stderr.splitlines()}

    assert outcome.returncode == 0
    assert {"clustersim", "typer"} <= loaded
    assert not loaded & {"numpy", "pandas", "matplotlib", "pydantic", "simpy", "networkx", "jinja2"}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["rnu"], ["'rnu'", "Did you mean 'run'?"]),
        (["xyzzy"], ["'xyzzy'"]),
        (["run"], ["SCENARIO"]),
        (["run", "a", "b"], ["extra argument"]),
        (["run", "a", "--seed", "x"], ["--seed", "integer"]),
        (["run", "a", "--seed", "-1"], ["--seed", "0"]),
        (["show"], ["KIND"]),
        (["run", "gpipe", "--jsn"], ["No such option: --jsn (Possible options: --json"]),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_two(cli: Cli, arguments: list[str], names: list[str]) -> None:
    outcome = cli(*arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert [name for name in names if name not in outcome.err] == []


def test_no_arguments_give_help_and_exit_code_two(cli: Cli) -> None:
    outcome = cli()

    assert outcome.code == 2
    assert "Usage: clustersim" in outcome.err


def break_run(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("clustersim.cli.run.open_job", fail)


def test_a_bug_says_so_and_how_to_report_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    break_run(monkeypatch, KeyError("stage"))

    outcome = cli("run", "gpipe")

    assert (outcome.code, outcome.out) == (70, "")
    assert outcome.err.startswith("bug: KeyError: 'stage' (fail, line ")
    assert "Please report it" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(("options", "variable"), [((), "1"), (("--traceback",), "0")])
def test_the_traceback_of_a_bug_can_be_asked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], variable: str
) -> None:
    break_run(monkeypatch, KeyError("stage"))
    monkeypatch.setenv("CLUSTERSIM_TRACEBACK", variable)

    assert "Traceback (most recent call last)" in cli(*options, "run", "gpipe").err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DeadlockError("stage 0 waits for stage 1"), 70, "bug: DeadlockError: stage 0 waits for stage 1 "),
        (InfeasibleError("no layout fits"), 1, "error: no layout fits\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_each_end_has_its_own_exit_code(cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str) -> None:
    break_run(monkeypatch, error)

    outcome = cli("run", "gpipe")

    assert outcome.code == code
    assert outcome.err.startswith(said)


def test_ctrl_c_ends_a_process_with_one_word(tmp_path: Path) -> None:
    root = str(Path(clustersim.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-m", "clustersim", "run", "-"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - no threads here
    ) as waiting:  # fmt: skip
        time.sleep(3.0)  # until it waits for its scenario, also on a busy machine
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)

    assert (waiting.returncode, err) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_scheduler_sends_ends_a_process_as_ctrl_c_does(tmp_path: Path, number: signal.Signals) -> None:
    root = str(Path(clustersim.__file__).parents[1])
    slow = "import time, clustersim.apps.run.rundir as r; r._manifest = lambda *_: (print('now', flush=True), time.sleep(60))"
    runs = "from clustersim.cli.app import main; raise SystemExit(main(['run', 'gpipe', '--quiet', '--no-plots']))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{slow}; {runs}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - no threads here
    ) as writing:  # fmt: skip
        assert writing.stdout is not None
        assert writing.stdout.readline() == "now\n"
        writing.send_signal(number)
        _, err = writing.communicate(timeout=60)

    assert (writing.returncode, err) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "code", "message"),
    [
        (">/dev/full", 2, "error: cannot write to stdout: No space left on device"),
        (">&-", 2, "error: stdout is closed"),
        (">/dev/null 2>&-", 0, ""),
        (">/dev/null 2>/dev/full", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_a_stream_that_takes_nothing_is_no_bug(tmp_path: Path, streams: str, code: int, message: str) -> None:
    root = str(Path(clustersim.__file__).parents[1])

    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m clustersim show prices {streams}"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip

    assert done.returncode == code
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == (1 if message else 0)


def test_a_scenario_from_a_stdin_that_is_closed_is_refused(tmp_path: Path) -> None:
    root = str(Path(clustersim.__file__).parents[1])

    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m clustersim run - <&-"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip

    assert (done.returncode, done.stderr.splitlines()[0].split(";")[0]) == (2, "error: stdin: is closed, and was to be read")


def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    done = process("run", "nowhere.yaml", folder=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: nowhere.yaml: no such file\n")


def test_no_color_is_honoured(tmp_path: Path) -> None:
    coloured = process("run", "gpipe", "--no-plots", folder=tmp_path, FORCE_COLOR="1", TERM="xterm-256color")
    plain = process("run", "gpipe", "--no-plots", folder=tmp_path, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")

    assert "\x1b[38" in coloured.stdout
    assert "\x1b[38" not in plain.stdout


def test_the_programs_entry_is_the_function_that_is_tested() -> None:
    scripts = (Path(clustersim.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")

    assert f'clustersim = "{__main__.__name__}:main"' in scripts


@pytest.mark.parametrize(("short", "long"), [("-h", "--help"), ("-V", "--version")])
def test_short_options_say_the_same(cli: Cli, short: str, long: str) -> None:
    assert cli(short).out == cli(long).out != ""
    assert cli("--version").out == f"clustersim {clustersim.__version__}\n"


@pytest.mark.parametrize(
    ("option", "key"),
    [("--tp", "strategy.tp"), ("--tensor-parallel-size", "strategy.tp"), ("--micro-batch-size", "training.micro_batch_size")],
)
def test_an_unknown_option_that_is_a_key_says_how_it_is_set(cli: Cli, option: str, key: str) -> None:
    outcome = cli("run", "1f1b", option, "4")

    assert (outcome.code, outcome.err) == (2, f"error: No such option: {option}; in a scenario it is {key}: write -s {key}=...\n")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("strategy.tensor_parallel", "tp"),
        ("strategy.pipeline_parallel_size", "pp"),
        ("tensor_parallel", "strategy.tp"),
        ("strategy.data_parallell", "data_parallel"),
    ],
)
def test_a_long_name_of_a_key_is_understood(cli: Cli, key: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in cli("run", "1f1b", "-s", f"{key}=4").err
