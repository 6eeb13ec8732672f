"""Serving deployments: command lines, scripts with clients, options in YAML, and containers of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import Imported, import_files
from clustersim.apps.importing.opening import open_job, open_scenario
from clustersim.config.serving_scenario import ServingScenario
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at

FILES: Final = Path(__file__).parent / "files"
REQUESTS: Final = (
    "requests.arrival=closed",
    "requests.concurrency=8",
    "requests.count=16",
    "requests.input_tokens=64",
    "requests.output_tokens=8",
)
POOLS: Final = "serving.disaggregated"


def imported(name: str, cluster: str = "hgx-h200", set_: tuple[str, ...] = REQUESTS) -> Imported:
    return import_files([str(FILES / name)], ImportOptions(cluster=cluster, overrides=set_))


def written(tmp_path: Path, text: str, name: str = "job.sh") -> Imported:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return import_files([str(path)], ImportOptions(cluster="hgx-h200", overrides=REQUESTS))


@pytest.mark.parametrize(
    ("name", "framework", "expected"),
    [
        (
            "sglang-dp-attention.sh",
            "sglang",
            {"model": "deepseek-r1", "cluster.nodes": 2, "serving.tp": 1, "serving.dp": 16, "serving.ep": 16},
        ),
        ("sglang-dp-attention.sh", "sglang", {"serving.replicas": 1, "serving.precision": "fp8_block", "serving.memory_fraction": 0.85}),
        (
            "trtllm-serve.sh",
            "tensorrt_llm",
            {"serving.dp": 8, "serving.ep": 8, "serving.precision": "nvfp4", "serving.kv_precision": "fp8"},
        ),
        (
            "trtllm-serve.sh",
            "tensorrt_llm",
            {"serving.max_batched_tokens": 8192, "serving.memory_fraction": 0.85, "serving.max_num_seqs": 256},
        ),
        (
            "trtllm-disaggregated.yaml",
            "tensorrt_llm",
            {f"{POOLS}.prefill": {"replicas": 2, "tp": 1}, f"{POOLS}.decode": {"replicas": 1, "tp": 4}},
        ),
        ("dynamo-pools.yaml", "vllm", {f"{POOLS}.prefill": {"replicas": 2, "tp": 2}, f"{POOLS}.decode": {"replicas": 1, "tp": 4}}),
        ("dynamo-pools.yaml", "vllm", {"model": "llama3.3-70b", "serving.precision": "fp8", "serving.prefix_cache": False}),
        ("llm-d-values.yaml", "vllm", {f"{POOLS}.prefill": {"replicas": 2, "tp": 1}, f"{POOLS}.decode": {"replicas": 1, "tp": 4}}),
        ("llm-d-values.yaml", "vllm", {"model": "gpt-oss-120b", "serving.precision": "mxfp4", "serving.memory_fraction": 0.95}),
        ("kubernetes-vllm.yaml", "vllm", {"serving.replicas": 16, "cluster.nodes": 2, "serving.max_batched_tokens": 4096}),
    ],
)
def test_a_deployment_is_read(name: str, framework: str, expected: dict[str, Data]) -> None:
    found = imported(name)

    assert found.framework == framework
    assert {key: at(found.data, key) for key in expected} == expected


def test_the_client_of_a_script_says_how_requests_arrive() -> None:
    found = imported("vllm-bench.sh", set_=()).data

    assert found["requests"] == {"count": 300, "input_tokens": 2000, "output_tokens": 200, "arrival": "poisson", "rate": "4 /s"}
    assert at(found, "serving.engine") == "vllm@0.11.0"


def test_servers_of_one_script_are_pools() -> None:
    found = imported("vllm-pools.sh", set_=()).data

    assert at(found, f"{POOLS}.prefill") == {"replicas": 1, "tp": 2, "ep": 2}
    assert at(found, f"{POOLS}.decode") == {"replicas": 2, "tp": 2}
    assert at(found, "requests.arrival") == "closed"
    assert at(found, "requests.input_tokens") == {"uniform": [512, 1024]}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--data-parallel-size 2", {"serving.replicas": 2, "serving.dp": None}),
        ("--quantization awq", {"serving.precision": "int4"}),
        ("--dtype half", {"serving.precision": "fp16"}),
        ("--kv-cache-dtype fp8_e4m3", {"serving.kv_precision": "fp8"}),
        ("--no-enable-chunked-prefill", {"serving.chunked_prefill": False}),
        ("-pp 2", {"serving.pp": 2}),
        ("--enable-expert-parallel", {"serving.ep": None}),
    ],
)
def test_an_option_of_vllm_is_read(tmp_path: Path, flags: str, expected: dict[str, Data]) -> None:
    found = written(tmp_path, f"vllm serve meta-llama/Llama-3.1-8B-Instruct {flags}").data

    assert {key: at(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("command", "tp"),
    [("vllm serve Qwen/Qwen3-8B --config {} -tp 8", 8), ("trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options {} --tp_size 8", 2)],
)
def test_an_option_file_beside_a_command_lies_below_it_unless_its_engine_says_otherwise(tmp_path: Path, command: str, tp: int) -> None:
    script, file = tmp_path / "serve.sh", tmp_path / "options.yaml"
    script.write_text(command.format(file), encoding="utf-8")
    file.write_text("tensor_parallel_size: 2\nmax_num_seqs: 64\n", encoding="utf-8")

    both, alone = (
        import_files(files, ImportOptions(cluster="hgx-h200", overrides=REQUESTS)) for files in ([str(script), str(file)], [str(script)])
    )

    assert (at(both.data, "serving.tp"), both.data["name"], both.files) == (tp, "serve", (str(script), str(file)))
    assert [[key.value for key in each.keys if key.how == "not_modelled"] for each in (both, alone)] == [[], [str(file)]]
    assert (str(file), "read") in [(key.value, key.how) for key in both.keys]


def test_pools_in_files_of_their_own_are_one_deployment(tmp_path: Path) -> None:
    files = [tmp_path / "decode.sh", tmp_path / "prefill.sh"]
    for path, own in zip(files, ("-tp 4", "-tp 2 --disable-overlap-schedule"), strict=True):
        path.write_text(f"python -m sglang.launch_server --model Qwen/Qwen3-8B --disaggregation-mode {path.stem} {own}", encoding="utf-8")
    asked = ImportOptions(cluster="hgx-h200", overrides=REQUESTS)

    (tmp_path / "other.yaml").write_text("tp-size: 8\nmodel-path: Qwen/Qwen3-8B\n", encoding="utf-8")

    both, alone, beside = (import_files([*map(str, each)], asked) for each in (files, files[:1], [*files, tmp_path / "other.yaml"]))

    assert beside.data == both.data
    assert at(both.data, POOLS) == {"prefill": {"replicas": 1, "tp": 2}, "decode": {"replicas": 1, "tp": 4}}
    assert at(both.data, "serving.asynchronous") is None
    assert [[key.key for key in each.keys if key.how == "not_modelled"] for each in (both, alone, beside)] == [
        ["prefill.--disable-overlap-schedule"],
        ["pool"],
        ["tp-size", "prefill.--disable-overlap-schedule"],
    ]


@pytest.mark.parametrize("names", ["context.sh decode.sh decode2.sh", "whole.sh decode2.sh"])
def test_files_of_pools_have_options_of_their_own_and_what_they_count_is_added(tmp_path: Path, names: str) -> None:
    context, decode = (
        f"trtllm-serve Qwen/Qwen3-8B --server_role {role} --extra_llm_api_options {file}\n"
        for role, file in (("CONTEXT", "ctx.yaml"), ("GENERATION", "gen.yaml"))
    )
    texts = {"context.sh": context, "decode.sh": f"#SBATCH --nodes=1\n{decode}", "decode2.sh": f"#SBATCH --nodes=2\n{decode}"}
    texts |= {"whole.sh": f"#SBATCH --nodes=1\n{context}{decode}", "gen.yaml": "tensor_parallel_size: 8\n"}
    texts |= {"ctx.yaml": "tensor_parallel_size: 4\ndisable_overlap_scheduler: true\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [str(tmp_path / name) for name in (*names.split(), "ctx.yaml", "gen.yaml")]

    found = import_files(files, ImportOptions(cluster="hgx-h200", overrides=REQUESTS))

    assert at(found.data, POOLS) == {"prefill": {"replicas": 1, "tp": 4}, "decode": {"replicas": 2, "tp": 8}}
    assert [key.value for key in found.keys if key.key == "sbatch.--nodes" and key.how == "read"] == [3]
    assert [key.key for key in found.keys if key.how == "not_modelled"] == ["prefill.disable_overlap_scheduler"]


def test_a_loss_of_the_prefill_pool_is_told_where_the_decode_pool_differs(tmp_path: Path) -> None:
    server = "python -m sglang.launch_server --model Qwen/Qwen3-8B --disable-overlap-schedule --disaggregation-mode "

    found = written(tmp_path, f"{server}prefill --tp 2 &\n{server}decode --tp 4 &\n")

    assert not [key for key in found.keys if key.how == "not_modelled"]


def test_data_parallelism_with_experts_is_of_attention(tmp_path: Path) -> None:
    found = written(tmp_path, "vllm serve Qwen/Qwen3-30B-A3B --data-parallel-size 4 --enable-expert-parallel").data

    assert at(found, "serving") == {"tp": 1, "dp": 4, "engine": "vllm", "ep": 4, "replicas": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cat > o.yml <<EOF\nkv_cache_config: {free_gpu_memory_fraction: 0.8}\nEOF\n"
            "trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options o.yml"
            " --kv_cache_free_gpu_memory_fraction 0.9",
            {"serving.memory_fraction": 0.8},
        ),
        (
            "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention"
            " --chunked-prefill-size 65536 --max-running-requests 1024",
            {"serving.dp": 8, "serving.max_batched_tokens": 8192, "serving.max_num_seqs": 128},
        ),
        (
            "sglang serve deepseek-ai/DeepSeek-V3 --tp 8 --attn-dp-size 8 --max-running-requests 1024",
            {"serving.dp": 8, "serving.tp": 1, "serving.replicas": 1, "serving.max_num_seqs": 128},
        ),
        ("vllm serve meta-llama/Llama-3.1-405B-Instruct", {"model": "llama3.1-405b", "serving.tp": 1}),
        (
            "python3 convert_checkpoint.py --model_dir /models/Llama-2-70b-chat-hf --output_dir ckpt --tp_size 4\n"
            "trtllm-build --checkpoint_dir ckpt --output_dir engine --max_batch_size 64 --max_num_tokens 4096\n",
            {"model": "llama2-70b", "serving.tp": 4, "serving.max_num_seqs": 64, "serving.max_batched_tokens": 4096},
        ),
        (
            "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --nnodes 9 --tp-size 72 --dp-size 72"
            " --enable-dp-attention --moe-a2a-backend deepep --ep-num-redundant-experts 32 --mem-fraction-static 0.83",
            {"serving.ep": 72, "serving.dp": 72, "serving.redundant_experts": 32, "serving.expert_exchange": "all_to_all"},
        ),
        (
            "export VLLM_ALL2ALL_BACKEND=deepep_low_latency\nvllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 16"
            " --enable-expert-parallel --enable-dbo",
            {"serving.dp": 16, "serving.expert_exchange": "all_to_all", "serving.two_batch_overlap": True},
        ),
        (
            "vllm serve Qwen/Qwen3-8B-FP8 --all2all-backend pplx --enable-dbo",
            {"serving.expert_exchange": None, "serving.two_batch_overlap": None},
        ),
        (
            "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --disaggregation-mode prefill --tp 8 --max-total-tokens 4096\n"
            "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --disaggregation-mode decode --tp 8 --ep 8"
            " --ep-num-redundant-experts 8 --max-total-tokens 8192",
            {"serving.kv_tokens": 8192, "serving.disaggregated.decode.redundant_experts": 8, "serving.redundant_experts": None},
        ),
        (
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --scheduler-recv-interval 30",
            {"serving.receive_interval": 30},
        ),
        ("vllm serve Qwen/Qwen3-8B --enforce-eager", {"serving.max_graph_tokens": 0}),
        ("vllm serve Qwen/Qwen3-8B --max-cudagraph-capture-size 2048", {"serving.max_graph_tokens": 2048}),
        ("vllm serve Qwen/Qwen3-8B --enforce-eager --max-cudagraph-capture-size 2048", {"serving.max_graph_tokens": 0}),
        ("vllm serve Qwen/Qwen3-8B --cudagraph-capture-sizes 1 2 64", {"serving.max_graph_tokens": 64}),
        ("vllm serve Qwen/Qwen3-8B -cc.cudagraph_mode=NONE", {"serving.max_graph_tokens": 0}),
        ("python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --cuda-graph-max-bs 64", {"serving.max_graph_tokens": 64}),
        (
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --disable-cuda-graph --cuda-graph-bs 1 2 64",
            {"serving.max_graph_tokens": 0},
        ),
        (
            "backend: pytorch\nmodel: deepseek-ai/DeepSeek-R1\ntp_size: 8\nep_size: 8\nbatch_wait_timeout_iters: 40\n"
            "cuda_graph_config: {enable_padding: true, batch_sizes: [1, 2, 384]}\n",
            {"serving.batch_wait": {"steps": 40, "budget_share": 0}, "serving.max_graph_tokens": 384},
        ),
        (
            "model: {path: deepseek-r1-fp4, container: 'vllm/vllm-openai:v0.18.0', precision: fp4}\n"
            "resources: {gpu_type: gb200, prefill_workers: 4, decode_workers: 1}\nbackend:\n  vllm_config:\n"
            "    prefill: {data-parallel-size: 4, enable-expert-parallel: true, enforce-eager: true}\n"
            "    decode: {data-parallel-size: 8, enable-expert-parallel: true, max-cudagraph-capture-size: 256}\n",
            {f"{POOLS}.prefill.replicas": 4, f"{POOLS}.decode.ep": 8, "serving.max_graph_tokens": 256, "serving.precision": "nvfp4"},
        ),
        ("backend: pytorch\nmodel: nvidia/DeepSeek-V3-NVFP4\ntp_size: 8\nep_size: 8\n", {"serving.precision": "nvfp4"}),
        (
            "backend: pytorch\nmodel: deepseek-ai/DeepSeek-R1\ntp_size: 8\nep_size: 8\nenable_attention_dp: true\n"
            "batch_wait_timeout_iters: 40\nbatch_wait_max_tokens_ratio: 0.8\n"
            "attention_dp_config: {enable_balance: true, batching_wait_iters: 0}\n",
            {"serving.batch_wait": None, "serving.rank_wait": {"steps": 50, "further_steps": 0}},
        ),
        (
            "backend: pytorch\nmodel: deepseek-ai/DeepSeek-R1\ntp_size: 8\nep_size: 8\n"
            "batch_wait_timeout_iters: 40\nbatch_wait_max_tokens_ratio: 0.8\nattention_dp_config: {enable_balance: true}\n",
            {"serving.batch_wait": {"steps": 40, "budget_share": 0.8}, "serving.rank_wait": None},
        ),
    ],
)
def test_a_server_is_read_as_its_engine_reads_it(tmp_path: Path, text: str, expected: dict[str, Data]) -> None:
    found = written(tmp_path, text).data

    assert {key: at(found, key) for key in expected} == expected


def test_what_is_not_modelled_of_a_pool_is_told_and_what_names_the_machine_has_an_effect(tmp_path: Path) -> None:
    text = (
        "model: {path: deepseek-r1-fp4, container: 'vllm/vllm-openai:v0.18.0', precision: fp4}\n"
        "resources: {gpu_type: gb200, prefill_workers: 4, decode_workers: 1}\nbackend:\n  vllm_config:\n"
        "    prefill: {data-parallel-size: 4, enforce-eager: true}\n    decode: {data-parallel-size: 8, enforce-eager: false}\n"
    )
    how = {key.key: key.how for key in written(tmp_path, text, "recipe.yaml").keys}

    assert how["backend.vllm_config.prefill.enforce-eager"] == "not_modelled"
    assert how["accelerators.product"] == "read"
    assert "resources.gpu_type" not in how


def test_workers_of_a_slurm_configuration_are_pools(tmp_path: Path) -> None:
    text = """
benchmark: {mode: e2e, concurrency_list: "16", input_length: 1024, output_length: 256}
hardware: {gpus_per_node: 8, num_ctx_servers: 2, num_gen_servers: 1}
environment: {model_path: Qwen/Qwen3-30B-A3B}
worker_config:
  ctx: {tensor_parallel_size: 4, moe_expert_parallel_size: 4, enable_attention_dp: false}
  gen: {tensor_parallel_size: 8, moe_expert_parallel_size: 8, enable_attention_dp: true}
"""
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")

    found = import_files([str(path)], ImportOptions(cluster="hgx-h200", overrides=("requests.count=64",))).data

    assert at(found, f"{POOLS}.prefill") == {"tp": 4, "ep": 4, "replicas": 2}
    assert at(found, f"{POOLS}.decode") == {"tp": 1, "ep": 8, "dp": 8, "replicas": 1}
    assert at(found, "requests.output_tokens") == 256


@pytest.mark.parametrize(
    ("image", "flags", "budget", "told"),
    [
        ("v0.6.3", "--max-model-len 16384", 16384, []),
        ("v0.6.3", "--max-model-len 1024", 2048, []),
        ("v0.6.3", "--max-model-len 65536", None, ["serving.chunked_prefill"]),
        ("v0.6.3", "--max-model-len 65536 --enable-chunked-prefill=false", 65536, []),
        ("v0.6.3", "--max-model-len 16384 --enable-chunked-prefill", None, []),
        ("v0.6.3", "--max-model-len 16384 --max-num-batched-tokens 32768", 32768, []),
        ("v0.8.5", "--max-model-len 16384", None, []),
        ("latest", "--max-model-len 16384", None, []),
    ],
)
def test_before_its_second_engine_vllm_has_the_budget_of_its_longest_request(
    tmp_path: Path, image: str, flags: str, budget: int | None, told: list[str]
) -> None:
    found = written(tmp_path, f"docker run --gpus all vllm/vllm-openai:{image} --model Qwen/Qwen3-8B {flags}\n")

    assert at(found.data, "serving.max_batched_tokens") == budget
    assert [key.key for key in found.keys if key.how == "not_modelled"] == told


def test_speculation_is_told_of_with_its_direction(tmp_path: Path) -> None:
    text = 'vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config \'{"method": "eagle3", "num_speculative_tokens": 3}\''

    lost = [key for key in written(tmp_path, text).keys if key.how == "not_modelled"]

    assert [(key.key, "too slow" in str(key.note)) for key in lost] == [("--speculative-config", True)]


def test_requests_are_asked_for_where_no_client_is() -> None:
    with pytest.raises(ScenarioError) as refusal:
        imported("kubernetes-vllm.yaml", set_=())

    assert all(f"-s {key}" in str(refusal.value) for key in ("requests.arrival", "requests.count", "requests.input_tokens"))


def test_variables_of_a_script_reach_the_files_that_it_writes() -> None:
    found = imported("trtllm-variables.sh", set_=()).data

    assert at(found, "serving") == {"tp": 1, "ep": 8, "engine": "tensorrt_llm", "dp": 8, "replicas": 1}
    assert at(found, "requests.input_tokens") == {"uniform": [800, 1000]}
    assert (at(found, "requests.count"), at(found, "requests.concurrency")) == (80, 8)


def test_a_degree_in_a_variable_that_nobody_sets_is_asked_for(tmp_path: Path) -> None:
    text = (FILES / "trtllm-variables.sh").read_text(encoding="utf-8").removeprefix("TP=8\n")

    with pytest.raises(ScenarioError, match=r"--tp_size \${?TP}?, which depends on a variable: -s serving\.tp="):
        written(tmp_path, text)


def test_pools_that_say_no_degree_have_one_accelerator(tmp_path: Path) -> None:
    server = 'vllm serve meta-llama/Llama-3.1-8B-Instruct --kv-transfer-config \'{"kv_role":"kv_'

    found = written(tmp_path, f"{server}producer\"}}' &\n{server}consumer\"}}' &\n").data

    assert at(found, "serving.disaggregated") == {"prefill": {"replicas": 1}, "decode": {"replicas": 1}}


def test_run_takes_a_deployment_and_plan_refuses_it() -> None:
    source = str(FILES / "kubernetes-vllm.yaml")
    overrides = ("cluster.node=hgx-h200", *REQUESTS)

    assert isinstance(open_job(source, overrides), ServingScenario)
    with pytest.raises(ScenarioError, match="is a serving deployment, not a training job"):
        open_scenario(source, overrides)


@pytest.mark.parametrize(
    "text",
    [
        "cat > x.yml <<E\ncuda_graph_config: null\nE\ntrtllm-serve Qwen/Qwen3-32B --tp_size 2 --config x.yml\n",
        """vllm serve Qwen/Qwen3-32B -tp 2 --compilation-config '{"cudagraph_mode": "NONE", "level": 3}'""",
        "vllm serve Qwen/Qwen3-32B -tp 2 -O0",
    ],
)
def test_graphs_that_are_off_are_off_however_that_is_written(tmp_path: Path, text: str) -> None:
    found = written(tmp_path, text)

    assert at(found.data, "serving.max_graph_tokens") == 0
    assert [key.key for key in found.keys if key.how == "unknown"] == []
