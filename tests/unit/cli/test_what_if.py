"""``clustersim what-if``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli

CASE = ("what-if", "llama3-8b-8xh100", "--case", "wide:strategy.tp=8")


def test_the_first_line_answers_and_a_table_follows(cli: Cli) -> None:
    outcome = cli(*CASE)

    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert lines[0].startswith("base is best: tokens_per_s ")
    assert lines[1].startswith("Settings left to their defaults differ too")
    assert max(map(len, lines)) <= 100
    assert lines[-3].split() == ["case", "changes", "tokens_per_s", "against", "base"]
    assert lines[-1].split()[:2] == ["wide", "strategy.tp=8"]


def test_json_is_one_document(cli: Cli) -> None:
    found = json.loads(cli(*CASE, "--sensitivity", "accelerator_speed=0.9..1.1", "--json").out)

    assert found["best"] == "base"
    assert [case["name"] for case in found["cases"]] == ["base", "wide"]
    assert found["sensitivity"]["inputs"][0]["best_at_low"] == "base"


@pytest.mark.slow
def test_a_tornado_is_printed_and_drawn(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*CASE, "--sensitivity", "hardware", "--plot", "tornado.png")

    assert outcome.code == 0
    assert outcome.err == "wrote tornado.png\n"
    assert "One figure at a time, base" in outcome.out
    assert (tmp_path / "tornado.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_samples_are_told_as_a_table(cli: Cli) -> None:
    pytest.importorskip("SALib")
    outcome = cli(*CASE, "--sensitivity", "accelerator_speed=0.9..1.1", "--method", "morris", "--samples", "2")

    assert outcome.code == 0
    assert "base stays best in 100 % of 4 samples" in outcome.out
    assert "All figures at once: morris, 8 runs" in outcome.out


def test_a_question_without_answer_is_a_no(cli: Cli) -> None:
    outcome = cli(*CASE, "--where", "mfu > 0.99")

    assert outcome.code == 1
    assert outcome.out.startswith("No case can be chosen: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "x"], "--case x: is not name:key=value,key=value"),
        (["--case", "x:strategy.ttp=3"], "case x: strategy.ttp: unknown field 'ttp'; did you mean 'tp'?"),
        (["--sensitivity", "foo=1..2"], "--sensitivity foo: foo: unknown field 'foo'"),
        (["--break-even", "cluster.nics.bandwidth=1..2 GB/s"], "--break-even: the base alone breaks even with nothing; add a --case"),
        (["--metric", "mfuu"], "--metric: there is no metric 'mfuu'; did you mean 'mfu'?"),
        (["--where", "mfuu > 1"], "--where: there is no metric 'mfuu'; did you mean 'mfu'?"),
        (["--method", "guess"], "--method: 'guess' is no method; use one of one, morris, sobol"),
        (["--plot", "a.txt"], "--plot: 'a.txt' does not say its format; name a file that ends in .png or .svg"),
        (["--plot", "nowhere/a.png"], "--plot: cannot write nowhere/a.png: its folder does not exist"),
        (["--plot", "a.png"], "--plot: there is no tornado to draw; add --sensitivity hardware"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(cli: Cli, arguments: list[str], message: str) -> None:
    outcome = cli("what-if", "llama3-8b-8xh100", *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {message}")
    assert outcome.err.count("\n") == 1
