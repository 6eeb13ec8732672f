"""Settings of one optimizer step, and of the reduction of its gradients."""

from __future__ import annotations

from math import fsum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, StrictBool

from clustersim.parallel.settings import Settings, Written, auto, setting
from clustersim.units.fields import MOST_GPUS, BucketBytes, Count, PositiveInt, PositiveRatio, SamplesPerSecond, mistake
from clustersim.workloads.adapters import JOINT, AdaptedLayer, FrozenPrecision
from clustersim.workloads.operators import GraphPart
from clustersim.workloads.shapes import AmaxGroup, AttentionKind, Documents, Scaling, largest_p90

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Optimizer = Literal["adam", "sgd", "momentum", "adafactor", "lamb", "muon"]

MomentPrecision = Literal["fp32", "bf16", "fp16", "fp8"]
OptimizerKernels = Literal["fused", "foreach", "loop"]
"""Kernels of an update: one kernel a pass over all tensors, one an operation over all tensors, or one an operation and tensor."""
Assignment = Literal["key_ranges", "round_robin", "greedy"]
"""Every tensor in even parts on all servers; or whole tensors, on one server after the other or on the one that has least."""
Priority = Literal["layers", "none"]
"""Pull the layers one after the other, in the order of the forward pass; or all concurrently."""
WirePrecision = Literal["same", "fp32", "fp16", "bf16", "fp8"]
"""Format on the wire; ``same``: the stored format."""

PARAMETER_SERVER: Final = "parameter_server"

# Slips in a number that must not fill the memory or take hours: each is a hundred times what anybody uses, or more.
Batch = Annotated[int, Field(strict=True, gt=0, le=1_000_000_000)]
Tokens = Annotated[int, Field(strict=True, gt=0, le=100_000_000)]
"""Longest sequence, in tokens."""
Losses = Annotated[int, Field(strict=True, ge=0, le=100)]
Layers = Annotated[int, Field(strict=True, ge=0, le=10_000)]
FewerSteps = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Backups = Annotated[int, Field(strict=True, ge=0, le=MOST_GPUS)]


WrittenGraphs = StrictBool | Annotated[list[GraphPart], Field(min_length=1)]


Graphs = bool | tuple[GraphPart, ...]
"""Whether graphs capture whole passes, or the parts of a layer that they capture."""


WrittenEnds = Annotated[list[Layers], Field(min_length=2, max_length=2)]


WrittenAdapted = Annotated[list[AdaptedLayer], Field(min_length=1)]


def _read_adapted(written: list[AdaptedLayer]) -> tuple[AdaptedLayer, ...]:
    for whole, parts in JOINT.items():
        twice = next((part for part in parts if part in written and whole in written), None)
        if twice is not None:
            raise mistake(f"{whole} is one adapter for {', '.join(parts)} together", f"leave out {whole} or {twice}")
    return tuple(dict.fromkeys(written))


WrittenDocuments = Tokens | dict[Literal["lognormal"], dict[Literal["mean", "p90"], Annotated[float, Field(gt=0, le=1e8)]]]


def _read_documents(written: WrittenDocuments) -> Documents:
    if isinstance(written, int):
        return Documents(written)
    given = written.get("lognormal", {})
    if len(given) < len(("mean", "p90")):
        raise mistake("lognormal lengths need a mean and a p90", "write {lognormal: {mean: 180, p90: 260}}")
    mean, p90 = given["mean"], given["p90"]
    most = largest_p90(mean)
    if not mean <= p90 <= most:
        raise mistake(f"no lognormal length has a mean of {mean:g} and a p90 of {p90:g}", f"give a p90 from {mean:g} to {most:.4g}")
    return Documents(mean, p90)


def _write_documents(documents: Documents) -> WrittenDocuments:
    return int(documents.mean) if documents.p90 is None else {"lognormal": {"mean": documents.mean, "p90": documents.p90}}


def _not_a_scaling(value: object) -> object:
    if value in ("fp4", "nvfp4"):
        raise mistake(f"{value} is a scaling of fp8", "write precision: fp8 and fp8_scaling: nvfp4")
    return value


class DataLoader(Settings, frozen=True):
    """Data loader, which reads, decodes and augments samples on the processors of a node."""

    samples_per_s: Annotated[SamplesPerSecond, Field(gt=0)] = Field(
        alias="rate",
        description="Samples that the processors of one node can read, decode and augment, such as `2500 samples/s`. The next batch is "
        "read during a step; a slower loader delays the step; default: never delays a step.",
    )


class BatchRamp(Settings, frozen=True):
    """Growth of the batch in the first part of a training, by equal increments that each last as many tokens."""

    start: Batch = Field(description="Sequences per step at the start of the training; the batch grows to `global_batch_size`.")
    increment: Batch = Field(description="Sequences by which the batch grows each time; each batch lasts equally many tokens.")
    tokens: Annotated[Count, Field(gt=0)] = Field(description="Tokens until the batch is full, such as `469B`.")

    def batches(self, full: int) -> range:
        """Return the batches before the full one."""
        return range(self.start, full, self.increment)

    def time_s(self, full: int, seq_length: int, first_s: float, full_s: float) -> float:
        """Return the time until the batch is full, in seconds; a step grows linearly from that of the first batch to that of the full."""
        batches, longer_s = self.batches(full), (full_s - first_s) / (full - self.start)
        tokens = self.tokens / len(batches)
        return fsum(tokens / (batch * seq_length) * (first_s + longer_s * (batch - self.start)) for batch in batches)


class Training(Settings, frozen=True):
    """One optimizer step: batch, precision, kernels."""

    global_batch_size: Batch = Field(description="Sequences in one optimizer step.")
    micro_batch_size: Batch = setting(1, "Sequences in one pass of a replica.")
    seq_length: Tokens = auto(
        "Tokens in a sequence; a model that is a list of layers gives its own; default: the positions of the model.", "transformer"
    )
    document_tokens: Annotated[Documents | None, Written(WrittenDocuments, _read_documents, _write_documents)] = setting(
        None,
        "Length of the documents that are packed into a sequence and attend only to themselves, in tokens: a number, or `{lognormal: "
        "{mean: 180, p90: 260}}`; longer ones are cut; default: one document per sequence.",
        "transformer",
    )
    precision: Annotated[Precision, BeforeValidator(_not_a_scaling)] = auto(
        "Precision of matrix products and activations; default: `bf16` where the accelerator has it, else `fp16`, else `fp32`."
    )
    optimizer: Optimizer = setting(
        "adam",
        "Optimizer; it decides the optimizer states and their memory. `muon`: orthogonalised momentum for the matrices of layers, Adam for "
        "the rest.",
    )
    moment_precision: MomentPrecision = setting(
        "fp32",
        "Format of the optimizer's moments. Formats below 32 bits need fused kernels on the accelerator, as in Megatron's precision-aware "
        "optimizer and 8-bit Adam.",
    )
    optimizer_kernels: OptimizerKernels = auto(
        "Kernels of the update: one per pass over all tensors (`fused`), one per operation (`foreach`), or one per operation and tensor "
        "(`loop`), which needs no temporary memory; default: `fused` or `foreach`, as `kernels`.",
        "update on the accelerator",
        "collective reduction",
        "several operations",
    )
    attention: AttentionKind = setting(
        "flash",
        "Attention kernel: `flash`, the best FlashAttention of the accelerator; `flash_1` to `flash_4`, one generation of it; `unfused`, "
        "scores are written to memory.",
        "transformer",
    )
    tokens: Count | None = setting(None, "Tokens of the whole training, for its total time; default: none.")
    batch_ramp: BatchRamp | None = setting(None, "Growth of the batch at the start of the training of `tokens`.")
    gradient_precision: Literal["fp32", "same"] = auto(
        "Precision in which gradients are accumulated and reduced; default: `fp32` below 32 bits, else `same`."
    )
    fused_gradient_accumulation: StrictBool = setting(True, "The weight-gradient product accumulates into the gradient buffer.")
    elementwise_precision: Literal["same", "fp32"] = setting(
        "same",
        "Precision of transformer operators between matrix products: `same` as the products, or `fp32`, if mixed precision casts only for "
        "the products.",
        "transformer",
    )
    clip_micro_batches: StrictBool = setting(False, "Clip the gradients of each micro-batch instead of those of the step.")
    kernels: Literal["fused", "eager"] = setting("fused", "Elementwise kernels: `fused`, or one per operation (`eager`).")
    launch_overhead: Annotated[PositiveRatio, Field(ge=0.01, le=100)] = setting(
        1.0,
        "Host time per kernel relative to the calibration; above 1 for frameworks that do more work around their kernels.",
    )
    blocking_launches: StrictBool = setting(
        False,
        "The host waits for each kernel and collective before it issues the next one (`CUDA_LAUNCH_BLOCKING=1`). Settings of overlap stay "
        "as they are.",
    )
    fill_uninitialized_memory: StrictBool = setting(
        False,
        "A kernel fills each new tensor before its result is written, as PyTorch's deterministic algorithms do with tensors of Transformer "
        "Engine (`--deterministic-mode` of Megatron-LM until September 2026).",
        "transformer",
    )
    cuda_graphs: Annotated[
        Graphs,
        Written(
            WrittenGraphs,
            lambda written: written if isinstance(written, bool) else tuple(dict.fromkeys(written)),
            lambda graphs: graphs if isinstance(graphs, bool) else list(graphs),
        ),
    ] = setting(
        False,
        "CUDA graphs, whose kernels do not wait for launches by the host: `true` captures whole passes; a list captures parts of a layer, "
        "such as `[attention, router]`, from `attention`, `mlp`, `router` (of experts, until the dispatch) and `experts`.",
        "captured parts",
    )
    scored_tokens: Tokens | None = setting(
        None, "Tokens per sequence that the output head scores, such as the masked ones of BERT; default: all."
    )
    vocabulary_multiple: Tokens | None = setting(
        None,
        "The vocabulary of each tensor-parallel rank is padded to a multiple of this number, as by `--make-vocab-size-divisible-by` of "
        "Megatron-LM; default: 128 with `tp` > 1, else 1.",
        "transformer",
    )
    loss_metrics: Losses = setting(0, "Additional cross entropies of the same logits, for metrics, without a gradient.", "transformer")
    fp8_scaling: Scaling = auto(
        "With `precision: fp8`, scales of operands: one per tensor, from past maxima (`delayed`) or its own maximum (`tensor`); one per "
        "`row`; one per `block` of 128 numbers; one per 32 numbers (`mx`, MXFP8, on Blackwell and CDNA 4); or one per 16 numbers of 4 bits "
        "(`nvfp4`, on Blackwell); default: the recipe of Transformer Engine: `mx` where it has it, `tensor` on chips of compute capability "
        "12, else `delayed`.",
        "fp8",
    )
    fp8_amax_group: AmaxGroup = setting(
        "stage",
        "With `fp8_scaling: delayed`, ranks that all-reduce maxima after every pass: all of a `stage` (Megatron), those of one replica "
        "(`tensor`: tensor and context parallelism, `tp_only_amax_red`), or `none` (`reduce_amax: false` of Transformer Engine).",
        "fp8",
        "delayed scaling",
        "stages of several ranks",
        "several processes",
    )
    bf16_layers: Annotated[tuple[int, int], Written(WrittenEnds, tuple, list)] = setting(
        (0, 0),
        "With `precision: fp8`, numbers of layers at the start and at the end that compute in 16 bits, such as `[1, 1]`.",
        "fp8",
        shown=[0, 0],
    )
    fp8_parameters: StrictBool = setting(
        False,
        "With `precision: fp8`, weights of products are stored only in fp8, with their transposes, and not also in 16 bits (NeMo's "
        "`fp8_params`).",
    )
    grouped_experts: StrictBool | Literal["fused"] = auto(
        "Products of a rank's experts: `true`, concurrent and issued one by one; `fused`, one kernel with the operators around them, and "
        "rows sorted during the exchange; `false`, one expert after the other; default: `true` with fused kernels.",
        "experts",
        "experts beside each other",
    )
    router_padding: StrictBool = setting(
        False,
        "With `precision: fp8`, the router pads the rows of each expert to a multiple of 16 or 32, which products need (Megatron-Core's "
        "`moe_router_padding_for_fp8`); otherwise rows are copied to padded places and back.",
        "experts",
        "fp8",
        "rows of experts beside each other",
    )
    fused_loss: StrictBool = setting(False, "One kernel per direction computes the cross entropy directly from the logits.")
    loss_gradient: Literal["copy", "in_place"] = setting(
        "copy",
        "Gradient of the logits: in its own tensor (`copy`, cross entropy of PyTorch and Apex), in place of the probabilities or logits "
        "(`in_place`, Megatron-LM, Transformer Engine).",
        "gradient of the logits",
    )
    channels_last: StrictBool = auto(
        "Images are stored pixel by pixel (NHWC), as matrix units need them; otherwise each convolution transposes them; default: true "
        "below 32 bits.",
        "images",
        "products below fp32",
    )
    lora_rank: PositiveInt | None = setting(
        None,
        "Rank of low-rank adapters (LoRA) beside linear layers. Only the adapters are trained; the weights of the model are frozen; "
        "default: none, all weights are trained.",
        "transformer",
    )
    lora_layers: Annotated[tuple[AdaptedLayer, ...], Written(WrittenAdapted, _read_adapted, list)] = setting(
        ("q", "k", "v", "output", "gate", "up", "down"),
        "Linear layers with an adapter, also in experts: `q`, `k`, `v`, `output`, `gate`, `up`, `down`, or one adapter for several layers, "
        "`qkv` and `gate_up`, as in Megatron.",
        "transformer",
        "adapters",
        shown=["q", "k", "v", "output", "gate", "up", "down"],
    )
    frozen_precision: FrozenPrecision = setting(
        "same",
        "Format of frozen weights of linear layers: `same` as trained ones, or `nf4`, 4 bits with scales (QLoRA), which are decompressed "
        "before each product.",
        "transformer",
        "adapters",
    )
    data_loader: DataLoader | None = setting(None, "Data loader of each node.")


class DataParallelSettings(Settings, frozen=True):
    """Reduction of gradients among replicas."""

    mode: Literal["sync", "async", "ssp"] = setting(
        "sync", "With parameter servers: `sync`; `async`, each worker at its own pace; `ssp`, within `staleness` steps of the slowest."
    )
    algorithm: Literal["auto", "ring", "tree", "halving_doubling", "hierarchical", "nvls", "nvls_tree", "sharp", "parameter_server"] = (
        setting(
            "auto",
            "Reduction of gradients: `auto`, the library's choice; an all-reduce by name (`ring`, `tree`, `halving_doubling`, "
            "`hierarchical`, `nvls`, `nvls_tree`, `sharp`; with a ZeRO stage only `ring` and `nvls`, which also scatter and gather); or "
            "`parameter_server`. An algorithm that the cluster cannot run is an error.",
            "replicas",
        )
    )
    overlap: StrictBool = setting(
        True, "Reduce or push buckets during the backward pass.", "replicas", "several processes", "several buckets"
    )
    bucket_bytes: BucketBytes = setting(
        25e6,
        "Gradient bytes that are reduced or pushed at once. Whole tensors fill a bucket, in the order of the backward pass.",
        "replicas",
        "buckets",
        alias="bucket",
        shown="25 MB",
    )
    servers: PositiveInt = auto(
        "Number of parameter servers. The settings of servers need `algorithm: parameter_server`, with `pp: 1` and `zero_stage: 0`; "
        "default: the number of nodes."
    )
    placement: Literal["dedicated", "colocated"] = auto(
        "`colocated`: on the hosts of the nodes, at most one per host, spread evenly; `dedicated`: on additional hosts with the "
        "processors, memory and adapters of a node; default: `colocated`."
    )
    assignment: Assignment = auto(
        "`key_ranges`: each tensor in equal parts on all servers. Whole tensors: `round_robin`, each on the next server, or `greedy`, each "
        "on the server with the least load; default: `key_ranges`.",
        "several servers",
    )
    priority: Priority = auto("`layers`: pull parameters in the order of the forward pass; `none`: all at once; default: `layers`.")
    reduce_in_node: StrictBool = auto(
        "The accelerators of a scale-up domain sum their gradients before they push, and pull once, so that a node is one worker; "
        "otherwise every replica is a worker; default: true with `mode: sync` and no `backup_workers`."
    )
    staleness: FewerSteps | None = setting(
        None, "With `mode: ssp`: steps that a worker may be ahead of the slowest when it begins a step; 0 keeps all in step.", "staleness"
    )
    backup_workers: Backups | None = setting(
        None, "With `mode: sync` and parameter servers: number of late gradients that an update does not wait for and drops; default: 0."
    )
    first_bucket_bytes: BucketBytes | None = setting(
        None,
        "Size of the first bucket that is reduced; default: as the others.",
        "replicas",
        "buckets in order",
        "collective reduction",
        "several processes",
        alias="first_bucket",
    )
    no_sync: StrictBool = auto(
        "Accumulate the gradients of all micro-batches locally and reduce once, with the last; default: true below `zero_stage: 2`, and "
        "with pipeline stages.",
        "replicas",
        "collective reduction",
        "several micro-batches",
    )
    single_process: StrictBool = setting(False, "One process drives all accelerators of one node, as PyTorch's DataParallel.")
    gather_precision: WirePrecision = setting(
        "same", "Precision in which sharded parameters are gathered, broadcast or pulled: `same` as stored.", "weights move"
    )
    reduce_precision: WirePrecision = setting("same", "Precision in which gradients are reduced or pushed: `same` as stored.", "replicas")


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
        """Whether parameters are stored and updated in one place: on servers, or on the first accelerator of a single process."""
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
