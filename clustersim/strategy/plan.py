"""What is to be trained and how it is spread: checked, in SI units, ready to lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from clustersim.strategy.schedules.order import EQUAL_COSTS, PassCosts
from clustersim.strategy.schedules.written import WrittenSchedule
from clustersim.workload.layered import Layered
from clustersim.workload.routing import EVEN_LOAD, ExpertLoad
from clustersim.workload.shapes import AttentionKind, ContextKind
from clustersim.workload.transformer import Transformer

SHARDS_GRADIENTS: Final = 2
"""The zero_stage from which gradients are sharded, so that every micro-batch must reduce its own."""

SHARDS_PARAMETERS: Final = 3
"""The zero_stage that shards parameters too."""

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Recompute = Literal["none", "selective", "alternate", "full"]
RecomputeModule = Literal["core_attention", "norms", "activations", "latent_projections", "mlp", "shared_experts", "experts"]
"""Parts of a layer that selective recomputation can repeat by themselves."""
Dimension = Literal["tp", "cp", "ep", "dp", "pp"]
Assignment = Literal["key_ranges", "round_robin", "greedy"]
Priority = Literal["layers", "none"]
Optimizer = Literal["adam", "sgd", "momentum", "adafactor", "lamb"]
WirePrecision = Literal["same", "fp32", "fp16", "bf16", "fp8"]
"""In which numbers travel; ``same``: as they are kept."""
GatherUnit = Literal["layer", "tensor"]
OptimizerKernels = Literal["fused", "foreach", "loop"]
"""How an update is written: one kernel a pass over all tensors, one an operation over all tensors, or one an operation and tensor."""
ExpertDispatch = Literal["all_to_all", "per_node"]
"""How tokens reach their experts: each of a token's experts is sent a copy, or each node that holds some of them one copy."""
TensorOverlap = Literal["none", "weight_gradient", "gemm_chunks", "async_tp"]
"""Tensor-parallel collectives run beside nothing; beside gradients of the column-split layer that do not need them (Megatron since
2021-10); or also beside chunks of the products that they feed or drain (Transformer Engine). Asynchronous TP of PyTorch has the chunks
alone: what several column-split layers give is added up before it is scattered, and a sum is no product that could be cut."""
Place = Literal["accelerator", "host", "nvme"]
"""Where a part of the training state lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One optimizer step: its batch, its numbers, its kernels."""

    global_batch_size: int
    micro_batch_size: int
    seq_length: int
    precision: Precision
    optimizer: Optimizer
    attention: AttentionKind
    gradient_precision: Literal["fp32", "same"]
    """Precision in which gradients are accumulated and reduced; ``same`` is the training precision."""
    fused_gradient_accumulation: bool
    """True where the weight-gradient product adds into the fp32 buffer itself (Megatron since 2022)."""
    kernels: Literal["fused", "eager"]
    """Whether elementwise work is fused (Megatron, compiled) or one kernel an operation."""
    optimizer_kernels: OptimizerKernels | None = None
    """None: fused or foreach, as ``kernels`` is fused or eager."""
    blocking_launches: bool = False
    """True where the host waits for every kernel and collective before it issues the next one (CUDA_LAUNCH_BLOCKING)."""
    cuda_graphs: bool = False
    """True where the kernels of passes were captured, and are issued together."""
    scored_tokens: int | None = None
    """Tokens of a sequence that the output head scores, such as BERT's masked ones; None for all."""
    vocabulary_multiple: int | None = None
    """Words that a tensor-parallel rank has a multiple of, the vocabulary padded for it; None: 128 with tensor parallelism, else 1."""
    loss_metrics: int = 0
    """Further cross entropies of the same logits that are computed for metrics, without gradient."""
    fused_loss: bool = False
    """True where one kernel each way computes the cross entropy from the logits as they are (Apex, FlashAttention, Liger)."""
    fp8_parameters: bool = False
    """True where weights of fp8 products are kept in fp8 alone, without a copy in 16 bits (NeMo's fp8_params)."""
    grouped_experts: bool | Literal["fused"] = True
    """True where the products of a rank's experts run beside each other, and fused where one kernel takes them with all that lies around
    them; otherwise one expert follows the other."""
    elementwise_precision: Literal["same", "fp32"] = "same"
    """Of what transformers compute between matrix products: that of the products, or fp32, as mixed precision by casts leaves it."""
    clip_micro_batches: bool = False
    """True where the gradients of each micro-batch are clipped before they are added up, and not once a step."""
    channels_last: bool = True
    """True where images are stored pixel by pixel (NHWC); otherwise matrix units have them transposed."""
    loader_samples_per_s: float | None = None
    """What the data loader delivers for one accelerator; None where it never holds a step up."""


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

    algorithm: str
    """``auto``, the name of an algorithm of the communication library, or ``parameter_server``."""
    overlap: bool
    """True where buckets are reduced while the backward pass still runs."""
    bucket_bytes: float
    first_bucket_bytes: float | None = None
    """Of the bucket that is ready first, smaller so that reduction begins early; None for one like the others."""
    no_sync: bool = True
    """True where gradients of all micro-batches but the last are added up locally; False where each micro-batch reduces its own."""
    single_process: bool = False
    """One process drives all accelerators of a node, and the first of them keeps the parameters (PyTorch's DataParallel)."""
    gather_precision: WirePrecision = "same"
    """Of sharded parameters while they are gathered."""
    reduce_precision: WirePrecision = "same"
    """Of gradients while they are reduced."""
    service: ParameterService | None = None
    """For ``parameter_server``."""
    mode: Literal["sync", "async", "ssp"] = "sync"
    """With parameter servers: all workers step together; each at its own pace; or each at most ``staleness`` steps ahead of the slowest."""
    staleness: int = 0
    """Of ``ssp``, in steps."""
    backup_workers: int = 0
    """How many of the workers a synchronous update does not wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Over how many ranks ZeRO and FSDP spread the training state, and when parameters are gathered."""

    degree: int
    """Ranks that hold one copy together: all replicas, or a divisor of them (hybrid sharding), which then all-reduces between copies."""
    prefetch: int = 1
    """Layers that are gathered ahead of the one that computes; 0: each is waited for."""
    reshard_after_forward: bool = True
    """Zero stage 3: parameters are freed after the forward pass and gathered again; False keeps them until the backward pass is through."""
    keep_ends: bool = False
    """Embedding and head are kept so in any case, as PyTorch's FSDP keeps its root unit."""
    gather: GatherUnit = "layer"
    """What one call gathers: a layer, whose parameters lie flat in one tensor (FSDP), or each tensor by itself (DeepSpeed at first)."""
    expert_degree: int = 1
    """Ranks that hold one copy of an expert together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Where the parts of the training state live while they are not in use."""

    optimizer: Place = "accelerator"
    gradients: Place = "accelerator"
    parameters: Place = "accelerator"
    activations: Place = "accelerator"


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
    overlap_tp: TensorOverlap
    """What tensor-parallel collectives run beside."""
    placement: tuple[Dimension, ...]
    """Fastest-varying dimension first."""
    recompute_layers: int | None = None
    """How many layers of each model chunk full recomputation repeats, from the first; None: all."""
    recompute_modules: tuple[RecomputeModule, ...] = ("core_attention",)
    """What selective recomputation repeats."""
    recompute_stops_early: bool = False
    """True where full recomputation ends with the last tensor that the backward pass needs: without the last product of a layer."""
    shard_degree: int | None = None
    """None: all replicas."""
    prefetch: int = 1
    reshard_after_forward: bool = True
    keep_ends: bool = False
    gather: GatherUnit = "layer"
    offload: Offload = Offload()
    etp: int | None = None
    """Ranks that divide each expert among them; None: tp."""
    expert_load: ExpertLoad = EVEN_LOAD
    overlap_ep: bool = False
    """True where shared experts compute while rows are sent to routed ones and back."""
    dispatch_precision: WirePrecision = "same"
    """Of rows on their way to experts."""
    dispatch: ExpertDispatch = "all_to_all"
    domain_size: int = 8
    """Accelerators that a node, or several nodes of one scale-up domain, hold together."""
    context_parallel: ContextKind = "ring"
    """How the ranks of context parallelism attend over all of a sequence."""
    stage_layers: tuple[int, ...] | None = None
    """Layers of each part of the model, in its order; None: all alike."""
    optimizer_post_validation: bool = False
    """True where a stage updates before the norm of all gradients is known, and goes back in the rare step in which it should not have."""
    costs: PassCosts = EQUAL_COSTS
    """What a schedule that depends on them takes passes to cost."""
    written: WrittenSchedule | None = None
    """The schedule itself, where ``schedule`` names a file."""

    @property
    def expert_tp(self) -> int:
        """Ranks that divide each expert among them."""
        return self.tp if self.etp is None else self.etp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, those of experts aside: data and context parallelism together."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts: what expert parallelism leaves of a stage."""
        return self.dp * self.cp * self.tp // (self.ep * self.expert_tp)

    @property
    def reduces_gradients(self) -> bool:
        """Whether any parameters are held by more than one rank."""
        return max(self.replicas, self.expert_replicas) > 1

    @property
    def gathers_weights(self) -> bool:
        """Whether weights are put together before each pass: from the shards of others, or from where a lone rank keeps its own."""
        away = self.offload.parameters != "accelerator"
        return self.zero_stage == SHARDS_PARAMETERS and (self.sharding.degree > 1 or away)

    @property
    def sharding(self) -> Sharding:
        """How ZeRO and FSDP spread the training state; over one rank where they do not."""
        degree = 1 if self.zero_stage == 0 else self.shard_degree or self.replicas
        return Sharding(
            degree=degree,
            # The ranks that share a copy hold all experts together, each of them on as many ranks as there are for it.
            expert_degree=max(1, degree * self.expert_replicas // self.replicas),
            prefetch=self.prefetch,
            reshard_after_forward=self.reshard_after_forward,
            keep_ends=self.keep_ends,
            gather=self.gather,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that lowering needs besides the cluster."""

    model: Transformer | Layered
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
