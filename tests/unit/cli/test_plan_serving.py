from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustersim.errors import EXIT_BAD_INPUT, EXIT_NO, EXIT_OK
from tests.unit.cli.conftest import Cli

SERVICE = ("plan", "serve-llama3-70b-chat", "--serving", "--set", "requests.count=60", "--set", "requests.warmup=0", "--set", "cost=null")


def test_the_document_has_the_fewest_gpus_and_their_proof(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=2,4", "--gpus", "8", "--json")
    document = json.loads(outcome.out)
    assert outcome.code == EXIT_OK
    assert document["proven"]
    assert document["best"]["gpus"] == document["least_gpus"]


def test_the_answer_has_precision_intervals_cost_and_the_next_best(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=2,4", "--gpus", "8")

    assert "weights in fp8, KV cache in bf16" in outcome.out
    assert re.search(r"USD per million of the tokens requested; [\d.]+ USD for machines per hour, whole nodes", outcome.out)
    assert re.search(r"GPUs +tok/s/GPU +USD/M +TTFT p99 +TPOT p99 +deployment", outcome.out)
    assert "next best of another kind: tp=" in outcome.out
    assert re.search(r"bound by (prefill|decode) time, T\w+ p99 at [\d.]+ % of its limit; the KV cache is at most", outcome.out)
    assert "assumed: no prices are given: those of on-demand-2026-10" in outcome.err
    priced = cli(*SERVICE[:-2], "--only", "tp=4", "--gpus", "8").out
    assert re.search(r"; 24.00 USD for machines and 0.\d\d USD for energy per hour, whole nodes counted", priced)


def test_what_surely_keeps_the_promises_for_the_same_bill_is_named(cli: Cli) -> None:
    kept = ("--only", "tp=2,8", "--only", "max_batched_tokens=2048", "--set", "slo={ttft_p99: 460 ms}", "--gpus", "8")
    out = cli(*SERVICE, *kept).out

    assert "  the same bill: tp=8 max_batched_tokens=2048 replicas=1 on 8 GPUs, decided" in out
    assert "nothing else meets the SLOs with fewer GPUs, by the predicted values" in out


def test_another_node_with_a_lower_rent_is_named_beside_the_fewest_gpus(cli: Cli) -> None:
    kept = ("--only", "tp=4", "--only", "max_batched_tokens=2048", "--only", "node=hgx-h200,dgx-h100", "--gpus", "8")
    rent = "cost.gpu_hour={h200-sxm: 6 USD, h100-sxm5-80g: 1 USD}"

    assert "  cheaper: tp=4 max_batched_tokens=2048 node=dgx-h100 replicas=" in cli(*SERVICE, *kept, "--set", rent).out
    assert "cheaper:" not in cli(*SERVICE, *kept, "--set", "cost.gpu_hour=2 USD").out


def test_the_scenario_itself_is_a_row_and_the_nearest_miss_is_the_one_refused(cli: Cli) -> None:
    crowded = ("--set", "cluster.node=dgx-h100", "--set", "requests.count=200", "--set", "serving={precision: bf16, tp: 4, replicas: 1}")
    asked = (*SERVICE, *crowded, "--set", "slo={ttft_p99: 1.5 s}", "--only", "tp=4,8", "--gpus", "8")
    document = json.loads(cli(*asked, "--json").out)
    out = cli(*asked).out

    yours = "tp=4 max_batched_tokens=8192 replicas=1"
    assert document["own"]["gpus"] == 4 < document["best"]["gpus"]
    assert re.search(rf"\n +4 .* yours: {yours}\n", out)
    more = ("--set", "cluster.nodes=2", "--set", "serving.replicas=4")
    assert re.search(r" replicas=4 on 2 nodes\n", cli(*SERVICE, *crowded, *more, "--only", "tp=4").out)
    assert f"refused: {yours}, 4 GPUs" in out


def test_where_nobody_keeps_the_promises_the_nearest_is_named(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=4", "--gpus", "4", "--set", "slo.ttft_p99=20 ms")
    assert outcome.code == EXIT_NO
    assert "which misses ttft_p99" in outcome.err


@pytest.mark.parametrize("option", [("--nodes", "4"), ("--budget", "3 MUSD"), ("--memory-margin", "5 %"), ("--time-limit", "9 s")])
def test_an_option_that_does_nothing_with_serving_is_refused(cli: Cli, option: tuple[str, str]) -> None:
    outcome = cli(*SERVICE, *option)
    assert outcome.code == EXIT_BAD_INPUT
    assert f"{option[0]}: does nothing with --serving" in outcome.err


def test_a_node_with_serving_is_answered_with_a_scenario_that_runs(cli: Cli) -> None:
    assert "such as serve-llama3-70b-chat, with -s model=" in cli("plan", "llama3.1-8b", "pcie-l40s", "--serving").err


def test_the_limit_of_gpus_is_refused_where_a_layout_of_training_is_planned(cli: Cli) -> None:
    assert "--gpus: does nothing with a layout of training" in cli("plan", "llama3-8b", "dgx-h100", "--gpus", "4").err


def test_a_scenario_of_training_serves_nothing(cli: Cli) -> None:
    assert "training: trains and serves no requests" in cli("plan", "llama3-8b-8xh100", "--serving").err


def test_values_without_a_key_are_refused(cli: Cli) -> None:
    assert "--only: 'tp' has no values" in cli(*SERVICE, "--only", "tp").err


def test_the_winner_is_written_for_its_engine(cli: Cli) -> None:
    outcome = cli(*SERVICE, "--only", "tp=4", "--gpus", "8", "--as", "vllm")

    assert "--tensor-parallel-size 4" in outcome.out
    assert "replicas=1: 4 GPUs" in outcome.err
    assert "cannot be written as 'megatron'" in cli(*SERVICE, "--as", "megatron").err


def test_the_command_of_the_winner_is_written_to_a_file(cli: Cli, tmp_path: Path) -> None:
    outcome = cli(*SERVICE, "--only", "tp=4", "--gpus", "4", "--as", "vllm", "-o", tmp_path / "serve.sh")

    assert outcome.code == EXIT_OK
    assert "vllm serve" in (tmp_path / "serve.sh").read_text(encoding="utf-8")


def test_an_answer_from_a_short_run_says_so(cli: Cli) -> None:
    asked = (*SERVICE, "--only", "tp=4", "--gpus", "4")

    assert "short_run: ramp (" in cli(*asked).err
    assert "short_run" in {flag["code"] for flag in json.loads(cli(*asked, "--json").out)["best"]["flags"]}


def test_throughput_that_the_rate_sets_has_no_interval_of_zero_width(cli: Cli) -> None:
    asked = (*SERVICE, "--only", "tp=2", "--only", "max_num_seqs=16", "--gpus", "2", "--set", "slo={ttft_p99: 20 s}")
    below, beyond = (cli(*asked, "--set", f"requests.rate={rate}/s").out for rate in (1, 12))

    assert re.search(r"[\d,.]+ \(set by the rate\) output tokens/s; [\d.]+ USD per million of the tokens requested;", below)
    assert re.search(r"[\d,.]+ \([\d,.]+ to [\d,.]+\) output tokens/s; [\d.]+ USD per million of the tokens requested \(", beyond)


@pytest.mark.parametrize(("node", "hint"), [("dgx-h100", "those of on-demand-2026-10"), ("dgx-b300", "no price of b300-sxm is known")])
def test_the_written_service_runs_where_rents_leave_out_its_accelerator(cli: Cli, tmp_path: Path, node: str, hint: str) -> None:
    file = tmp_path / "kept.yaml"
    rent = ("-s", "cost={gpu_hour: {h200-sxm: 3 USD}}", "-s", f"cluster.node={node}")

    planned = cli(*SERVICE, "--only", "tp=4", *rent, "-o", str(file))

    assert hint in planned.err
    assert cli("run", str(file), "-o", str(tmp_path)).code == EXIT_OK
