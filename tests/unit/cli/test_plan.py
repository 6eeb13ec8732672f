"""``clustersim plan`` and ``clustersim advise``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustersim.documents.text import parse_document
from tests.unit.cli.conftest import Cli

SMALL = (
    *("--only", "tp=1,2", "--only", "pp=1,2", "--only", "cp=1", "--only", "micro_batch_size=1", "--only", "offload=none"),
    *("--only", "schedule=1f1b", "--only", "zero_stage=0,1", "--only", "recompute=none"),
    *("-s", "training.global_batch_size=16", "-s", "training.seq_length=1024"),
)
QUESTION = ("llama3.2-1b", "dgx-h100", "--nodes", "1", *SMALL)


def test_the_first_line_is_the_layout_and_the_last_ones_the_certificate(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert "micro-batch 1" in lines[0]
    assert re.search(r"fits .*GiB to spare.*; bound by ", lines[1])
    assert re.search(r"\na step has 16 sequences of 1,024 tokens: [\d,]+ tokens/s\n", outcome.out)
    assert "Certificate" in lines
    assert any("its bound is above the fastest" in line for line in lines)
    assert re.fullmatch(r"\d notes on prices and what is assumed: --verbose shows them\n", outcome.err)


def test_a_price_that_nobody_knows_is_always_told(cli: Cli) -> None:
    told = cli("plan", "llama3.2-1b", "dgx-b300", "--nodes", "1", *SMALL).err.splitlines()
    assert told[0].startswith("no price of b300-sxm is known, and none is counted")
    assert told[1].endswith("--verbose shows them")


def test_all_that_is_assumed_is_told_where_somebody_asks(cli: Cli) -> None:
    said = cli("plan", *QUESTION, "-v").err

    assert "assumed: no prices are given" in said
    assert "assumed: overlap_tp gemm_chunks (recipes with Transformer Engine)" in said


def test_the_report_says_on_what_the_choice_turns(cli: Cli) -> None:
    lines = cli("plan", *QUESTION[:3], "2", *SMALL, "--json").out
    turned = {turn["condition"]: turn for turn in json.loads(lines)["turns"]}
    said = cli("plan", *QUESTION).out

    half, memory = turned
    assert (half.partition(",")[0], memory) == ("network at half its bandwidth", "no margin of memory in place of 8 %")
    assert all(turn["layout"] is None or turn["gain_fraction"] > 0.0 for turn in turned.values())
    assert turned[half]["step_time_s"] >= json.loads(lines)["winner"]["step_time_s"]
    assert "no margin of memory in place of 8 %: the same layout wins" in said
    assert "network at half" not in said  # one node has none
    assert "published runs of" in said


@pytest.mark.parametrize(("bandwidth", "safer"), [("12.5 GB/s", True), ("50 GB/s", False)])
def test_a_layout_near_the_first_that_a_slower_network_hurts_less_is_named_as_safer(cli: Cli, bandwidth: str, safer: bool) -> None:
    space = [f"--only={each}" for each in ("tp=1,2", "pp=1,2", "cp=1", "zero_stage=1,3", "schedule=1f1b", "recompute=none", "offload=none")]
    changes = [f"-s{each}" for each in ("training.global_batch_size=32", "training.seq_length=4096", f"cluster.nics.bandwidth={bandwidth}")]

    out = cli("plan", "llama3-8b", "dgx-h100", "--nodes", "2", *space, "--only", "micro_batch_size=1,2", *changes).out

    assert ("If the network may be slower, tp 2 pp 2 dp 4, 1f1b" in out) is safer


def test_the_document_counts_all_layouts(cli: Cli) -> None:
    found = json.loads(cli("plan", *QUESTION, "--json").out)

    certificate = found["certificate"]
    assert found["found"]
    assert certificate["complete"]
    assert 1 + sum(certificate["why_not"].values()) == certificate["n_layouts"]
    assert found["winner"]["bound_s"] <= found["winner"]["step_time_s"]
    assert "usual_settings" in [flag["code"] for flag in found["flags"]]


def test_the_winner_runs_as_it_was_planned(cli: Cli, tmp_path: Path) -> None:
    found = json.loads(cli("plan", *QUESTION, "--json", "--write", "best.yaml").out)

    again = json.loads(cli("run", tmp_path / "best.yaml", "--json", "--no-plots").out)

    assert again["step_time_s"] == found["winner"]["step_time_s"]


ORDER = ("--only", "zero_stage=0", "--only", "placement=tp-cp-ep-dp-pp")


def test_stdout_holds_the_configuration_of_deepspeed_alone(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION, *ORDER, "--as", "deepspeed")

    assert outcome.code == 0
    assert json.loads(outcome.out)["train_micro_batch_size_per_gpu"] == 1
    assert "micro-batch 1" in outcome.err.splitlines()[0]
    assert "Certificate" in outcome.err
    assert "note: configuration of DeepSpeed 0.18" in outcome.err


def test_the_winner_alone_goes_to_stdout_where_its_file_is_a_dash(cli: Cli) -> None:
    assert parse_document(cli("plan", *QUESTION, *ORDER, "-o", "-").out, "out").data["model"] == "llama3.2-1b"
    assert not Path("-").exists()


def test_stdout_holds_the_flags_of_megatron_alone(cli: Cli) -> None:
    outcome = cli("plan", *QUESTION, *ORDER, "--as", "megatron")

    assert outcome.code == 0
    assert outcome.out.startswith("--tensor-model-parallel-size 1\n")
    assert all(line.startswith("--") for line in outcome.out.splitlines())


def test_with_a_file_the_report_stays_on_stdout(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plan", *QUESTION, *ORDER, "--as", "deepspeed", "-o", "ds.json")

    assert outcome.code == 0
    assert "Certificate" in outcome.out.splitlines()
    assert json.loads((tmp_path / "ds.json").read_text(encoding="utf-8"))["train_batch_size"] == 16
    assert "wrote ds.json" in outcome.err


def test_two_documents_do_not_share_stdout(cli: Cli) -> None:
    refused = cli("plan", *QUESTION, *ORDER, "--as", "deepspeed", "--json")
    apart = cli("plan", *QUESTION, *ORDER, "--as", "deepspeed", "--json", "-o", "ds.json")

    assert (refused.code, refused.out) == (2, "")
    assert "--json and --as both write to stdout" in refused.err
    assert json.loads(apart.out)["found"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *((("--memory-margin", margin), "is no share of the memory") for margin in ("8", "100 %", "a lot", "nan")),
        (("--write", "no-such-folder/plan.yaml"), "cannot write no-such-folder/plan.yaml"),
        (("--as", "megatronn"), "did you mean 'megatron'?"),
        (("--constraint", "memory_fractoin < 1"), "memory_fraction"),
        (("--tokens", "20B"), "--within"),
        (("--tokens", "lots"), "'lots' is not a count"),
        (("--tokens", "20B", "--within", "60 days"), "--nodes: does nothing with --tokens; write --max-nodes"),
        (("--within", "60 days"), "--within: does nothing with a search without a goal; add --tokens"),
        (("--only", "tp=3"), "tp 3 does not divide the 32 heads"),
    ],
)
def test_a_mistake_is_told_before_the_search(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("plan", *QUESTION, *arguments)

    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*QUESTION, "--memory-margin", "99 %"), "No layout leaves 99 % of the memory free; "),
        (("llama3-70b", "dgx-a100-40g", "--nodes", "1", *SMALL), "No layout can run: it does not fit in memory."),
        ((*QUESTION, "--only", "pp=3"), "No layout can run: none divides ranks, layers and batch."),
    ],
)
def test_where_no_layout_can_run_the_reason_is_the_answer(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("plan", *arguments)

    assert outcome.code == 1
    assert outcome.out.startswith(message)


def test_a_goal_is_reached_or_the_nearest_is_named(cli: Cli) -> None:
    goal = ("plan", "llama3.2-1b", "--tokens", "20B", "--accelerators", "dgx-h100", "--max-nodes", "4", *SMALL)

    reached = cli(*goal, "--within", "30 days", "--budget", "1 MUSD")
    missed = cli(*goal, "--within", "1 min")

    assert (reached.code, missed.code) == (0, 1)
    assert reached.out.startswith("yes 1 dgx-h100: ")
    assert reached.err.endswith("--verbose shows them\n")
    assert missed.out.startswith("no: the nearest is 4 dgx-h100: ")


def test_what_reaches_a_goal_is_written_in_the_words_of_a_framework(cli: Cli) -> None:
    goal = ("plan", "llama3.2-1b", "--tokens", "20B", "--within", "30 days", "--accelerators", "dgx-h100", "--max-nodes", "1", *SMALL)

    assert cli(*goal, "--only", "zero_stage=1,3", "--as", "torchtitan", "-o", "x.toml").code == 0


def test_advice_names_a_family_and_what_the_others_lose_by(cli: Cli) -> None:
    outcome = cli("advise", *QUESTION)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0].startswith("Use ")
    assert sum(" is fastest: " in line for line in lines) == 1
    assert any("it loses by" in line for line in lines)


def test_no_layout_stands_for_two_families(cli: Cli) -> None:
    found = json.loads(cli("advise", "llama3-8b", "dgx-h100", "--nodes", "2", "-s", "training.global_batch_size=64", "--json").out)

    layouts = [each["layout"] for each in found["families"] if each["layout"]]
    assert len(layouts) == len(set(layouts)) > 2
    (hybrid,) = [each["layout"] for each in found["families"] if each["family"] == "hybrid parallelism"]
    assert sum(f"{name} " in hybrid.split(",")[0] for name in ("tp", "pp", "cp")) > 1
    assert set(found["undecided"]) < {each["family"] for each in found["families"]}


def test_advice_considers_asynchronous_workers_where_machines_are_uneven(cli: Cli) -> None:
    even = json.loads(cli("advise", *QUESTION, "--json").out)
    uneven = json.loads(cli("advise", *QUESTION, "--json", "-s", "cluster.stragglers=[{ranks: 3, slowdown: 3}]").out)

    name = "asynchronous data parallelism"
    assert name not in [each["family"] for each in even["families"]]
    assert name in [each["family"] for each in uneven["families"]]


def test_a_search_that_has_no_time_ends_after_the_first_replays(cli: Cli) -> None:
    # No layout holds the constraint, so that all would be replayed.
    hopeless = ("--constraint", "mfu > 0.99", "--json")

    every, few = (json.loads(cli("plan", *QUESTION, *hopeless, *more).out)["certificate"] for more in ((), ("--time-limit", "1 us")))

    assert (every["complete"], few["complete"]) == (True, False)
    assert few["n_replayed"] <= 2 < every["n_replayed"]


def test_the_first_lines_say_that_a_search_ended_early(cli: Cli) -> None:
    first, *_ = cli("plan", *QUESTION, "--most-replays", "1").out.split("\n\n")
    assert re.search(r"\nsearch ended early: [\d,]+ of [\d,]+ layouts not looked at$", first)


def test_each_combination_of_degrees_stands_in_the_table_once(cli: Cli) -> None:
    lines = cli("plan", *QUESTION, "--most-replays", "9").out.splitlines()

    table = lines[6 : lines.index("", 6)]
    degrees = [line.partition(",")[0] for line in table]
    assert len(set(degrees)) == len(degrees) > 1
