"""The plot command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.apps.study import pools
from tests.unit.cli.conftest import Cli


def test_a_picture_is_written_under_the_name_of_its_kind(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plot", "breakdown", "llama3-8b-8xh100")

    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "wrote breakdown.png\n"
    assert (tmp_path / "breakdown.png").read_bytes().startswith(b"\x89PNG")


def test_the_document_has_the_finding(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plot", "memory-over-time", "llama3-8b-8xh100", "-o", "m.svg", "--json")

    document = json.loads(outcome.out)
    assert document["file"] == "m.svg"
    assert document["title"].startswith("llama3-8b-8xh100, 8 GPUs: a GPU holds at most")
    assert (tmp_path / "m.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.slow
def test_a_run_directory_is_drawn_as_its_scenario_is(cli: Cli, tmp_path: Path) -> None:
    cli("run", "resnet50-async-servers", "--no-plots", "-q", "--seed", "3")

    for source, file in (("runs/resnet50-async-servers", "dir.png"), ("resnet50-async-servers", "again.png")):
        assert cli("plot", "timeline", source, "-o", file, "--seed", "3").code == 0

    assert (tmp_path / "dir.png").read_bytes() == (tmp_path / "again.png").read_bytes()


def test_a_run_directory_of_another_version_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli("run", "starter", "--no-plots", "-q")
    results = next(tmp_path.glob("runs/*/*/results.json"))
    digits = results.parent.name
    results.write_text(results.read_text(encoding="utf-8").replace(digits, "0badf00d"), encoding="utf-8")

    outcome = cli("plot", "links", results.parent)

    assert outcome.code == 2
    assert f"was made by another version: it is 0badf00d, and comes out as {digits} now; run " in outcome.err


def test_a_tornado_is_the_one_that_a_what_if_draws(cli: Cli, tmp_path: Path) -> None:
    asked = cli("what-if", "llama3-8b-8xh100", "--sensitivity", "hardware", "--plot", "drawn.png", "--json")
    (tmp_path / "answer.json").write_text(asked.out, encoding="utf-8")

    for source, file in (("llama3-8b-8xh100", "again.png"), ("answer.json", "read.png")):
        assert cli("plot", "tornado", source, "-o", file).code == 0

    assert (tmp_path / "drawn.png").read_bytes() == (tmp_path / "again.png").read_bytes() == (tmp_path / "read.png").read_bytes()


def test_a_tornado_of_what_does_not_fit_is_answered_no(cli: Cli) -> None:
    outcome = cli("plot", "tornado", "llama3-70b-h100-512", "-s", "strategy.tp=1", "-s", "strategy.pp=1")

    assert outcome.code == 1
    assert "No case can be chosen: base: " in outcome.err


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (("breakdown", "1f1b", "gpipe"), "1f1b is ahead of gpipe, not decided"),
        (("strong-scaling", "llama3-8b-8xh100"), "8 times the accelerators bring"),
        (("validation", "korthikanti-2022"), "4 published runs: 100.0 % are predicted within 10 %"),
    ],
)
def test_several_runs_one_that_grows_and_sources_are_drawn(cli: Cli, arguments: tuple[str, ...], finding: str) -> None:
    assert finding in json.loads(cli("plot", *arguments, "--json").out)["title"]


def test_a_table_of_points_is_drawn_with_what_does_not_fit(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text(
        "strategy.tp,strategy.pp,step_time_s,memory.fits\n1,1,,False\n1,2,3.5,True\n2,1,3.0,True\n2,2,2.5,True\n", encoding="utf-8"
    )

    outcome = cli("plot", "heatmap", "sweep.csv", "--json")

    assert json.loads(outcome.out)["title"] == "strategy.tp 2 with strategy.pp 2 is best: step time 2.5 s"


def test_the_table_of_a_sweep_is_drawn_without_what_is_infeasible(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(
        "point,strategy.tp,strategy.pp,status,reason,scenario_hash,gpus,step_time_s\n"
        "1,1,1,infeasible,does not fit,a,8,1.5\n2,1,2,ok,,b,8,3.5\n3,2,1,unmet,too slow,c,8,3.0\n4,2,2,ok,,d,8,3.2\n",
        encoding="utf-8",
    )

    outcome = cli("plot", "heatmap", "results.csv", "--json")

    assert json.loads(outcome.out)["title"] == "strategy.tp 2 with strategy.pp 1 is best: step time 3 s"


def test_the_directory_of_a_sweep_is_its_table_and_lines_show_the_figure_that_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "swept").mkdir()
    (tmp_path / "swept" / "results.csv").write_text(
        "point,strategy.tp,status,reason,scenario_hash,gpus,step_time_s,tokens_per_s,mfu\n"
        "1,1,ok,,a,8,2.0,100.0,0.4\n2,2,ok,,b,8,2.5,80.0,0.32\n3,4,infeasible,does not fit,c,8,1.0,200.0,0.8\n",
        encoding="utf-8",
    )

    titles = [json.loads(cli("plot", "lines", "swept", *more, "--json").out)["title"] for more in ((), ("--figure", "tokens_per_s"))]

    assert titles == ["strategy.tp 1 is best: MFU 40 %", "strategy.tp 1 is best: tokens/s 100"]


def test_a_sweep_with_prices_has_a_front_and_one_without_says_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "priced.csv").write_text(
        "point,step_time_s,cost.per_million_tokens.usd,cost.per_million_tokens.energy_kwh\n1,1.0,3.0,2.0\n2,2.0,1.0,1.0\n3,3.0,2.0,1.0\n",
        encoding="utf-8",
    )
    (tmp_path / "plain.csv").write_text("point,step_time_s\n1,1.0\n", encoding="utf-8")

    assert json.loads(cli("plot", "pareto", "priced.csv", "--json").out)["title"].startswith(
        "1 is 2 times as fast as 2, which is the cheapest"
    )
    outcome = cli("plot", "pareto", "plain.csv")
    assert outcome.code == 2
    assert "the table has no column 'cost.per_million_tokens.usd'; sweep with --metrics step_time_s,cost" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("brakdown", "starter"), "there is no picture 'brakdown'; did you mean 'breakdown'?"),
        (("breakdown", "starter", "-o", "x.pdf"), "--out: 'x.pdf' does not say its format; name a file that ends in .png or .svg"),
        (("breakdown", "starter", "-o", "no/x.png"), "--out: cannot write no/x.png: its folder does not exist; choose another file"),
        (("breakdown",), "'breakdown' shows runs, and none is named; name a run directory, a scenario file or a shipped example"),
        (
            ("links", "1f1b", "gpipe"),
            "does not show 2 runs at once; name one of them, or draw breakdown, strong_scaling, weak_scaling, pareto",
        ),
        (("pareto", "1f1b"), "'pareto' shows 2 runs or more; name more runs"),
        (("strong_scaling", "1f1b", "gpipe"), "all runs have as many accelerators"),
        (("cost", "1f1b"), "1f1b has no cost; add such as 'cost: {gpu_hour: 2.50 USD, pue: 1.2}' to its scenario"),
        (("goodput", "1f1b"), "1f1b says nothing of failures; add such as 'reliability: {node_mtbf: 5 years, restart: 8 min}'"),
        (("heatmap", "1f1b"), "'heatmap' shows one table; name the directory of a sweep, or a file that ends in .csv or .parquet"),
        (("heatmap", "none.csv"), "none.csv: no such file"),
        (("heatmap", "one_key.csv"), "a heat map needs two keys that vary; sweep two keys"),
        (("breakdown", "1f1b", "--figure", "mfu"), "'breakdown' shows no figure of a table; leave --figure out, or draw heatmap or lines"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_what_would_do(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "one_key.csv").write_text("strategy.tp,step_time_s\n1,2.0\n2,1.0\n", encoding="utf-8")

    outcome = cli("plot", *arguments)

    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_help_names_every_kind(cli: Cli) -> None:
    from clustersim.report.plots.kinds import KINDS

    words = cli("plot", "--help").out.replace("\n", " ")

    assert all(kind in words for kind in KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("weak_scaling", "starter"),
        ("breakdown", "1f1b", "gpipe"),
        ("tornado", "starter"),
    ],
)
def test_several_processes_draw_what_one_draws(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE_S", 0.0)

    assert cli("plot", *arguments, "-o", "one.svg", "--jobs", 1).code == 0
    assert cli("plot", *arguments, "-o", "two.svg", "-j", 2).code == 0

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("command", ["plot", "validate", "sweep", "what-if"])
def test_commands_of_many_runs_take_jobs_alike(cli: Cli, command: str) -> None:
    help_text = " ".join(cli(command, "--help").out.split())

    assert "-j, --jobs, --workers" in help_text
    assert "Processes; default: one per processor. The result does not depend on it." in help_text
