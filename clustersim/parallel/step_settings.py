"""Settings of one optimizer step, and of the reduction of its gradients."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StrictBool

from clustersim.parallel.settings import Settings, auto, setting
from clustersim.units.fields import MOST_GPUS, Bytes, Count, PositiveInt, SamplesPerSecond
from clustersim.workloads.shapes import AttentionKind

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Optimizer = Literal["adam", "sgd", "momentum", "adafactor", "lamb"]
OptimizerKernels = Literal["fused", "foreach", "loop"]
"""Kernels of an update: one kernel a pass over all tensors, one an operation over all tensors, or one an operation and tensor."""
Assignment = Literal["key_ranges", "round_robin", "greedy"]
"""Every tensor in even parts on all servers; or whole tensors, on one server after the other or on the one that has least."""
Priority = Literal["layers", "none"]
"""Pull the layers one after the other, in the order in which the forward pass needs them; or all at once."""
WirePrecision = Literal["same", "fp32", "fp16", "bf16", "fp8"]
"""In which numbers travel; ``same``: as they are kept."""

PARAMETER_SERVER: Final = "parameter_server"

# Slips in a number that must not fill the memory or take hours: each is a hundred times what anybody uses, or more.
Batch = Annotated[int, Field(strict=True, gt=0, le=1_000_000_000)]
Tokens = Annotated[int, Field(strict=True, gt=0, le=100_000_000)]
"""Longest sequence, in tokens."""
Losses = Annotated[int, Field(strict=True, ge=0, le=100)]
FewerSteps = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Backups = Annotated[int, Field(strict=True, ge=0, le=MOST_GPUS)]


class DataLoader(Settings, frozen=True):
    """Data loader, which reads, decodes and augments samples on the processors of a node."""

    samples_per_s: Annotated[SamplesPerSecond, Field(gt=0)] = Field(alias="rate", description="What the data loader of one node delivers.")


class Training(Settings, frozen=True):
    """One optimizer step: batch, precision, kernels."""

    global_batch_size: Batch = Field(description="Sequences per optimizer step.")
    micro_batch_size: Batch = setting(1, "Sequences per pass of one data-parallel replica.")
    seq_length: Tokens = auto("Tokens per sequence; default: the positions of the model.", "transformer")
    precision: Precision = auto("Default: bf16 where the accelerator has it, else fp16, else fp32.")
    optimizer: Optimizer = setting("adam", "Optimizer, which decides its states and their memory.")
    optimizer_kernels: OptimizerKernels = auto(
        "Update in one kernel a pass, one an operation, or tensor by tensor; default: fused or foreach, as kernels.",
        "update on the accelerator",
    )
    attention: AttentionKind = setting(
        "flash", "FlashAttention, the best of the accelerator or of a generation; or scores that are written to memory.", "transformer"
    )
    tokens: Count | None = setting(None, "Total budget, for the time to train.")
    gradient_precision: Literal["fp32", "same"] = auto(
        "In which gradients are accumulated and reduced; default: fp32 below 32 bits, else the same."
    )
    fused_gradient_accumulation: StrictBool = setting(True, "The weight-gradient product adds into the gradient buffer itself.")
    elementwise_precision: Literal["same", "fp32"] = setting(
        "same", "Of what transformers compute between products: theirs, or fp32, as mixed precision by casts has it.", "transformer"
    )
    clip_micro_batches: StrictBool = setting(
        False, "Gradients of each micro-batch are clipped before they are added up, not those of the step."
    )
    kernels: Literal["fused", "eager"] = setting("fused", "Elementwise work fused, or one kernel an operation.")
    blocking_launches: StrictBool = setting(
        False, "The host waits for each kernel before it issues the next one, as with CUDA_LAUNCH_BLOCKING."
    )
    cuda_graphs: StrictBool = setting(
        False, "Kernels of passes were captured in graphs, so that nothing waits for the host to issue them one by one."
    )
    scored_tokens: Tokens | None = setting(
        None, "Tokens of a sequence that the output head scores, such as the masked ones of BERT; default: all."
    )
    vocabulary_multiple: Tokens | None = setting(
        None,
        "The vocabulary is padded until each tensor-parallel rank has a multiple of this; default: 128 with tp > 1, else 1.",
        "transformer",
    )
    loss_metrics: Losses = setting(
        0, "Further cross entropies of the same logits for metrics, without gradient; MosaicML's Composer has two."
    )
    fp8_parameters: StrictBool = setting(False, "With precision fp8, weights of products are kept in fp8 alone, without a copy in 16 bits.")
    grouped_experts: StrictBool | Literal["fused"] = auto(
        "All experts of a rank beside each other; fused: in one kernel, with all around them. Default: with fused kernels.", "experts"
    )
    fused_loss: StrictBool = setting(False, "One kernel each way computes the cross entropy from the logits as they are.")
    loss_gradient: Literal["copy", "in_place"] = setting(
        "copy", "Gradient of the logits in fp32: a tensor of its own, or in the place of the probabilities.", "transformer", "unfused loss"
    )
    channels_last: StrictBool = auto(
        "Images are stored pixel by pixel (NHWC), as matrix units take them; default: below 32 bits.", "images"
    )
    data_loader: DataLoader | None = setting(None, "Default: it never holds a step up.")


class DataParallelSettings(Settings, frozen=True):
    """Reduction of gradients among replicas."""

    mode: Literal["sync", "async", "ssp"] = setting(
        "sync", "When replicas exchange gradients: each step, at their own pace, or at most some steps apart."
    )
    algorithm: Literal["auto", "ring", "tree", "halving_doubling", "hierarchical", "nvls", "nvls_tree", "sharp", "parameter_server"] = (
        setting("auto", "All-reduce of the communication library, or parameter servers.", "replicas")
    )
    overlap: StrictBool = setting(
        True, "Reduce buckets while the backward pass still runs.", "replicas", "several processes", "several pushes"
    )
    bucket_bytes: Annotated[Bytes, Field(gt=0)] = setting(
        25e6, "Gradient bytes that are reduced at once.", "replicas", "buckets", alias="bucket"
    )
    servers: PositiveInt = auto("Parameter servers; default: as many as nodes.")
    placement: Literal["dedicated", "colocated"] = auto(
        "Parameter servers on hosts of their own or, as they are if left out, on those of the nodes."
    )
    assignment: Assignment = auto("Of parameters to servers; default: key_ranges.", "several servers")
    priority: Priority = auto("Pull layers as the forward pass needs them (default), or all at once.")
    reduce_in_node: StrictBool = auto(
        "Accelerators of a node add up before they push to parameter servers; default: true where all workers wait for all."
    )
    staleness: FewerSteps | None = setting(None, "For ssp: steps that a worker may be ahead of the slowest.", "staleness")
    backup_workers: Backups | None = setting(None, "Workers that a synchronous update does not wait for.")
    first_bucket_bytes: Annotated[Bytes, Field(gt=0)] | None = setting(
        None,
        "Bytes of the bucket that is ready first; default: as the others.",
        "replicas",
        "buckets",
        "collective reduction",
        alias="first_bucket",
    )
    no_sync: StrictBool = auto(
        "Only the last micro-batch reduces; default: true, but false with single_process, and from zero_stage 2 on with pp: 1.",
        "replicas",
        "collective reduction",
    )
    single_process: StrictBool = setting(False, "One process for all accelerators of a node, as PyTorch's DataParallel.")
    gather_precision: WirePrecision = setting("same", "Of parameters on the wire: gathered, broadcast or pulled.", "weights move")
    reduce_precision: WirePrecision = setting("same", "Of gradients on the wire.", "replicas")


class DataParallel(DataParallelSettings, frozen=True):
    """Reduction of gradients on the nodes of a cluster."""

    hosts: tuple[int, ...] = Field(default=(), exclude=True)
    """Hosts of parameter servers: the nodes' own come first, then dedicated ones."""

    @property
    def service(self) -> DataParallel | None:
        """The settings of parameter servers; None without any."""
        return self if self.hosts else None

    @property
    def central(self) -> bool:
        """Whether parameters are kept and updated in one place: on servers, or on the first accelerator of a single process."""
        return self.single_process or self.service is not None

    @property
    def own_pace(self) -> bool:
        """Whether workers need not wait for all others in every step."""
        return self.mode != "sync" or bool(self.backup_workers)

    @property
    def divides(self) -> bool:
        """Whether the program of a step depends on how replicas are divided.

        With one process for a node the root does other work than the rest; with parameter servers a push is one operation of all that
        push together.
        """
        return self.central or self.own_pace
