"""Files of frameworks: the framework that is recognised, and the scenario that comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from clustersim.documents.spots import Data
from clustersim.errors import ScenarioError
from clustersim.scenario.build import build
from clustersim.scenario.run import run_built
from clustersim.studies.importing.asked import Asked
from clustersim.studies.importing.importing import Imported, import_files
from clustersim.studies.importing.reading import read_contents, read_raw
from clustersim.studies.importing.table import framework_names

FILES: Final = Path(__file__).parent / "files"


@dataclass(frozen=True)
class Case:
    """Files of one job, the options that they need, and values of the scenario."""

    files: str
    framework: str
    expected: dict[str, Data]
    cluster: str | None = None
    nodes: int | None = None
    set_: tuple[str, ...] = ()
    model: str | None = None


CASES: Final = (
    Case(
        "megatron-llama3-8b.args.txt",
        "megatron_lm",
        {
            "model": "llama3-8b",
            "cluster.nodes": 1,
            "training.precision": "fp8",
            "training.fp8_parameters": True,
            "training.global_batch_size": 128,
            "training.seq_length": 8192,
            "training.gradient_precision": "same",
            "strategy.zero_stage": 1,
            "strategy.data_parallel.overlap": True,
        },
        cluster="dgx-h100",
    ),
    Case(
        "megatron-deepseek-proxy.yaml",
        "megatron_lm",
        {
            "model.num_hidden_layers": 14,
            "model.kv_lora_rank": 512,
            "model.first_k_dense_replace": 3,
            "model.num_experts": 64,
            "model.shared_expert_intermediate_size": 2048,
            "model.num_nextn_predict_layers": 1,
            "strategy.tp": 2,
            "strategy.pp": 4,
            "strategy.ep": 16,
            "strategy.etp": 1,
            "strategy.virtual_stages": 2,
            "strategy.stage_layers": [2, 2, 2, 2, 2, 2, 1, 1],
            "strategy.dispatch": "per_node",
            "training.vocabulary_multiple": 3232,
        },
        cluster="dgx-h100",
        nodes=16,
        set_=("model.vocab_size=256000",),
    ),
    Case(
        "megatron-v100.log",
        "megatron_lm",
        {
            "model.num_hidden_layers": 48,
            "model.vocab_size": 50257,
            "model.head_dim": 224,
            "cluster.node": "dgx1-v100-32g",
            "cluster.nodes": 8,
            "cluster.accelerators_per_node": 4,
            "training.precision": "fp16",
            "training.attention": "unfused",
            "strategy.tp": 4,
            "strategy.pp": 8,
            "strategy.recompute": "full",
            "strategy.preset": "megatron_lm",
        },
    ),
    Case(
        "megatron-deepspeed-v100.log",
        "megatron_lm",
        {"cluster.nodes": 8, "strategy.preset": "deepspeed_3d", "strategy.zero_stage": 0, "strategy.pp": 16},
        cluster="dgx1-v100-32g",
    ),
    Case(
        "nemo-gpt3-175b.yaml",
        "nemo",
        {
            "model": "gpt3-175b",
            "cluster.nodes": 128,
            "strategy.tp": 4,
            "strategy.pp": 8,
            "strategy.virtual_stages": 6,
            "strategy.sequence_parallel": True,
            "training.precision": "bf16",
            "training.global_batch_size": 2048,
        },
        cluster="dgx-h100",
    ),
    Case(
        "torchtitan-llama3-70b.toml",
        "torchtitan",
        {
            "model": "llama3-70b",
            "training.micro_batch_size": 8,
            "training.global_batch_size": 64,
            "strategy.tp": 8,
            "strategy.recompute": "full",
            "strategy.preset": "torchtitan",
        },
        cluster="dgx-a100-80g",
        nodes=8,
    ),
    Case(
        "deepspeed-zero3-offload.json",
        "deepspeed",
        {
            "strategy.preset": "deepspeed_zero3",
            "strategy.offload": ["optimizer", "gradients", "parameters"],
            "training.precision": "fp16",
            "training.global_batch_size": 16,
        },
        cluster="dgx-h100",
        nodes=2,
        model="llama3-8b",
        set_=("training.seq_length=4096", "training.micro_batch_size=1"),
    ),
    Case(
        "accelerate-tp-hsdp.yaml",
        "accelerate",
        {"cluster.nodes": 1, "strategy.tp": 2, "strategy.shard_degree": 2, "strategy.preset": "pytorch_fsdp"},
        cluster="dgx-h100",
        model="llama3-8b",
        set_=("training.seq_length=4096", "training.micro_batch_size=1"),
    ),
    Case(
        "axolotl-hsdp-tp.yaml",
        "axolotl",
        {"model": "llama3.1-8b", "cluster.nodes": 2, "strategy.shard_degree": 4, "strategy.tp": 2, "training.fused_loss": True},
        cluster="dgx-h100",
    ),
    Case(
        "neox-llama2-7b.yml neox-train.yml",
        "gpt_neox",
        {"model": "llama2-7b", "strategy.zero_stage": 1, "strategy.recompute": "full", "training.global_batch_size": 128},
        cluster="dgx-a100-40g",
        nodes=4,
        set_=("model.vocab_size=32000",),
    ),
    Case(
        "foundry-mpt-7b.yaml",
        "llm_foundry",
        {
            "model.intermediate_size": 16384,
            "training.micro_batch_size": 8,
            "training.loss_metrics": 2,
            "training.tokens": "134008012800",
            "strategy.recompute": "full",
        },
        cluster="dgx-a100-80g",
        nodes=4,
    ),
    Case(
        "maxtext-run.yml maxtext-model.yml",
        "maxtext",
        {"model": "llama3.1-405b", "training.seq_length": 4096, "training.global_batch_size": 512, "strategy.recompute": "full"},
        cluster="dgx-h100",
        nodes=64,
    ),
    Case(
        "nanotron-moe.yaml",
        "nanotron",
        {
            "model.num_experts": 8,
            "model.num_shared_experts": 1,
            "model.sliding_window": 20,
            "cluster.accelerators_per_node": 2,
            "training.global_batch_size": 6,
            "strategy.zero_stage": 0,
        },
        cluster="dgx-h100",
    ),
    Case(
        "olmo-1b.yaml",
        "olmo",
        {"model.intermediate_size": 8192, "model.normalization_vectors": 0, "model.vocab_size": 50304, "training.micro_batch_size": 8},
        cluster="dgx-h100",
        nodes=8,
    ),
    Case(
        "paddle-llama3-8b.json",
        "paddle",
        {"model": "llama3-8b", "strategy.zero_stage": 2, "strategy.tp": 2, "strategy.recompute": "none", "training.global_batch_size": 64},
        cluster="dgx-h100",
        nodes=1,
    ),
    Case(
        "primus-llama3.1-70b.yaml",
        "primus",
        {"model": "llama3.1-70b", "strategy.zero_stage": 3, "strategy.recompute_layers": 80, "training.precision": "bf16"},
        cluster="mi300x-oam",
        nodes=1,
    ),
    Case(
        "torchtune-70b.yaml",
        "torchtune",
        {"model": "llama3.1-70b", "training.fused_loss": True, "strategy.recompute": "full", "training.micro_batch_size": 2},
        cluster="dgx-a100-80g",
        nodes=1,
        set_=("training.seq_length=2048",),
    ),
)


def paths_of(case: Case) -> list[str]:
    return [str(FILES / name) for name in case.files.split()]


def imported(case: Case) -> Imported:
    return import_files(paths_of(case), Asked(cluster=case.cluster, nodes=case.nodes, model=case.model, overrides=case.set_))


def at(data: Data, key: str) -> Data:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.files)
def test_a_file_yields_the_scenario_that_it_describes(case: Case) -> None:
    found = imported(case)

    assert found.framework == case.framework
    assert {key: at(found.data, key) for key in case.expected} == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.files)
def test_every_key_of_a_file_is_in_the_report_once(case: Case) -> None:
    written = sorted((path, entry.key, entry.line or 0) for path in paths_of(case) for entry in read_contents(read_raw(path), path).entries)

    found = sorted((key.file, key.key, key.line or 0) for key in imported(case).keys if key.file is not None)

    assert found == written


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.files)
def test_the_vocabulary_of_a_table_covers_its_samples(case: Case) -> None:
    assert [key.key for key in imported(case).keys if key.how == "unknown"] == []


def test_every_framework_has_a_sample_or_extends_one() -> None:
    assert set(framework_names()) - {case.framework for case in CASES} == {"megatron_bridge"}


# Within 15 %: the stated goal for imported logs, whose machine is known by its accelerators alone.
@pytest.mark.parametrize("case", [case for case in CASES if case.files.endswith(".log")], ids=lambda case: case.files)
def test_the_step_of_a_log_is_predicted_as_it_was_measured(case: Case) -> None:
    found = imported(case)
    assert found.measured is not None

    predicted_s = run_built(build(found.scenario)).step_time_s

    assert predicted_s == pytest.approx(found.measured.step_time_s, rel=0.15)


def written(tmp_path: Path, text: str, name: str = "job.txt") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


MEGATRON: Final = (
    "pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 2 --global-batch-size 64 --vocab-size 32000 --bf16 --tensor-model-parallel-size 2 "
)
ON_H100: Final = Asked(cluster="dgx-h100", nodes=1)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--swiglu", {"model.gated_mlp": True, "model.intermediate_size": 1344}),
        ("--group-query-attention --num-query-groups 4", {"model.num_key_value_heads": 4}),
        ("--num-query-groups 4", {"model.num_key_value_heads": None}),
        ("--untie-embeddings-and-output-weights", {"model.tie_word_embeddings": False}),
        ("--attention-dropout 0.0 --hidden-dropout 0.0", {"model.dropout": False}),
        ("--attention-dropout 0.0 --hidden-dropout 0.1", {"model.dropout": True}),
        ("--disable-bias-linear --add-qkv-bias", {"model.mlp_bias": False, "model.qkv_bias": True}),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2", {"strategy.virtual_stages": 2}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", {"strategy.recompute_layers": 2}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2", {"strategy.recompute_layers": None}),
        (
            "--recompute-granularity selective --recompute-modules core_attn layernorm",
            {"strategy.recompute_modules": ["core_attention", "norms"]},
        ),
        ("--use-torch-fsdp2", {"strategy.zero_stage": 3}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"strategy.zero_stage": 2}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"strategy.cp": 2, "strategy.context_parallel": "ulysses"}),
        (
            "--sequence-parallel --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4",
            {"model.num_experts": 8, "strategy.ep": 4},
        ),
        ("--sequence-parallel --num-experts 8 --moe-layer-freq ([0,1]*4)", {"model.mlp_only_layers": [0, 2, 4, 6]}),
        ("--sequence-parallel --tp-comm-overlap", {"strategy.overlap_tp": "gemm_chunks"}),
        ("--fp16", {"training.gradient_precision": "same"}),
        ("--cross-entropy-loss-fusion --enable-cuda-graph", {"training.fused_loss": True, "training.cuda_graphs": True}),
        ("--transformer-impl local", {"training.attention": "unfused"}),
        ("--ddp-bucket-size 10000000", {"strategy.data_parallel.bucket": "40 MB"}),
        ("--train-iters 100", {"training.tokens": str(100 * 64 * 1024)}),
    ],
)
def test_a_flag_of_megatron_lm_is_read(tmp_path: Path, flags: str, expected: dict[str, Data]) -> None:
    text = MEGATRON.replace("--bf16 ", "") if "--fp16" in flags else MEGATRON

    found = import_files([written(tmp_path, text + flags)], ON_H100)

    assert {key: at(found.data, key) for key in expected} == expected


@pytest.mark.parametrize("flag", ["--overlap-moe-expert-parallel-comm", "--rampup-batch-size 32 32 1000", "--decoder-num-layers 4"])
def test_what_is_not_modelled_is_said(tmp_path: Path, flag: str) -> None:
    found = import_files([written(tmp_path, MEGATRON + flag)], ON_H100)

    lost = [key for key in found.keys if key.how == "not_modelled"]
    assert [key.key for key in lost] == [flag.partition(" ")[0]]
    assert lost[0].note


def test_an_unknown_key_is_warned_of_and_refused_by_strict(tmp_path: Path) -> None:
    path = written(tmp_path, MEGATRON + "--tensor-model-paralel-siz 4")

    keys = [key.key for key in import_files([path], ON_H100).keys if key.how == "unknown"]

    assert keys == ["--tensor-model-paralel-siz"]
    with pytest.raises(ScenarioError, match="is no key of Megatron-LM that is known; did you mean 'tensor_model_parallel_size'"):
        import_files([path], Asked(cluster="dgx-h100", nodes=1, strict=True))


def test_a_later_file_and_a_later_option_count(tmp_path: Path) -> None:
    found = import_files([written(tmp_path, MEGATRON + "--micro-batch-size 4")], ON_H100)

    assert at(found.data, "training.micro_batch_size") == 4
    assert [key.note for key in found.keys if key.key == "--micro-batch-size"] == ["given again in line 1", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nvalues: [1, 2]\n", "holds keys of no framework that is known"),
        ("", "is empty"),
        ("just some words", "holds no keys and values"),
        ("version: 1\nmodel: llama3-8b\ncluster: {node: dgx-h100}\ntraining: {global_batch_size: 8}\n", "is a scenario already"),
        ("SwitchName=s0 Nodes=n[0-3]\n", "is a description of a cluster"),
        ('{"schemaVersion": 1, "traceEvents": []}', "is a trace"),
        ("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2", "is a serving deployment"),
        ("kind: DynamoGraphDeployment\nspec: {}\n", "is a serving deployment"),
        ("[training\nseq_len = 3\n", "holds no|is not"),
    ],
)
def test_another_file_is_refused_by_what_it_is(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        import_files([written(tmp_path, text)], ON_H100)


def test_two_frameworks_that_fit_are_named(tmp_path: Path) -> None:
    both = "base_model: llama\nmicro_batch_size: 1\nsequence_len: 2\nper_device_batch_size: 1\n"

    with pytest.raises(ScenarioError, match="keys of Axolotl and of MaxText; choose with --as axolotl or --as maxtext"):
        import_files([written(tmp_path, both, "job.yaml")], ON_H100)


def test_what_no_file_says_is_asked_for_by_its_option(tmp_path: Path) -> None:
    path = written(tmp_path, '{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', "ds.json")

    with pytest.raises(ScenarioError) as refusal:
        import_files([path], Asked())

    assert all(option in str(refusal.value) for option in ("--model NAME", "--cluster NAME", "--nodes N", "-s training.seq_length"))


def test_a_value_that_the_job_cannot_have_is_told_of_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, MEGATRON.replace(" --bf16", " \\\n--bf16 --num-experts 3 --moe-router-topk 5"))

    with pytest.raises(ScenarioError, match=r"job\.txt.*5 of 3 experts"):
        import_files([path], ON_H100)
