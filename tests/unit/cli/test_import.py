"""``clustersim import``, and ``run``, ``plan`` and ``compare`` with files of frameworks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustersim.documents.text import parse_document
from tests.unit.cli.conftest import Cli

FILES = Path(__file__).parents[1] / "apps" / "importing" / "files"
TITAN = FILES / "torchtitan-llama3-70b.toml"
MACHINE = ("--cluster", "dgx-a100-80g", "--nodes", 8)
SET = ("-s", "cluster.node=dgx-a100-80g", "-s", "cluster.nodes=8")


def test_the_scenario_goes_to_stdout_and_the_report_to_stderr(cli: Cli) -> None:
    done = cli("import", TITAN, *MACHINE, "-o", "-")

    assert done.code == 0
    assert parse_document(done.out, "out").data["model"] == "llama3-70b"
    assert "tensor_parallel_degree" in done.err
    assert "keys have no effect on the prediction:\n  model.hf_assets_path (the model is named by its flavour), " in done.err


def test_a_scenario_that_is_written_runs(cli: Cli) -> None:
    assert cli("import", TITAN, *MACHINE, "-o", "job.yaml").code == 0

    assert cli("run", "job.yaml", "--dry-run").code == 0


def test_json_has_scenario_and_keys(cli: Cli) -> None:
    found = json.loads(cli("import", TITAN, *MACHINE, "--json").out)

    assert (found["framework"], found["scenario"]["strategy"]["tp"]) == ("torchtitan", 8)
    tp = next(key for key in found["keys"] if key["key"] == "parallelism.tensor_parallel_degree")
    assert (tp["line"], tp["how"], tp["to"], tp["value"], tp["note"]) == (41, "read", "strategy.tp", 8, None)


def test_what_is_missing_ends_with_2_and_the_option(cli: Cli) -> None:
    done = cli("import", TITAN)

    assert done.code == 2
    assert "--cluster NAME" in done.err
    assert "--nodes N" in done.err


@pytest.mark.parametrize(
    "command",
    [
        ["run", TITAN, "--dry-run"],
        ["explain", TITAN, "--no-changes"],
        ["plot", "timeline", TITAN],
        ["sweep", TITAN, "--over", "strategy.tp=4,8", "--dry-run"],
        ["schedule", TITAN, "-s", "strategy.pp=2"],
        ["advise", TITAN, "--json"],
        ["export", TITAN, "--as", "megatron"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_takes_the_file_of_a_framework_and_says_once_what_was_lost(cli: Cli, command: list[str]) -> None:
    done = cli(*command, *SET)

    assert done.code == 0
    assert done.err.count("read as torchtitan") == 1


def test_run_names_the_setting_that_is_missing(cli: Cli) -> None:
    done = cli("run", TITAN)

    assert done.code == 2
    assert "-s cluster.node=NAME" in done.err


def test_run_says_what_a_file_is_that_cannot_be_imported(cli: Cli) -> None:
    assert "is a description of a cluster" in cli("run", FILES / "slurm-tree.topology.conf").err


def test_compare_takes_files_of_frameworks(cli: Cli) -> None:
    done = cli("compare", TITAN, TITAN, *SET, "--json")

    assert done.code == 0
    assert json.loads(done.out)["runs"][0]["scenario"] == "torchtitan-llama3-70b"


def test_compare_holds_the_prediction_of_a_log_against_what_it_measured(cli: Cli) -> None:
    done = cli("compare", FILES / "megatron-v100.log", "--json")

    assert done.code == 0
    runs = [run["scenario"] for run in json.loads(done.out)["runs"]]
    step = next(figure for figure in json.loads(done.out)["figures"] if figure["key"] == "step_time_s")
    assert runs == ["megatron-v100 (measured)", "megatron-v100"]
    assert step["values"][0] == 1.6172


def test_a_log_beside_a_scenario_is_of_its_machine(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text((FILES / "megatron-v100.log").read_text(encoding="utf-8").replace("Tesla", "Board"), encoding="utf-8")
    scenario = tmp_path / "job.yaml"
    assert cli("import", log, "--cluster", "dgx1-v100-32g", "-o", scenario).code == 0

    for pair in ((scenario, log), (log, scenario)):
        document = json.loads(cli("compare", *pair, "--json").out)
        assert document["differences"] == []
        assert [bool(run["note"]) for run in document["runs"]] == [each == log for each in pair]


def test_a_log_that_names_its_accelerators_keeps_them_beside_others(cli: Cli, tmp_path: Path) -> None:
    v100 = FILES / "megatron-v100.log"
    h100 = tmp_path / "h100.log"
    h100.write_text(
        v100.read_text(encoding="utf-8").replace("Tesla V100-SXM2... ", "NVIDIA H100 80GB HBM3").replace("32510MiB", "81559MiB"),
        encoding="utf-8",
    )

    def found(*runs: object) -> list[float]:
        figures = json.loads(cli("compare", *runs, "--json").out)["figures"]
        return next(figure["values"] for figure in figures if figure["key"] == "mfu")

    alone = [found(log)[0] for log in (v100, h100)]
    assert alone[0] > 5.0 * alone[1]
    assert found(v100, h100) == alone
    assert found("starter", v100)[1] == alone[0]


def test_compare_shows_the_timers_of_a_log(cli: Cli, tmp_path: Path) -> None:
    log = (FILES / "megatron-v100.log").read_text(encoding="utf-8")
    times = "time (ms) | forward-compute: 400.50 | backward-compute: 800.25 | optimizer: 70.00 | save-checkpoint: 9.00"
    path = tmp_path / "job.log"
    path.write_text(f"{log}\n{times}\n    grads-all-reduce ...............: (1.00, 3.00)\n", encoding="utf-8")

    figures = {figure["key"]: figure["values"][0] for figure in json.loads(cli("compare", path, "--json").out)["figures"]}

    assert (figures["breakdown_s.optimizer"], figures["timers_s.forward-compute"], figures["timers_s.grads-all-reduce"]) == (
        0.07,
        0.4005,
        0.003,
    )
    assert "timers_s.save-checkpoint" not in figures


def test_plan_takes_the_file_of_a_framework(cli: Cli) -> None:
    limits = ("tp=4", "pp=8", "micro_batch_size=1", "schedule=1f1b", "zero_stage=0", "recompute=full", "placement=tp-cp-ep-dp-pp")

    done = cli("plan", FILES / "megatron-v100.log", "--most-replays", 1, *(word for limit in limits for word in ("--only", limit)))

    assert (done.code, done.err.count("error:")) == (0, 0)


def test_an_unknown_framework_is_refused(cli: Cli) -> None:
    assert "did you mean 'torchtitan'?" in cli("import", TITAN, "--as", "torchtitn").err


CLUSTER = "cluster: {node: dgx-a100-80g, nodes: 8, accelerators_per_node: 4}\n"


def test_a_written_cluster_stands_beside_a_job_as_file_option_or_setting(cli: Cli) -> None:
    Path("cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    found = [
        cli("import", TITAN, "cluster.yaml"),
        cli("import", TITAN, "--cluster", "cluster.yaml"),
        cli("import", TITAN, "-s", "cluster=cluster.yaml"),
    ]

    scenarios = [parse_document(done.out, "out").data for done in found]

    assert scenarios[0]["cluster"] == parse_document(CLUSTER, "cluster.yaml").data["cluster"]
    assert scenarios[0] == scenarios[1] == scenarios[2]
    assert parse_document(cli("run", TITAN, "-s", "cluster=cluster.yaml", "--dry-run").out, "out").data["cluster"] is not None


def test_a_second_cluster_beside_a_job_is_refused(cli: Cli) -> None:
    for name in ("one.yaml", "two.yaml"):
        Path(name).write_text(CLUSTER, encoding="utf-8")

    outcome = cli("import", TITAN, "one.yaml", "two.yaml")

    assert (outcome.code, outcome.err) == (2, "error: two.yaml: is a second cluster beside one.yaml; give one of them\n")


def test_nodes_beside_the_file_of_a_cluster_count(cli: Cli) -> None:
    Path("cluster.yaml").write_text(CLUSTER, encoding="utf-8")

    done = cli("import", TITAN, "--cluster", "cluster.yaml", "--nodes", 16)

    assert "nodes: 16" in done.out
    assert "global_batch_size: 64" in done.out  # 8 sequences on 16 * 4 ranks in groups of 8


def test_the_cluster_of_a_file_runs_another_scenario(cli: Cli) -> None:
    Path("cluster.yaml").write_text("cluster: {node: dgx-a100-80g, nodes: 2}\n", encoding="utf-8")

    assert "dgx-a100-80g" in cli("run", "starter", "-s", "cluster=cluster.yaml", "--dry-run").out
    assert cli("plan", "llama3.2-1b", "cluster.yaml", "--most-replays", 1, "-o", "plan.yaml").code == 0
    assert "dgx-a100-80g" in Path("plan.yaml").read_text(encoding="utf-8")


def test_a_cluster_alone_is_told_from_a_job(cli: Cli) -> None:

    written = cli("import", FILES / "nccl-p4d.xml", "-o", "cluster.yaml")
    again = cli("import", "cluster.yaml")

    assert "clustersim import JOB cluster.yaml" in written.err
    assert "clustersim run cluster.yaml" not in written.err
    assert "no effect" not in written.err
    assert again.code == 2
    assert "is a cluster, not a job" in again.err
    assert "describes a cluster alone; give it to a job: clustersim run SCENARIO -s cluster=" in cli("run", "cluster.yaml").err


def test_all_that_is_missing_is_asked_for_by_one_command_and_programs_are_no_keys(cli: Cli) -> None:
    given = ("import", FILES / "dynamo-pools.yaml", "-s", "requests.rate=2 /s", "-s", "requests.arrival=poisson")
    counts = "-s requests.count=... -s requests.input_tokens=... -s requests.output_tokens=..."

    asked = cli(*given).err.strip()
    told = cli(*given, "--cluster", "dgx-h100", *counts.replace("...", "64").split()).err

    assert asked.endswith(f"dynamo-pools.yaml -s 'requests.rate=2 /s' -s requests.arrival=poisson --cluster NAME {counts}")
    assert "env.MODEL_PATH, prefill.--is-prefill-worker\n" in told


def test_a_file_without_a_cluster_is_refused_by_the_option_that_names_it(cli: Cli) -> None:
    Path("nothing.yaml").write_text("a: 1\n", encoding="utf-8")

    assert "--set cluster=nothing.yaml: cluster: " in cli("run", "starter", "-s", "cluster=nothing.yaml").err
    assert "describes no cluster" in cli("run", "starter", "-s", "cluster=nothing.yaml").err
    assert "no such file" in cli("run", "starter", "-s", "cluster=nowhere.yaml").err


def test_a_script_of_megatron_is_told_what_its_overlap_of_gathers_does_not_change(cli: Cli) -> None:
    told = cli("import", FILES / "megatron-llama3-8b.args.txt", "--cluster", "dgx-h100", "--nodes", 1).err

    assert "--overlap-param-gather" in told.partition("Not modelled:")[2].partition("Unknown:")[0]
    assert " program" not in told.partition("no effect on the prediction:")[2]
    assert "strategy.recompute " in told
    assert not any(f"strategy.{key} " in told for key in ("dispatch", "overlap_ep", "context_parallel"))


def test_what_is_not_read_stands_before_what_follows_without_it(cli: Cli) -> None:
    Path("serve.sh").write_text("vllm serve meta-llama/Llama-3.1-70B-Instruct --config options.yaml\n", encoding="utf-8")
    requests = ("arrival=at_once", "count=8", "input_tokens=64", "output_tokens=8")

    whole = cli("run", "serve.sh", "-s", "requests.count=8").err
    behind = cli("run", "-s", "requests.count=8", "--", "serve.sh").err
    told = cli("import", "serve.sh", "--cluster", "dgx-h100", *(word for each in requests for word in ("-s", f"requests.{each}"))).err

    assert "no file says the options in options.yaml: name it beside the command; nor " in cli("import", "serve.sh").err
    assert "all at once: clustersim run serve.sh -s requests.count=8 -s cluster.node=NAME -s requests.arrival=closed -s" in whole
    assert behind.rstrip().endswith(" -- serve.sh")
    assert "options.yaml" in told.partition("Not modelled:")[2].partition("Derived:")[0]
    assert re.search(r"^  cluster +dgx-h100 +cannot run there: does not fit", told.partition("Derived:")[2], re.MULTILINE)
