"""The export command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas
import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.apps.run.running import run
from tests.unit.apps.importing.test_imported_serving import REQUESTS, at
from tests.unit.cli.conftest import Cli


def test_a_timeline_is_written_as_a_table(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("export", "starter", "--as", "csv", "--json")

    assert json.loads(outcome.out) == {"format": "csv", "file": "timeline.csv"}
    assert outcome.err == "wrote timeline.csv\n"
    assert len(pandas.read_csv(tmp_path / "timeline.csv")) == len(run("starter").timeline())


def test_the_trace_is_that_of_the_run_directory(cli: Cli, tmp_path: Path) -> None:
    cli("run", "starter", "--no-plots", "-q")

    cli("export", "runs/starter", "--as", "perfetto", "-o", "t.json.gz")

    kept = next(tmp_path.glob("runs/*/*/trace.json.gz"))
    assert (tmp_path / "t.json.gz").read_bytes() == kept.read_bytes()


def test_profiles_fill_a_folder(cli: Cli, tmp_path: Path) -> None:
    cli("export", "1f1b", "--as", "kineto")

    files = sorted(path.name for path in (tmp_path / "kineto").iterdir())
    assert files == [f"rank{rank}.json.gz" for rank in range(4)]
    assert json.loads(gzip.decompress((tmp_path / "kineto" / files[0]).read_bytes()))["schemaVersion"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("starter", "--as", "chrom"), "--as: there is no format 'chrom'; did you mean 'chrome'?"),
        (("starter", "--as", "csv", "-o", "no/t.csv"), "cannot write no/t.csv: its folder does not exist; choose another name with --out"),
        (("starter", "--as", "csv", "-o", "."), "cannot write .: Is a directory"),
    ],
)
def test_what_cannot_be_written_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    outcome = cli("export", *arguments)

    assert outcome.code == 2
    assert message in outcome.err


def test_a_scenario_is_written_for_a_scheduler_and_imported_again(cli: Cli) -> None:
    written = cli("export", "llama3-70b-h100-512", "--as", "sbatch", "-o", "job.sh")
    again = cli("import", "job.sh", "--cluster", "dgx-h100", "--model", "llama3-70b")

    assert written.code == 0
    assert "#SBATCH --nodes=64" in Path("job.sh").read_text(encoding="utf-8")
    assert "OWN_ARGS" in written.err
    assert "nodes: 64" in again.out
    assert "sequence_parallel: true" in again.out


def test_a_jobset_starts_the_flags_of_the_plan_on_each_node(cli: Cli) -> None:
    text = cli("export", "llama3-70b-h100-512", "--as", "jobset").out

    assert '"--tensor-model-parallel-size", "8"' in text
    assert "completions: 64" in text


def test_a_deployment_is_written_for_its_engine_with_what_is_left_out(cli: Cli) -> None:
    done = cli("export", "serve-llama3-70b-chat", "--as", "vllm", "-o", "-")

    assert "--tensor-parallel-size 4" in done.out
    assert "# 2 replicas" in done.out
    assert "note: 2 replicas" in done.err


def test_an_option_that_not_all_versions_of_an_engine_have_is_told(cli: Cli) -> None:
    done = cli("export", "serve-llama3-70b-chat", "--as", "vllm", "-s", "cluster.nodes=1")

    assert "# commands of vLLM 0.6 to 0.33; --data-parallel-size since 0.8\n" in done.out


@pytest.mark.parametrize(("engine", "option"), [("vllm", "--data-parallel-size 2"), ("sglang", "--dp-size 2")])
def test_replicas_of_one_node_are_told_as_those_of_the_server(cli: Cli, engine: str, option: str) -> None:
    fields = ("-s", f"serving.engine={engine}", "-s", "cluster.nodes=1")

    done = cli("export", "serve-llama3-70b-chat", "--as", engine, *fields)

    assert option in done.out
    assert "2 replicas: the server starts them" in done.err


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("serving.max_graph_tokens=0", "cuda_graph_config: null"),
        ("serving.max_graph_tokens=64", "cuda_graph_config: {max_batch_size: 64}"),
        ("serving.prefix_cache=false", "kv_cache_config: {enable_block_reuse: false}"),
        ("serving.max_batched_tokens=4096", "  --max_num_tokens 4096"),
    ],
)
def test_what_tensorrt_llm_takes_from_a_file_is_written_to_one(cli: Cli, tmp_path: Path, setting: str, line: str) -> None:
    file = tmp_path / "serve.sh"
    cli("export", "serve-llama3-70b-chat", "--as", "trtllm", "-s", "serving.precision=bf16", "-s", setting, "-o", str(file))

    key, _, value = setting.partition("=")
    found = import_files([str(file)], ImportOptions(cluster="dgx-h100", overrides=REQUESTS))

    assert any(each.startswith(line) for each in file.read_text(encoding="utf-8").splitlines())
    assert str(at(found.data, key)).lower() == value
    assert at(found.data, "serving.tp") == 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("starter", "--as", "vllm"), "a training job cannot be written as 'vllm'; use megatron"),
        (("serve-llama3-70b-chat", "--as", "sbatch"), "a deployment cannot be written as 'sbatch'; use vllm, sglang, trtllm"),
        (("serve-disaggregated", "--as", "vllm"), "has no one command for pools"),
        (("starter", "--as", "sbatch", "--json"), "--json and --as both write to stdout"),
    ],
)
def test_what_has_no_such_file_is_refused(cli: Cli, asked: tuple[str, ...], said: str) -> None:
    done = cli("export", *asked)

    assert done.code == 2
    assert said in done.err
