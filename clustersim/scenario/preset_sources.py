"""What a preset is made of, and where frameworks say what they do by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clustersim.documents.spots import Data


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where a default is written down."""

    title: str
    version: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key that a preset sets."""

    key: str
    """Dotted, from the top of the scenario."""
    value: Data
    reason: str
    source: Reference
    fixed: bool = False
    """True where another value would be another framework or another preset; else what the scenario says goes first."""
    where: tuple[str, tuple[Data, ...]] | None = None
    """Only where this key has one of these values; of several settings of one key, the first that applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A value that a preset does not stand for, where several others will do."""

    key: str
    value: Data
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What one framework does by default."""

    title: str
    stands_for: str
    settings: tuple[Setting, ...]
    refuses: tuple[Refusal, ...] = ()
    left_out: tuple[str, ...] = ()
    """What the framework does besides, and is not simulated."""


NO_SERVERS: Final = (
    Refusal(key="strategy.data_parallel.algorithm", value="parameter_server", reason="ranks add up their gradients among themselves"),
)

DP: Final = Reference(
    title="PyTorch, torch.nn.parallel.DataParallel and torch.nn.parallel.comm",
    version="2.5",
    url="https://github.com/pytorch/pytorch/blob/v2.5.0/torch/nn/parallel/comm.py",
)
DDP: Final = Reference(
    title="PyTorch, torch.nn.parallel.DistributedDataParallel",
    version="2.5",
    url="https://docs.pytorch.org/docs/2.5/generated/torch.nn.parallel.DistributedDataParallel.html",
)
REDUCER: Final = Reference(
    title="PyTorch, reducer.hpp: kDefaultFirstBucketBytes, kDefaultBucketBytesCap",
    version="2.5",
    url="https://github.com/pytorch/pytorch/blob/v2.5.0/torch/csrc/distributed/c10d/reducer.hpp",
)
AMP: Final = Reference(
    title="PyTorch, automatic mixed precision: torch.amp", version="2.5", url="https://docs.pytorch.org/docs/2.5/amp.html"
)
FSDP: Final = Reference(
    title="PyTorch, torch.distributed.fsdp.FullyShardedDataParallel", version="2.5", url="https://docs.pytorch.org/docs/2.5/fsdp.html"
)
FSDP_NOTES: Final = Reference(title="PyTorch, FSDP notes", version="2.5", url="https://docs.pytorch.org/docs/2.5/notes/fsdp.html")
FSDP_RUNTIME: Final = Reference(
    title="PyTorch, torch/distributed/fsdp/_runtime_utils.py: _post_forward_reshard",
    version="2.5",
    url="https://github.com/pytorch/pytorch/blob/v2.5.0/torch/distributed/fsdp/_runtime_utils.py",
)
DEEPSPEED: Final = Reference(
    title="DeepSpeed, configuration of ZeRO: deepspeed/runtime/zero/config.py",
    version="0.16",
    url="https://github.com/deepspeedai/DeepSpeed/blob/v0.16.0/deepspeed/runtime/zero/config.py",
)
DEEPSPEED_JSON: Final = Reference(
    title="DeepSpeed, configuration JSON: communication_data_type", version="0.16", url="https://www.deepspeed.ai/docs/config-json/"
)
DEEPSPEED_ENGINE: Final = Reference(
    title="DeepSpeed, deepspeed/runtime/engine.py: allreduce_gradients, no_sync",
    version="0.16",
    url="https://github.com/deepspeedai/DeepSpeed/blob/v0.16.0/deepspeed/runtime/engine.py",
)
HOROVOD: Final = Reference(
    title="Horovod, horovod/common/operations.cc; changelog of 0.21: 64 MB before",
    version="0.28",
    url="https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/operations.cc",
)
HOROVOD_OPTIMIZER: Final = Reference(
    title="Horovod, DistributedOptimizer: compression, backward_passes_per_step",
    version="0.28",
    url="https://horovod.readthedocs.io/en/v0.28.1/api.html",
)
TF_STRATEGY: Final = Reference(
    title="TensorFlow, tf.distribute.ParameterServerStrategy",
    version="2.13",
    url="https://www.tensorflow.org/versions/r2.13/api_docs/python/tf/distribute/experimental/ParameterServerStrategy",
)
TF_SETTER: Final = Reference(
    title="TensorFlow, tf.compat.v1.train.replica_device_setter",
    version="2.13",
    url="https://www.tensorflow.org/versions/r2.13/api_docs/python/tf/compat/v1/train/replica_device_setter",
)
TICTAC: Final = Reference(
    title="Hashemi, Abdu Jyothi and Campbell, TicTac: Accelerating Distributed Deep Learning with Communication Scheduling, MLSys 2019",
    version="arXiv v2",
    url="https://arxiv.org/abs/1803.03288",
)
MEMORY_FORMAT: Final = Reference(
    title="PyTorch tutorials, Channels Last Memory Format in PyTorch",
    version="2.5",
    url="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
)
CHECKPOINT: Final = Reference(
    title="PyTorch, torch.utils.checkpoint: set_checkpoint_early_stop",
    version="2.5",
    url="https://docs.pytorch.org/docs/2.5/checkpoint.html",
)
