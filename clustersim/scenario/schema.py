"""The scenario file as pydantic models: which keys there are, and what each may hold.

None means "left out" throughout; the build fills it in.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StrictBool, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from clustersim.documents.check import choices_hint
from clustersim.hardware.schema import NodeChange
from clustersim.scenario.cost import CostSpec
from clustersim.scenario.jitter import JitterField
from clustersim.scenario.load_amount import LoadAmount
from clustersim.scenario.node_groups import NodeGroups
from clustersim.scenario.number_list import Numbers
from clustersim.scenario.reliability import ReliabilitySpec
from clustersim.scenario.stragglers import StragglerSpec
from clustersim.strategy.plan import (
    Assignment,
    Dimension,
    ExpertDispatch,
    GatherUnit,
    Optimizer,
    OptimizerKernels,
    Precision,
    Priority,
    Recompute,
    RecomputeModule,
    TensorOverlap,
    WirePrecision,
)
from clustersim.strategy.schedules import SCHEDULES as SCHEDULE_TABLE
from clustersim.units.fields import (
    MOST_GPUS,
    MOST_RATIO,
    Bytes,
    BytesPerSecond,
    Count,
    Degree,
    NonNegativeInt,
    PositiveInt,
    SamplesPerSecond,
    Seconds,
)
from clustersim.workload.shapes import AttentionKind, ContextKind

SCHEDULES: Final = tuple(SCHEDULE_TABLE)
EXPERT_LOADS: Final = ("balanced", "zipf", "dirichlet")
DIMENSIONS: Final[tuple[Dimension, ...]] = ("tp", "cp", "ep", "dp", "pp")
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def _name_or_file(value: str, names: tuple[str, ...], suffix: str) -> str:
    if value in names or value.endswith(suffix):
        return value
    raise _mistake(f"'{value}' is not one of {', '.join(names)} or a {suffix} file", choices_hint(value, names))


def _check_schedule(value: str) -> str:
    return _name_or_file(value, SCHEDULES, ".csv")


def _check_expert_load(value: str) -> str:
    return _name_or_file(value, EXPERT_LOADS, ".csv")


def _check_placement(value: Literal["auto"] | list[Dimension]) -> Literal["auto"] | list[Dimension]:
    if value != "auto" and sorted(value) != sorted(DIMENSIONS):
        raise _mistake("the placement does not name each of tp, cp, ep, dp and pp once", "such as [tp, cp, ep, dp, pp]")
    return value


def _check_some(value: list[str]) -> list[str]:
    if not value:
        raise _mistake("no link is named", "write such as [leaf0/up] or ['leaf*/down']")
    return value


def _refuse_boolean(value: object) -> object:
    # To Python `true` is 1, and a choice of numbers would take it.
    if isinstance(value, bool):
        raise _mistake(f"{str(value).lower()} is not a number", "write a number")
    return value


def _mistake(message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("scenario", "{message}", {"message": message, "hint": hint})


def _choice_or_file(names: tuple[str, ...], example: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, {"type": "string", "pattern": r"\.csv$", "examples": [example]}]})


# Slips in a number that must not fill the memory or take hours: each is a hundred times what anybody uses, or more.
Batch = Annotated[int, Field(strict=True, gt=0, le=1_000_000_000)]
Tokens = Annotated[int, Field(strict=True, gt=0, le=100_000_000)]
"""Longest sequence, in tokens."""
Chunks = Annotated[int, Field(strict=True, gt=0, le=10_000)]
"""Chunks of layers: a model has no more layers."""
Steps = Annotated[int, Field(strict=True, gt=0, le=1_000_000)]
FewerSteps = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Ahead = Annotated[int, Field(strict=True, ge=0, le=10_000)]
Backups = Annotated[int, Field(strict=True, ge=0, le=MOST_GPUS)]
Fraction = Annotated[float, Field(strict=True, le=MOST_RATIO, allow_inf_nan=False)]
Losses = Annotated[int, Field(strict=True, ge=0, le=100)]


class Part(BaseModel):
    """A mapping of the scenario in which unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataLoaderSpec(Part):
    """What reads, decodes and augments samples on the processors of a node."""

    rate: Annotated[SamplesPerSecond, Field(gt=0)] = Field(description="What the data loader of one node delivers.")


class TrainingSpec(Part):
    """One optimizer step: batch, precision, kernels."""

    global_batch_size: Batch = Field(description="Sequences per optimizer step.")
    micro_batch_size: Batch = Field(default=1, description="Sequences per pass of one data-parallel replica.")
    seq_length: Tokens | None = Field(default=None, description="Tokens per sequence; default: the positions of the model.")
    precision: Precision | None = Field(default=None, description="Default: bf16 where the accelerator has it, else fp16, else fp32.")
    optimizer: Optimizer = "adam"
    optimizer_kernels: OptimizerKernels | None = Field(
        default=None,
        description="Update in one kernel a pass, one an operation, or tensor by tensor; default: fused or foreach, as kernels.",
    )
    attention: AttentionKind = Field(
        default="flash", description="FlashAttention, the best of the accelerator or of a generation; or scores that are written to memory."
    )
    tokens: Count | None = Field(default=None, description="Total budget, for the time to train.")
    gradient_precision: Literal["fp32", "same"] | None = Field(
        default=None, description="In which gradients are accumulated and reduced; default: fp32 below 32 bits, else the same."
    )
    fused_gradient_accumulation: StrictBool = Field(
        default=True, description="The weight-gradient product adds into the gradient buffer itself."
    )
    elementwise_precision: Literal["same", "fp32"] = Field(
        default="same", description="Of what transformers compute between products: theirs, or fp32, as mixed precision by casts has it."
    )
    clip_micro_batches: StrictBool = Field(
        default=False, description="Gradients of each micro-batch are clipped before they are added up, not those of the step."
    )
    kernels: Literal["fused", "eager"] = Field(default="fused", description="Elementwise work fused, or one kernel an operation.")
    blocking_launches: StrictBool = Field(
        default=False, description="The host waits for each kernel before it issues the next one, as with CUDA_LAUNCH_BLOCKING."
    )
    cuda_graphs: StrictBool = Field(
        default=False, description="Kernels of passes were captured in graphs, so that nothing waits for the host to issue them one by one."
    )
    scored_tokens: Tokens | None = Field(
        default=None, description="Tokens of a sequence that the output head scores, such as the masked ones of BERT; default: all."
    )
    vocabulary_multiple: Tokens | None = Field(
        default=None,
        description="The vocabulary is padded until each tensor-parallel rank has a multiple of this; default: 128 with tp > 1, else 1.",
    )
    loss_metrics: Losses = Field(
        default=0, description="Further cross entropies of the same logits for metrics, without gradient; MosaicML's Composer has two."
    )
    fp8_parameters: StrictBool = Field(
        default=False, description="With precision fp8, weights of products are kept in fp8 alone, without a copy in 16 bits."
    )
    grouped_experts: StrictBool | Literal["fused"] | None = Field(
        default=None,
        description="All experts of a rank beside each other; fused: in one kernel, with all around them. Default: with fused kernels.",
    )
    fused_loss: StrictBool = Field(default=False, description="One kernel each way computes the cross entropy from the logits as they are.")
    channels_last: StrictBool | None = Field(
        default=None, description="Images are stored pixel by pixel (NHWC), as matrix units take them; default: below 32 bits."
    )
    data_loader: DataLoaderSpec | None = Field(default=None, description="Default: it never holds a step up.")


class DataParallelSpec(Part):
    """How gradients meet."""

    mode: Literal["sync", "async", "ssp"] = "sync"
    algorithm: Literal["auto", "ring", "tree", "halving_doubling", "hierarchical", "nvls", "nvls_tree", "sharp", "parameter_server"] = (
        Field(default="auto", description="All-reduce of the communication library, or parameter servers.")
    )
    overlap: StrictBool = Field(default=True, description="Reduce buckets while the backward pass still runs.")
    bucket: Bytes = Field(default=25e6, gt=0, description="Gradient bytes that are reduced at once.")
    servers: PositiveInt | None = Field(default=None, description="Parameter servers; default: as many as nodes.")
    placement: Literal["dedicated", "colocated"] | None = Field(
        default=None, description="Parameter servers on hosts of their own or, as they are if left out, on those of the nodes."
    )
    assignment: Assignment | None = Field(default=None, description="Of parameters to servers; default: key_ranges.")
    priority: Priority | None = Field(default=None, description="Pull layers as the forward pass needs them (default), or all at once.")
    reduce_in_node: StrictBool | None = Field(
        default=None,
        description="Accelerators of a node add up before they push to parameter servers; default: true where all workers wait for all.",
    )
    staleness: FewerSteps | None = Field(default=None, description="For ssp: steps that a worker may be ahead of the slowest.")
    backup_workers: Backups | None = Field(default=None, description="Workers that a synchronous update does not wait for.")
    first_bucket: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="Bytes of the bucket that is ready first; default: as the others."
    )
    no_sync: StrictBool | None = Field(
        default=None,
        description="Only the last micro-batch reduces; default: true, but false with single_process, and from zero_stage 2 on with pp: 1.",
    )
    single_process: StrictBool = Field(default=False, description="One process for all accelerators of a node, as PyTorch's DataParallel.")
    gather_precision: WirePrecision = Field(default="same", description="Of parameters on the wire: gathered, broadcast or pulled.")
    reduce_precision: WirePrecision = Field(default="same", description="Of gradients on the wire.")


class StrategySpec(Part):
    """How the model is divided among ranks."""

    dp: Literal["auto"] | Degree = Field(default="auto", description="Data-parallel replicas; auto: GPUs / (tp * pp * cp).")
    tp: Degree = 1
    pp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    sequence_parallel: StrictBool | None = Field(default=None, description="Default: true with tp > 1.")
    schedule: Annotated[str, AfterValidator(_check_schedule), _choice_or_file(SCHEDULES, "schedule.csv")] = "1f1b"
    virtual_stages: Chunks | None = Field(
        default=None,
        description="Model chunks per stage: at least 2 for interleaved_1f1b and breadth_first; default: as the schedule has it.",
    )
    stage_layers: Literal["even", "balanced"] | list[NonNegativeInt] = Field(
        default="even",
        description="Layers of each model chunk: all alike, by time with embedding and logits, or as listed in the model's order.",
    )
    optimizer_post_validation: StrictBool | None = Field(
        default=None, description="A stage updates before the norm of all gradients is known, which is checked later; default: with zb_*."
    )
    zero_stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(_refuse_boolean)] = 0
    recompute: Recompute = "none"
    recompute_layers: Chunks | None = Field(
        default=None, description="Layers of each model chunk that full recomputation repeats, as Megatron's block method; default: all."
    )
    recompute_modules: Annotated[list[RecomputeModule], Field(min_length=1)] | None = Field(
        default=None, description="What selective recomputation repeats of a layer; default: [core_attention]."
    )
    recompute_stops_early: StrictBool = Field(
        default=False, description="Full recomputation leaves out the last product of a layer, which nothing needs (PyTorch since 2.1)."
    )
    data_parallel: DataParallelSpec = DataParallelSpec()
    overlap_p2p: StrictBool | None = Field(
        default=None, description="Sends and receives run beside computation; default: true but for naive, gpipe and 1f1b."
    )
    overlap_tp: TensorOverlap | StrictBool = Field(
        default="weight_gradient",
        description="Tensor-parallel collectives run beside the gradients of column-split layers, beside chunks of all products too"
        " (async_tp: of the products alone), or beside nothing; true and false stand for weight_gradient and none.",
    )
    shard_degree: Literal["auto"] | Degree = Field(default="auto", description="Ranks over which ZeRO shards.")
    gather: GatherUnit = Field(
        default="layer", description="zero_stage 3: one gather call for each layer (flat units), or for each tensor."
    )
    prefetch: Ahead = Field(default=1, description="Layers whose parameters are gathered ahead; 0: each is waited for.")
    reshard_after_forward: StrictBool = Field(
        default=True, description="zero_stage 3: free parameters after the forward pass and gather them again; false keeps them."
    )
    keep_ends: StrictBool = Field(
        default=False, description="zero_stage 3: embedding and head stay whole until the backward pass is through, as FSDP's root unit."
    )
    preset: str | None = Field(default=None, description="Defaults of a framework; see `clustersim show presets`.")
    offload: list[Literal["optimizer", "gradients", "parameters", "activations"] | dict[Literal["to"], Literal["host", "nvme"]]] = []
    etp: Degree | None = Field(default=None, description="Ranks that divide each expert among them; default: tp.")
    expert_load: Annotated[str, AfterValidator(_check_expert_load), _choice_or_file(EXPERT_LOADS, "load.csv")] = "balanced"
    expert_skew: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] | None = Field(
        default=None, description="Exponent of zipf, or concentration of dirichlet; default: 1."
    )
    expert_capacity: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = Field(
        default=None, description="An expert takes at most so many times the mean and the rest is dropped; default: it takes all."
    )
    dispatch: ExpertDispatch = Field(
        default="all_to_all", description="Send a token to each of its experts, or once to each node that holds some of them."
    )
    overlap_ep: StrictBool = Field(default=False, description="Shared experts compute while tokens travel to routed ones and back.")
    dispatch_precision: WirePrecision = Field(default="same", description="Of tokens on their way to experts; they come back as they are.")
    context_parallel: ContextKind = Field(
        default="ring", description="Pass keys and values around, gather them, or exchange parts of sequences for heads (ulysses)."
    )
    placement: Annotated[Literal["auto"] | list[Dimension], AfterValidator(_check_placement)] = Field(
        default_factory=lambda: list(DIMENSIONS), description="Fastest-varying dimension first."
    )


class LinkSpec(Part):
    """What is different about the links between two parts of the cluster."""

    between: tuple[str, str] = Field(description="Two neighbours, such as [node3/nic1, leaf1] or [leaf0, spine*].")
    bandwidth: BytesPerSecond | None = Field(default=None, description="Of all links between the two together, one direction.")
    fraction: Fraction | None = Field(default=None, description="Share that is left.")
    latency: Seconds | None = None
    state: Literal["up", "down"] = "up"
    half_duplex: StrictBool = Field(default=False, description="Both directions share the bandwidth of one.")
    direction: Literal["both", "forward"] = Field(default="both", description="Forward: only from the first to the second.")

    @model_validator(mode="after")
    def _check_says_something(self) -> LinkSpec:
        if self.model_fields_set <= {"between", "direction"}:
            raise _mistake("the links stay as they are", "add bandwidth, fraction, latency, half_duplex: true or state: down")
        return self


class ClusterSpec(NodeChange):
    """Nodes of one kind on one fabric: a shipped cluster or node, with any of its parts changed in place."""

    name: str | None = Field(default=None, description="A shipped cluster; see `clustersim show clusters`.")
    node: str | NodeChange | None = Field(default=None, description="A shipped node, or one described in full.")
    nodes: Degree | NodeGroups | None = Field(
        default=None, description="Servers; a shipped cluster brings its own number. Or groups: [{node: ..., count: ...}, ...]."
    )
    calibration: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Measured constants of your own, a file of `clustersim calibrate`; default: the shipped ones."
    )
    links: list[LinkSpec] = Field(default=[], description="Links that are not as built.")
    stragglers: list[StragglerSpec] = Field(default=[], description="Ranks that compute slower than they should.")
    jitter: JitterField | None = Field(default=None, description="How much computation varies from step to step, such as '3 %'.")


class JobSpec(Part):
    """Another job, which repeats its step on nodes of its own for as long as that of the scenario lasts."""

    scenario: str | dict[str, JsonValue] = Field(
        description="A shipped name, a path, or a mapping with model, training and strategy; its cluster is not used."
    )
    nodes: Annotated[Degree | Numbers, Field(union_mode="left_to_right")] = Field(
        description="How many, taken from the last; or which, such as [8-15] or '1,3,5,7'."
    )
    name: str | None = Field(default=None, pattern=f"^{NAME_PATTERN}$", description="Default: that of its scenario.")


class BackgroundSpec(Part):
    """A load that shares links with the job, on each of them by itself."""

    links: Annotated[list[str], AfterValidator(_check_some)] = Field(
        description="Names of links, with * and ranges: leaf0/up, node[0-3]/nic*/tx."
    )
    load: LoadAmount = Field(description="What it takes at most: a rate, or a share of each link's bandwidth.")
    flows: Degree = Field(default=1, description="Flows it consists of: on a full link it gets the share of so many.")
    name: str | None = Field(default=None, min_length=1, max_length=100, description="Default: background.")
    start: Seconds = Field(default=0.0, description="Of the first burst.")
    period: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="From burst to burst; default: one without end.")
    burst: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="How long a burst lasts; less than the period.")


class AssumptionSpec(Part):
    """A flag of the run that wrote a resolved scenario."""

    code: str = Field(pattern="^[a-z0-9_]{1,100}$")
    message: str = Field(max_length=2000)


class ScenarioSpec(Part):
    """A training run to predict."""

    version: Annotated[Literal[1], BeforeValidator(_refuse_boolean)] = Field(default=1, description="Of this format.")
    name: str | None = Field(default=None, pattern=f"^{NAME_PATTERN}$", description="Names the run directory; default: the file's name.")
    model: str | dict[str, JsonValue] = Field(
        description="A shipped name, path.yaml, hf:path/to/config.json, or a mapping with Hugging Face key names."
    )
    cluster: ClusterSpec
    training: TrainingSpec
    strategy: StrategySpec = StrategySpec()
    steps: Steps | None = Field(
        default=None, description="Steps to replay; default: one, or 50 where steps differ (jitter, workers at their own pace)."
    )
    cost: CostSpec | None = None
    reliability: ReliabilitySpec | None = None
    checks: list[str] = Field(default=[], description="Conditions such as 'memory_fraction <= 0.92'; one that is false gives exit code 1.")
    jobs: list[JobSpec] = Field(default=[], description="Further jobs on nodes of the same cluster.")
    background: list[BackgroundSpec] = Field(default=[], description="Loads of others on links.")
    assumed: list[AssumptionSpec] = Field(
        default=[], description="Of a resolved scenario: what the one that it stands for left open; results say it again."
    )


def scenario_json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of a scenario, for editors."""
    schema: dict[str, JsonValue] = ScenarioSpec.model_json_schema()
    properties = schema["properties"]
    if isinstance(properties, dict):
        # A string in place of the mapping names a shipped cluster; it is turned into one before the models see it.
        properties["cluster"] = {"anyOf": [{"$ref": "#/$defs/ClusterSpec"}, {"type": "string"}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
