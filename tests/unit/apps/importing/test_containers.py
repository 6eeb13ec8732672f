"""Servers in the YAML of Kubernetes, Helm, Docker Compose and SkyPilot, and in units of systemd."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Final

import pytest

from clustersim.apps.importing.entries import ImportOptions
from clustersim.apps.importing.importing import import_files
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from tests.unit.apps.importing.found import at
from tests.unit.apps.importing.test_imported_serving import REQUESTS, written
from tests.unit.apps.importing.test_jobs import MEGATRON

LWS: Final = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: decode}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
          - image: ghcr.io/llm-d/llm-d-cuda:v0.3.1
            command: [/bin/bash, -c]
            args:
              - exec vllm serve deepseek-ai/DeepSeek-R1 --enable-expert-parallel --data-parallel-size $((LWS_GROUP_SIZE * LOCAL))
            env: [{name: LOCAL, value: "8"}]
"""
LEADER: Final = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}
        containers:
          - command: [sglang, serve, deepseek-ai/DeepSeek-V3, --tp, "16", --node-rank, $(LWS_WORKER_INDEX)]
    workerTemplate:
      spec:
        containers:
          - command: [sglang, serve, deepseek-ai/DeepSeek-V3, --tp, "16", --node-rank, $(LWS_WORKER_INDEX)]
"""
RAY_SERVE: Final = """applications:
- args:
    llm_configs:
    - model_loading_config: {model_id: mine, model_source: Qwen/Qwen2.5-32B-Instruct}
      accelerator_type: H100
      deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 2}}
      engine_kwargs: {tensor_parallel_size: 4, max_model_len: 16384, enable_prefix_caching: true}
  import_path: ray.serve.llm:build_openai_app
"""
COMPOSE: Final = """services:
  vllm:
    image: vllm/vllm-openai:v0.10.1
    command: [--model, Qwen/Qwen3-8B]
    deploy: {replicas: 2}
"""


KSERVE: Final = """apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
spec:
  replicas: 1
  model: {uri: "pvc://models", name: deepseek-ai/DeepSeek-R1}
  parallelism: {data: 16, dataLocal: 8, expert: true, tensor: 1}
  template:
    containers:
      - name: main
        env: [{name: VLLM_ADDITIONAL_ARGS, value: "--gpu-memory-utilization 0.95"}]
  prefill:
    replicas: 2
    parallelism: {tensor: 8}
    template: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}}
"""
STACK: Final = """servingEngineSpec:
  modelSpec:
    - name: qwen
      repository: vllm/vllm-openai
      tag: v0.8.5
      modelURL: Qwen/Qwen2.5-7B-Instruct
      replicaCount: 3
      vllmConfig: {tensorParallelSize: 2, enablePrefixCaching: false, extraArgs: [--max-num-seqs, "64"]}
"""
STATEFUL: Final = """kind: StatefulSet
spec:
  replicas: 4
  template:
    spec:
      containers:
        - command: [/bin/bash, -c]
          args: ["sglang serve --model-path moonshotai/Kimi-K2-Instruct --tp-size 16 --nnodes 2 --node-rank $POD_INDEX"]
"""
TASK: Final = """envs: {MODEL: Qwen/Qwen3-8B}
resources: {accelerators: "H200:8"}
num_nodes: 2
run: |
  TP=$((SKYPILOT_NUM_GPUS_PER_NODE * SKYPILOT_NUM_NODES))
  python -m sglang.launch_server --model-path $MODEL --tp $TP --nnodes $SKYPILOT_NUM_NODES --node-rank $SKYPILOT_NODE_RANK
"""
STORM: Final = """kind: StormService
spec:
  roles:
    - name: serve
      replicas: 3
      podGroupSize: 2
      template:
        containers:
          - command: [sh, -c]
            args: [sglang serve --model-path Qwen/Qwen3-8B --tp-size 2 --nnodes 2]
"""
CLASSIC: Final = """kind: InferenceService
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama3, --model_id=meta-llama/Meta-Llama-3-8B-Instruct, --tensor-parallel-size=2]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            KSERVE,
            {
                "model": "deepseek-r1",
                "cluster.nodes": 4,
                "serving.memory_fraction": 0.95,
                "serving.disaggregated.decode": {"replicas": 1, "tp": 1, "dp": 16, "ep": 16},
                "serving.disaggregated.prefill": {"replicas": 2, "tp": 8},
            },
        ),
        (STACK, {"serving.replicas": 3, "serving.tp": 2, "serving.prefix_cache": False, "serving.max_num_seqs": 64}),
        (STATEFUL, {"serving.replicas": 2, "serving.tp": 16}),
        (TASK, {"model": "qwen3-8b", "serving.tp": 16, "cluster.nodes": 2}),
        (STORM, {"serving.replicas": 3, "serving.tp": 2}),
        (CLASSIC, {"model": "llama3-8b", "serving.tp": 2}),
        (CLASSIC.replace("predictor:", "predictor:\n    minReplicas: 3"), {"serving.replicas": 3}),
        (
            "trtllm-bench --model meta-llama/Llama-3.1-8B throughput --tp 2 --max_batch_size 64 --concurrency 32 --num_requests 96",
            {"requests.concurrency": 8, "serving.tp": 2, "serving.max_num_seqs": 64},
        ),
        (LWS, {"serving.dp": 16, "serving.ep": 16, "cluster.nodes": 2}),
        (LEADER, {"serving.replicas": 1, "serving.tp": 16, "cluster.nodes": 2}),
        (RAY_SERVE, {"model": "qwen2.5-32b", "serving.replicas": 2, "serving.tp": 4, "serving.prefix_cache": True}),
        (
            "sglang serve Qwen/Qwen3-8B --tp 2\npython -m sglang.benchmark.serving --dataset-name random --random-input 1024"
            " --random-output 1024 --random-range-ratio 1.0 --max-concurrency 8",
            {"serving.tp": 2, "serving.replicas": 1},
        ),
        (COMPOSE, {"serving.replicas": 2, "serving.engine": "vllm@0.10.1"}),
        (
            f"apiVersion: ray.io/v1\nkind: RayService\nspec:\n  serveConfigV2: |\n{indent(RAY_SERVE, '    ')}\n"
            "  rayClusterConfig: {headGroupSpec: {template: {spec: {containers: [{image: 'vllm/vllm-openai:v0.10.1'}]}}}}\n",
            {"model": "qwen2.5-32b", "serving.replicas": 2, "serving.tp": 4, "serving.engine": "vllm@0.10.1"},
        ),
        (
            '[Unit]\nDescription=a server\n[Service]\nEnvironment="TP=4" SEQS=32\n'
            "ExecStart=/opt/bin/vllm serve Qwen/Qwen3-8B \\\n  -tp ${TP} --max-num-seqs $SEQS\nRestart=always\n",
            {"model": "qwen3-8b", "serving.tp": 4, "serving.max_num_seqs": 32},
        ),
        (
            'FROM python:3.12 AS build\nCMD ["true"]\nFROM vllm/vllm-openai:v0.10.1\nENV TP=2\n'
            "HEALTHCHECK --interval=60s \\\n  CMD curl -f http://localhost:8000/health\n"
            'CMD ["--model", "Qwen/Qwen3-8B", \\\n     "--max-num-seqs", "32"]\n',
            {"model": "qwen3-8b", "serving.max_num_seqs": 32, "serving.engine": "vllm@0.10.1"},
        ),
        (
            "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.10.1\n    args: [Qwen/Qwen3-8B, -tp, '2']\n",
            {"model": "qwen3-8b", "serving.tp": 2, "serving.engine": "vllm@0.10.1"},
        ),
        (
            "# an image\nFROM nvidia/cuda\nENV TP=2\nENTRYPOINT vllm serve Qwen/Qwen3-8B \\\n  -tp $TP\n",
            {"model": "qwen3-8b", "serving.tp": 2},
        ),
        (
            "ARG VERSION=0.10.1\nFROM python AS build\nENV SEQS=64\nFROM vllm/vllm-openai:v${VERSION} AS base\nARG WHO=Qwen/Qwen3-8B\n"
            "ENV TP=2 \\\n  MODEL=$WHO\nFROM base\nENV SEQS -tp $TP --max-num-seqs  32\nENTRYPOINT vllm serve $MODEL $SEQS\n",
            {"model": "qwen3-8b", "serving.tp": 2, "serving.max_num_seqs": 32, "serving.engine": "vllm@0.10.1"},
        ),
    ],
)
def test_a_container_or_a_unit_is_read_as_its_command(tmp_path: Path, text: str, expected: dict[str, Data]) -> None:
    found = written(tmp_path, text).data

    assert {key: at(found, key) for key in expected} == expected


def test_slices_of_an_accelerator_that_a_pod_asks_for_are_told_of(tmp_path: Path) -> None:
    pod = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, Qwen/Qwen3-8B]\n    resources: {limits: %s}\n"

    found = written(tmp_path, pod % "{nvidia.com/mig-3g.40gb: 1}")

    assert [key.value for key in found.keys if key.how == "not_modelled"] == ["1 of nvidia.com/mig-3g.40gb"]


@pytest.mark.parametrize(
    ("machine", "node"), [("acceleratorType: NVIDIA_H100_80GB", "dgx-h100"), ("machineType: a3-megagpu-8g", "gcp-a3-mega")]
)
def test_the_machine_of_a_job_of_vertex_ai_is_read(tmp_path: Path, machine: str, node: str) -> None:
    path = tmp_path / "job.yaml"
    arguments = "--nnodes=2, --nproc_per_node=8, pretrain_gpt.py, " + ", ".join(f"'{word}'" for word in MEGATRON.split())
    path.write_text(
        f"workerPoolSpecs:\n- machineSpec: {{{machine}}}\n  containerSpec:\n    command: [torchrun, {arguments}]\n", encoding="utf-8"
    )

    found = import_files([str(path)], ImportOptions()).data

    assert (at(found, "cluster.node"), at(found, "cluster.nodes")) == (node, 2)


def test_the_nodes_that_pods_ask_for_name_the_accelerators(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(KSERVE, encoding="utf-8")

    found = import_files([str(path)], ImportOptions(overrides=REQUESTS)).data

    assert at(found, "cluster.node") == "hgx-h200"


@pytest.mark.parametrize("command", ["[sleep, infinity]", "[bash, -c, 'exit 0']"])
def test_the_image_of_a_server_that_a_container_does_not_start_is_no_server(tmp_path: Path, command: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    command: {command}\n", encoding="utf-8"
    )

    with pytest.raises(ScenarioError, match="no command of a server is in it"):
        import_files([str(path)], ImportOptions())
