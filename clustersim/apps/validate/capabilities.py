"""Capabilities that a run makes use of: the groups by which errors are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from clustersim.apps.run.intervals import SHORT_S
from clustersim.apps.run.result import Result
from clustersim.parallel.shard import local_model
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import SHARDS_PARAMETERS, Strategy
from clustersim.workloads.model import Model
from clustersim.workloads.operators import Convolution

LONG_TOKENS: Final = 16384
"""A sequence is long from here on."""
HOST_BOUND_FRACTION: Final = 0.1
"""Share of the step from which on it counts as waiting for the host."""
MANY_ACCELERATORS: Final = (64, 512)
SHORT: Final = "steps below 0.5 s"

EXPERTS: Final = "experts"
ONE_NODE: Final = "one node"
MANY_NODES: Final = "many nodes"
NOT_MEASURED: Final = ("related_calibration", "borrowed_calibration")
"""Codes of flags that say that the accelerator itself was not calibrated."""

CAPABILITIES: Final = (
    "dense",
    EXPERTS,
    "convolutional",
    "parameter servers",
    ONE_NODE,
    MANY_NODES,
    "data parallel",
    "sharded states (ZeRO 1, 2)",
    "fully sharded (ZeRO 3, FSDP)",
    "tensor parallel",
    "sequence parallel",
    "pipeline",
    "interleaved pipeline",
    "context parallel",
    "expert parallel",
    "recomputation",
    "fp8",
    "fp16 or bf16",
    "fp32 or tf32",
    "long sequences",
    SHORT,
    "waits for the host",
    *(f"more than {n} accelerators" for n in MANY_ACCELERATORS),
    "measured accelerator",
    "accelerator not measured",
)
"""All but the generations of accelerators, in the order in which they are reported."""


def capabilities_of(result: Result) -> tuple[str, ...]:
    """Return what a run makes use of, in the order of ``CAPABILITIES``, and last the generation of its accelerators."""
    built = result.built
    used = {
        _family(built.plan.model, built.plan.training, built.plan.strategy),
        ONE_NODE if len(built.nodes) == 1 else MANY_NODES,
        ("accelerator not measured" if any(flag.code in NOT_MEASURED for flag in result.flags) else "measured accelerator"),
        *(f"more than {n} accelerators" for n in MANY_ACCELERATORS if result.metrics.gpus > n),
    }
    used.update(_of_settings(built.plan.strategy, built.plan.training))
    if result.metrics.breakdown_s.host >= HOST_BOUND_FRACTION * result.step_time_s:
        used.add("waits for the host")
    if result.step_time_s < SHORT_S:
        used.add(SHORT)
    return (*(name for name in CAPABILITIES if name in used), built.cluster.node.accelerator.generation.title())


def _family(model: Model, training: Training, strategy: Strategy) -> str:
    local = local_model(model, training, strategy)
    if strategy.data_parallel.service is not None:
        return "parameter servers"
    if local.model.experts is not None:
        return EXPERTS
    runs = local.runs(range(local.model.n_layers))
    kernels = (kernel for operators, _ in runs for operator in operators for kernel in operator.kernels("forward"))
    return "convolutional" if any(isinstance(kernel, Convolution) for kernel in kernels) else "dense"


def _of_settings(strategy: Strategy, training: Training) -> Iterator[str]:
    uses = {
        "data parallel": strategy.dp > 1,
        "sharded states (ZeRO 1, 2)": 0 < strategy.zero_stage < SHARDS_PARAMETERS,
        "fully sharded (ZeRO 3, FSDP)": strategy.zero_stage >= SHARDS_PARAMETERS,
        "tensor parallel": strategy.tp > 1,
        "sequence parallel": strategy.tp > 1 and strategy.sequence_parallel,
        "pipeline": strategy.pp > 1,
        "interleaved pipeline": strategy.pp > 1 and strategy.virtual_stages > 1,
        "context parallel": strategy.cp > 1,
        "expert parallel": strategy.ep > 1,
        "recomputation": strategy.recompute != "none",
        "fp8": training.precision == "fp8",
        "fp16 or bf16": training.precision in ("fp16", "bf16"),
        "fp32 or tf32": training.precision in ("fp32", "tf32"),
        "long sequences": training.seq_length >= LONG_TOKENS,
    }
    return (name for name, used in uses.items() if used)
