"""What is to be trained and how it is spread: checked, in SI units, ready to lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clustersim.workload.transformer import Transformer

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Recompute = Literal["none", "selective", "full"]
Dimension = Literal["tp", "cp", "ep", "dp", "pp"]
Assignment = Literal["key_ranges", "round_robin", "greedy"]
Priority = Literal["layers", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One optimizer step: its batch, its numbers, its kernels."""

    global_batch_size: int
    micro_batch_size: int
    seq_length: int
    precision: Precision
    optimizer: Literal["adam", "sgd", "momentum"]
    attention: Literal["flash", "unfused"]
    gradient_precision: Literal["fp32", "same"]
    """Precision in which gradients are accumulated and reduced; ``same`` is the training precision."""
    fused_gradient_accumulation: bool
    """True where the weight-gradient product adds into the fp32 buffer itself (Megatron since 2022)."""
    kernels: Literal["fused", "eager"]
    """Whether elementwise work is fused (Megatron, compiled) or one kernel an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterService:
    """Parameter servers: hosts that keep the parameters, and how workers reach them."""

    hosts: tuple[int, ...]
    """The nodes' own come first, then dedicated ones."""
    assignment: Assignment
    """Every tensor in even parts on all servers; or whole tensors, on one server after the other or on the one that has least."""
    priority: Priority
    """Pull the layers one after the other, in the order in which the forward pass needs them; or all at once."""
    reduce_in_node: bool
    """The accelerators of a node add up their gradients first, and each pushes a part of the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel:
    """How gradients meet."""

    mode: Literal["sync"]
    algorithm: str
    """``auto``, the name of an algorithm of the communication library, or ``parameter_server``."""
    overlap: bool
    """True where buckets are reduced while the backward pass still runs."""
    bucket_bytes: float
    service: ParameterService | None = None
    """For ``parameter_server``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How the model is divided among ranks; ``dp`` is resolved."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    sequence_parallel: bool
    schedule: str
    virtual_stages: int
    zero_stage: Literal[0, 1, 2, 3]
    recompute: Recompute
    data_parallel: DataParallel
    overlap_p2p: bool
    """True where sends and receives run beside computation; False where each pass waits for its sends."""
    overlap_tp: bool
    """True where the backward collective of a column-split layer runs beside its weight gradient (Megatron since 2021-10)."""
    placement: tuple[Dimension, ...]
    """Fastest-varying dimension first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that lowering needs besides the cluster."""

    model: Transformer
    training: Training
    strategy: Strategy

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches per data-parallel replica and step."""
        return self.training.global_batch_size // (self.strategy.dp * self.training.micro_batch_size)

    @property
    def n_ranks(self) -> int:
        """Ranks of the whole plan."""
        strategy = self.strategy
        return strategy.dp * strategy.tp * strategy.pp * strategy.cp
