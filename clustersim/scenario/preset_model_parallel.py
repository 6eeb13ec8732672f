"""What frameworks that divide a model among ranks do by default, as keys of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from clustersim.scenario.preset_model_sources import (
    COLLECTIVE_MATMUL,
    DEEPSEEK,
    GPIPE,
    GSPMD,
    MAXTEXT,
    PIPELINE_STAGE,
    TORCHTITAN,
    TORCHTITAN_8B,
    TORCHTITAN_PAPER,
)
from clustersim.scenario.preset_parts import (
    NO_SYNC,
    OVERLAP,
    PLAIN,
    UNDIVIDED,
    eager,
    one_forward_one_backward,
    own_processes,
    refused,
    whole_model,
)
from clustersim.scenario.preset_sources import NO_SERVERS, Preset, Setting

_VECTORISED: Final = ("naive", "gpipe", "breadth_first")
_PYTORCH_SCHEDULES: Final = ("gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_v", "dualpipe_v")


_GPIPE: Final = Preset(
    title="GPipe",
    stands_for="GPipe: all micro-batches go forward and then all back, and a stage keeps little of them",
    refuses=NO_SERVERS,
    settings=(
        whole_model(GPIPE),
        own_processes(GPIPE),
        Setting(key="strategy.schedule", value="gpipe", fixed=True, source=GPIPE, reason="all forward passes, then all backward passes"),
        Setting(key="strategy.tp", value=1, fixed=True, source=GPIPE, reason="layers are not divided"),
        Setting(
            key="strategy.stage_layers",
            value="balanced",
            source=GPIPE,
            reason="stages are cut so that their estimated costs differ least",
        ),
        Setting(
            key="strategy.recompute",
            value="full",
            source=GPIPE,
            reason="re-materialization: a stage keeps its inputs, and repeats its forward passes",
        ),
        Setting(key=NO_SYNC, value=True, source=GPIPE, reason="gradients of all micro-batches are added up and applied at the end"),
        Setting(key=OVERLAP, value=False, source=GPIPE, reason="gradients are complete when the last backward pass has ended"),
    ),
    left_out=("inputs of layers inside a stage are kept too: full recomputation repeats layer by layer",),
)
_GSPMD: Final = Preset(
    title="GSPMD, XLA",
    stands_for="GSPMD: one program for all devices, in which the compiler of XLA divides every tensor and places the collectives",
    refuses=(
        *NO_SERVERS,
        *refused(_VECTORISED, "a pipeline is a loop over all stages at once, whose backward pass follows its forward pass"),
    ),
    settings=(
        own_processes(GSPMD),
        Setting(
            key="strategy.zero_stage",
            value=3,
            source=GSPMD,
            reason="weights are sharded over the data axis too, and gathered where they are used",
        ),
        Setting(key="strategy.sequence_parallel", value=True, source=GSPMD, reason="activations are sharded in every operation"),
        Setting(
            key="strategy.overlap_tp",
            value="gemm_chunks",
            source=COLLECTIVE_MATMUL,
            reason="collectives next to products are cut up and run beside them",
        ),
        Setting(key=OVERLAP, value=True, source=COLLECTIVE_MATMUL, reason="collectives are asynchronous, and scheduled beside computation"),
        Setting(
            key="strategy.schedule",
            value="naive",
            source=GSPMD,
            reason="without a pipeline each micro-batch goes forward and back by itself",
            where=UNDIVIDED,
        ),
        Setting(
            key="strategy.schedule",
            value="gpipe",
            source=GSPMD,
            reason="a shifting buffer moves micro-batches from stage to stage",
            where=PLAIN,
        ),
        Setting(
            key="strategy.schedule",
            value="breadth_first",
            source=MAXTEXT,
            reason="circular: all micro-batches go through one part of each stage, and then through the next",
        ),
        Setting(
            key="strategy.context_parallel",
            value="all_gather",
            source=GSPMD,
            reason="an operand that is needed whole is gathered",
        ),
        Setting(key="training.kernels", value="fused", source=GSPMD, reason="the compiler fuses elementwise work"),
    ),
    left_out=(
        "steps of a pipeline in which a stage has nothing to do compute all the same, on padding",
        "each turn of the loop waits for the slowest stage; here passes wait for what they need",
    ),
)
_TORCHTITAN: Final = Preset(
    title="torchtitan",
    stands_for="torchtitan: FSDP2, tensor parallelism with sequence parallelism, torch.distributed.pipelining",
    refuses=(*NO_SERVERS, *refused(_PYTORCH_SCHEDULES, "torch.distributed.pipelining does not have it; a CSV file may")),
    settings=(
        Setting(
            key="strategy.zero_stage",
            value=3,
            fixed=True,
            source=TORCHTITAN_PAPER,
            reason="FSDP2 shards parameters, gradients and optimizer state over all replicas",
        ),
        own_processes(TORCHTITAN_PAPER),
        Setting(
            key="strategy.reshard_after_forward",
            value=True,
            source=TORCHTITAN,
            reason="fsdp_reshard_after_forward is default",
            where=UNDIVIDED,
        ),
        Setting(
            key="strategy.reshard_after_forward",
            value=False,
            source=TORCHTITAN,
            reason="default keeps parameters between the micro-batches of a pipeline",
        ),
        Setting(key=NO_SYNC, value=False, source=TORCHTITAN_PAPER, reason="each backward pass reduces what it made", where=UNDIVIDED),
        Setting(key=NO_SYNC, value=True, source=PIPELINE_STAGE, reason="in a pipeline a stage reduces with its last backward pass only"),
        Setting(
            key="strategy.prefetch", value=1, source=TORCHTITAN_PAPER, reason="the next layer is gathered beside the one that computes"
        ),
        Setting(key=OVERLAP, value=True, source=TORCHTITAN_PAPER, reason="collectives run on streams of their own"),
        Setting(key="training.gradient_precision", value="fp32", source=TORCHTITAN, reason="mixed_precision_reduce is float32"),
        Setting(key="strategy.sequence_parallel", value=True, source=TORCHTITAN_PAPER, reason="tensor parallelism comes with it"),
        Setting(
            key="strategy.overlap_tp",
            value="none",
            source=TORCHTITAN,
            reason="enable_async_tensor_parallel is off; with compilation it is async_tp",
        ),
        *one_forward_one_backward(TORCHTITAN, "several stages a rank"),
        Setting(
            key="strategy.context_parallel", value="all_gather", source=TORCHTITAN, reason="context_parallel_rotate_method is allgather"
        ),
        Setting(
            key="strategy.recompute",
            value="alternate",
            source=TORCHTITAN_8B,
            reason="mode is selective with selective_ac_option op; with 2, the default, every second layer is repeated",
        ),
        *eager(TORCHTITAN),
    ),
    left_out=(
        "norm and head are not freed after the forward pass without a pipeline",
        "models with experts: their alternate recomputation is not there, and recompute has to be said",
    ),
)
_DEEPSEEK_V3: Final = Preset(
    title="DeepSeek-V3, HAI-LLM",
    stands_for="what the report of DeepSeek-V3 says: DualPipe, expert parallelism, products in 8 bits, no tensor parallelism",
    refuses=NO_SERVERS,
    settings=(
        own_processes(DEEPSEEK),
        Setting(key="strategy.tp", value=1, fixed=True, source=DEEPSEEK, reason="memory is saved so that no tensor parallelism is needed"),
        Setting(key="strategy.schedule", value="dualpipe", fixed=True, source=DEEPSEEK, reason="micro-batches come in at both ends"),
        Setting(key="strategy.zero_stage", value=1, source=DEEPSEEK, reason="ZeRO-1 among replicas"),
        Setting(
            key="strategy.stage_layers",
            value="balanced",
            source=DEEPSEEK,
            reason="61 layers on 16 stages, though the report does not say how many on which",
        ),
        Setting(key="training.precision", value="fp8", source=DEEPSEEK, reason="all products of linear layers are in 8 bits"),
        Setting(
            key="training.gradient_precision", value="fp32", source=DEEPSEEK, reason="master weights and gradients stay in higher precision"
        ),
        Setting(
            key="strategy.dispatch",
            value="per_node",
            source=DEEPSEEK,
            reason="a token goes once to a node, over InfiniBand, and on over NVLink",
        ),
        Setting(
            key="strategy.dispatch_precision",
            value="fp8",
            source=DEEPSEEK,
            reason="tokens are cast before they are sent, and come back in 16 bits",
            where=("training.precision", ("fp8",)),
        ),
        Setting(key="strategy.recompute", value="selective", source=DEEPSEEK, reason="some of a layer is made again"),
        Setting(
            key="strategy.recompute_modules",
            value=["norms", "latent_projections", "activations"],
            source=DEEPSEEK,
            reason="normalisations, up projections of latent attention, and results of SwiGLU",
            where=("strategy.recompute", ("selective",)),
        ),
        Setting(key=OVERLAP, value=True, source=DEEPSEEK, reason="communication runs beside computation"),
    ),
    left_out=(
        "moments of the optimizer in 16 bits; inputs of SwiGLU in 8 bits, and results of attention in 12",
        "communication takes 20 of 132 multiprocessors from computation",
        "a mean of past weights, on the hosts",
        "the table of the predicting module is that of the embedding, which is on the same rank",
    ),
)

MODEL_PARALLEL: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "gpipe": _GPIPE,
        "gspmd": _GSPMD,
        "torchtitan": _TORCHTITAN,
        "deepseek_v3": _DEEPSEEK_V3,
    }
)
"""Frameworks that divide a model among ranks."""
