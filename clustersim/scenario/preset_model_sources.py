"""Where frameworks that divide a model among ranks say what they do by default."""

from __future__ import annotations

from typing import Final

from clustersim.scenario.preset_sources import Reference

GPIPE: Final = Reference(
    title="Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, NeurIPS 2019, section 2",
    version="arXiv v5",
    url="https://arxiv.org/abs/1811.06965",
)
MEGATRON: Final = Reference(
    title="Megatron-LM, megatron/training/arguments.py",
    version="core 0.12",
    url="https://github.com/NVIDIA/Megatron-LM/blob/core_r0.12.0/megatron/training/arguments.py",
)
MEGATRON_DDP: Final = Reference(
    title="Megatron-LM, megatron/core/distributed/distributed_data_parallel.py",
    version="core 0.12",
    url="https://github.com/NVIDIA/Megatron-LM/blob/core_r0.12.0/megatron/core/distributed/distributed_data_parallel.py",
)
MEGATRON_SCHEDULES: Final = Reference(
    title="Megatron-LM, megatron/core/pipeline_parallel/schedules.py: get_forward_backward_func",
    version="core 0.12",
    url="https://github.com/NVIDIA/Megatron-LM/blob/core_r0.12.0/megatron/core/pipeline_parallel/schedules.py",
)
DEEPSPEED_PIPE: Final = Reference(
    title="DeepSpeed, deepspeed/runtime/pipe/engine.py: PipelineEngine",
    version="0.16",
    url="https://github.com/deepspeedai/DeepSpeed/blob/v0.16.0/deepspeed/runtime/pipe/engine.py",
)
DEEPSPEED_SCHEDULE: Final = Reference(
    title="DeepSpeed, deepspeed/runtime/pipe/schedule.py: TrainSchedule; issue 1110 says that it is 1F1B",
    version="0.16",
    url="https://github.com/deepspeedai/DeepSpeed/blob/v0.16.0/deepspeed/runtime/pipe/schedule.py",
)
MEGATRON_DEEPSPEED: Final = Reference(
    title="Megatron-DeepSpeed, megatron/arguments.py",
    version="main of 2024",
    url="https://github.com/deepspeedai/Megatron-DeepSpeed/blob/main/megatron/arguments.py",
)
GSPMD: Final = Reference(
    title="Xu et al., GSPMD: General and Scalable Parallelization for ML Computation Graphs, 2021, sections 3 to 5",
    version="arXiv v2",
    url="https://arxiv.org/abs/2105.04663",
)
MAXTEXT: Final = Reference(
    title="MaxText, layers/pipeline.py: vmap over stages, circular pipelines",
    version="main of 2025",
    url="https://github.com/AI-Hypercomputer/maxtext/blob/main/src/maxtext/layers/pipeline.py",
)
COLLECTIVE_MATMUL: Final = Reference(
    title="Wang et al., Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning Models",
    version="ASPLOS 2023",
    url="https://doi.org/10.1145/3567955.3567959",
)
COLOSSAL: Final = Reference(
    title="Colossal-AI, colossalai/booster/plugin/hybrid_parallel_plugin.py: HybridParallelPlugin",
    version="0.4",
    url="https://github.com/hpcaitech/ColossalAI/blob/v0.4.0/colossalai/booster/plugin/hybrid_parallel_plugin.py",
)
TORCHTITAN: Final = Reference(
    title="torchtitan, torchtitan/config/job_config.py",
    version="0.2",
    url="https://github.com/pytorch/torchtitan/blob/v0.2.0/torchtitan/config/job_config.py",
)
TORCHTITAN_PAPER: Final = Reference(
    title="Liang et al., TorchTitan: One-stop PyTorch native solution for production ready LLM pretraining, ICLR 2025, section 2",
    version="arXiv v3",
    url="https://arxiv.org/abs/2410.06511",
)
TORCHTITAN_8B: Final = Reference(
    title="torchtitan, torchtitan/models/llama3/train_configs/llama3_8b.toml",
    version="0.2",
    url="https://github.com/pytorch/torchtitan/blob/v0.2.0/torchtitan/models/llama3/train_configs/llama3_8b.toml",
)
PIPELINE_STAGE: Final = Reference(
    title="PyTorch, torch/distributed/pipelining/stage.py: backward_maybe_with_nosync",
    version="2.9",
    url="https://github.com/pytorch/pytorch/blob/v2.9.0/torch/distributed/pipelining/stage.py",
)
DEEPSEEK: Final = Reference(
    title="DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, sections 3.2 and 3.3",
    version="arXiv v2",
    url="https://arxiv.org/abs/2412.19437",
)
