"""Plans: the settings of a strategy, their values on a cluster, and the model and training beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, WithJsonSchema

from clustersim.documents.near_names import choices_hint
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.schedules.order import EQUAL_COSTS, PassCosts
from clustersim.parallel.schedules.written import WrittenSchedule
from clustersim.parallel.settings import Settings, Written, auto, refuse_boolean, setting
from clustersim.parallel.step_settings import DataParallel, DataParallelSettings, Training, WirePrecision
from clustersim.units.fields import Degree, NonNegativeInt, mistake
from clustersim.workloads.model import Model
from clustersim.workloads.shapes import ContextKind
from clustersim.workloads.token_routing import EVEN_LOAD, ExpertLoad

SHARDS_OPTIMIZER: Final = 1
"""The zero_stage from which the state of the optimizer is sharded."""
SHARDS_GRADIENTS: Final = 2
"""The zero_stage from which gradients are sharded, so that every micro-batch must reduce its own."""
SHARDS_PARAMETERS: Final = 3
"""The zero_stage that shards parameters too."""

Recompute = Literal["none", "selective", "alternate", "full"]
RecomputeModule = Literal["core_attention", "norms", "activations", "latent_projections", "mlp", "shared_experts", "experts"]
"""Parts of a layer that selective recomputation can repeat by themselves."""
Dimension = Literal["tp", "cp", "ep", "dp", "pp"]
GatherUnit = Literal["layer", "tensor"]
ExpertDispatch = Literal["all_to_all", "per_node"]
"""Dispatch of tokens: one copy to each of a token's experts, or to each node, and in it each rank, that holds some of them."""
TensorOverlap = Literal["none", "weight_gradient", "gemm_chunks", "async_tp"]
"""Tensor-parallel collectives overlap with nothing, with gradients of column-split layers (Megatron since 2021-10), or with chunks of
products too (Transformer Engine). Asynchronous TP of PyTorch has the chunks alone: a sum of several layers is no product to cut."""
Place = Literal["accelerator", "host", "nvme"]
"""Memory that holds a part of the training state."""
OffloadPart = Literal["optimizer", "gradients", "parameters", "activations"]
OffloadItem = OffloadPart | dict[Literal["to"], Literal["host", "nvme"]]

DIMENSIONS: Final[tuple[Dimension, ...]] = ("tp", "cp", "ep", "dp", "pp")
EXPERT_LOADS: Final = ("balanced", "zipf", "dirichlet")
_OFFLOAD_PARTS: Final[tuple[OffloadPart, ...]] = get_args(OffloadPart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Places of the parts of the training state while they are not in use."""

    optimizer: Place = "accelerator"
    gradients: Place = "accelerator"
    parameters: Place = "accelerator"
    activations: Place = "accelerator"

    @property
    def parts(self) -> tuple[OffloadPart, ...]:
        """Parts that live elsewhere than on the accelerator."""
        return tuple(part for part in _OFFLOAD_PARTS if getattr(self, part) != "accelerator")

    @property
    def to_drives(self) -> bool:
        """Whether a part lives on NVMe."""
        return "nvme" in (self.optimizer, self.gradients, self.parameters)


def _read_offload(written: list[OffloadItem]) -> Offload:
    """Return where each part lives, from names of parts and at most one ``{to: host}`` or ``{to: nvme}``, in any order."""
    parts: list[OffloadPart] = [each for each in written if not isinstance(each, dict)]
    targets: list[Place] = [each["to"] for each in written if isinstance(each, dict)]
    twice = next((part for number, part in enumerate(parts) if part in parts[:number]), None)
    if twice is not None:
        raise mistake(f"'{twice}' stands twice", "name each part once")
    if len(targets) > 1:
        raise mistake(f"{len(targets)} places to offload to", "write {to: host} or {to: nvme} once")
    if targets and not parts:
        raise mistake(f"nothing is offloaded to {targets[0]}", "name optimizer, gradients, parameters or activations beside it")
    there: Place = targets[0] if targets else "host"
    if there == "nvme" and "activations" in parts:
        raise mistake("activations go to the memory of the host, not to its drives", "use {to: host}, or leave activations out")
    places: dict[OffloadPart, Place] = dict.fromkeys(parts, there)
    return Offload(**places)


def _check_parts(value: object) -> object:
    if isinstance(value, str | int | float | dict):
        raise mistake("what is offloaded is a list of parts", "write such as [optimizer] or [optimizer, gradients, {to: nvme}]")
    return value


def _name_or_file(value: str, names: tuple[str, ...]) -> str:
    if value in names or value.endswith(".csv"):
        return value
    raise mistake(f"'{value}' is not one of {', '.join(names)} or a .csv file", choices_hint(value, names))


def _read_expert_load(value: str) -> ExpertLoad:
    _name_or_file(value, EXPERT_LOADS)
    return ExpertLoad(kind=value) if value in EXPERT_LOADS else ExpertLoad(kind="file", file=value)


def _read_placement(value: Literal["auto"] | list[Dimension]) -> tuple[Dimension, ...]:
    if value == "auto":
        return ()
    if sorted(value) != sorted(DIMENSIONS):
        raise mistake("the placement does not name each of tp, cp, ep, dp and pp once", "such as [tp, cp, ep, dp, pp]")
    return tuple(value)


def _read_stage_layers(value: Literal["even", "with_ends", "balanced"] | list[int]) -> StageLayers:
    if value == "even":
        return None
    return tuple(value) if isinstance(value, list) else value


def _read_overlap(value: TensorOverlap | Literal[True, False]) -> TensorOverlap:
    if isinstance(value, bool):
        return "weight_gradient" if value else "none"
    return value


def _choice_or_file(names: tuple[str, ...], example: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"enum": list(names)}, {"type": "string", "pattern": r"\.csv$", "examples": [example]}]})


Chunks = Annotated[int, Field(strict=True, gt=0, le=10_000)]
"""Chunks of layers: a model has no more layers."""
Ahead = Annotated[int, Field(strict=True, ge=0, le=10_000)]
AutoDegree = Annotated[int, Written(Literal["auto"] | Degree, lambda value: None if value == "auto" else value)]
StageLayers = Literal["with_ends", "balanced"] | tuple[int, ...] | None
"""Layers of each part of the model, in its order; None: equal numbers."""
WrittenStageLayers = Literal["even", "with_ends", "balanced"] | list[NonNegativeInt]


WrittenModules = Annotated[list[RecomputeModule], Field(min_length=1)]


class StrategySettings(Settings, frozen=True):
    """Division of the model among ranks."""

    dp: AutoDegree = auto("Data-parallel replicas; default: `auto`, what fills the cluster.")
    tp: Degree = setting(1, "Ranks that divide each layer; divides the attention heads.")
    pp: Degree = setting(1, "Pipeline stages; `strategy.stage_layers` divides the layers among them.")
    cp: Degree = setting(1, "Context parallelism: ranks that each hold a part of every sequence.")
    ep: Degree = setting(1, "Expert parallelism: ranks of a stage that divide the experts of a layer; `ep * etp` divides `dp * cp * tp`.")
    sequence_parallel: StrictBool = auto(
        "Divide along the sequence the operators that tensor parallelism would replicate; default: true with `tp > 1`.", "tp"
    )
    schedule: Annotated[
        str, AfterValidator(partial(_name_or_file, names=tuple(SCHEDULES))), _choice_or_file(tuple(SCHEDULES), "schedule.csv")
    ] = setting("1f1b", "Order of the passes of a pipeline: a name, or a CSV file such as `mine.csv`.", "several passes")
    virtual_stages: Chunks = auto(
        "Model chunks on each stage: at least 2 for `interleaved_1f1b` and `breadth_first`, 2 for `zb_v` and `dualpipe_v`, 1 for the "
        "others; default: that of the schedule."
    )
    stage_layers: Annotated[StageLayers, Written(WrittenStageLayers, _read_stage_layers)] = setting(
        None,
        "Layers of each model chunk: `even`, equal numbers; `with_ends`, embedding and logits count as one layer each; `balanced`, the "
        "longest chunk is as short as possible; or a list such as `[7, 8, 8, 7]` in the order of the model, of which only the first and "
        "the last may be 0; default: `even` if layers divide, else `with_ends` with a flag.",
        "pp",
        shown="even",
    )
    optimizer_post_validation: StrictBool = auto(
        "Each stage updates its parameters as soon as its passes end; the norm of all gradients is checked afterwards; default: true for "
        "`zb_h1`, `zb_h2`, `zb_2p` and `zb_v`.",
        "pp",
        "later checks of norms",
    )
    zero_stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(refuse_boolean)] = setting(
        0,
        "State divided among the `dp * cp` ranks of a copy: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters.",
        "divided state",
    )
    recompute: Recompute = setting(
        "none",
        "Activations that the backward pass recomputes: `none`, `selective` (attention), `alternate` (all but attention and every second "
        "product, as torchtitan's `op`; transformers only) or `full` (whole layers).",
    )
    recompute_layers: Chunks | None = setting(None, "First layers of each chunk, which full recomputation repeats; default: all.")
    recompute_modules: Annotated[tuple[RecomputeModule, ...], Written(WrittenModules, tuple, list)] = auto(
        "Parts of a layer that `recompute: selective` repeats: `core_attention`, `norms`, `activations`, `latent_projections` (MLA), "
        "`mlp`, `shared_experts`, `experts` (with their communication); default: `[core_attention]`.",
        "selective recomputation",
    )
    recompute_stops_early: StrictBool = setting(
        False,
        "Full recomputation omits the last product of a layer, which the backward pass does not need (PyTorch since 2.1).",
        "needless products",
    )
    data_parallel: DataParallelSettings = DataParallelSettings()
    overlap_p2p: StrictBool = auto("Sends and receives overlap with computation; default: false for `naive`, `gpipe` and `1f1b`.", "pp")
    sync_p2p: StrictBool = setting(True, "Hosts wait for sends that do not overlap (Megatron's `batch_p2p_sync`).", "pp", "waited sends")
    overlap_tp: Annotated[TensorOverlap, Written(TensorOverlap | StrictBool, _read_overlap)] = setting(
        "weight_gradient",
        "Overlap of tensor-parallel collectives: `none`; `weight_gradient`, with weight gradients of column-split layers (Megatron-LM); "
        "`gemm_chunks`, also with chunks of all adjacent products (Transformer Engine's `tp_comm_overlap`); `async_tp`, only with chunks "
        "(PyTorch's asynchronous TP). Chunks need sequence parallelism; `false` and `true` mean the first two.",
        "tp",
        "whole backward passes",
    )
    shard_degree: AutoDegree | None = setting(
        None, "Ranks that together hold one copy of the sharded state: all, or a divisor (hybrid sharding); default: `auto`, all."
    )
    gather: GatherUnit = setting(
        "layer",
        "`zero_stage: 3` gathers each `layer` in one call (FSDP), or each `tensor`; `zero_stage: 1` with `tensor` gives ranks whole ones.",
        "weights by tensors",
    )
    prefetch: Ahead = setting(
        1,
        "Layers whose parameters are gathered ahead of the current one; with 0 each layer waits for its gather.",
        "zero_stage 3",
        "gathers",
        "overlap",
    )
    reshard_after_forward: StrictBool = setting(
        True,
        "`zero_stage: 3` frees parameters after the forward pass and gathers them again; `false` keeps them until the backward pass, and "
        "with pipeline stages or `no_sync` until the last one.",
        "zero_stage 3",
        "gathers",
    )
    keep_ends: StrictBool = setting(
        False,
        "`zero_stage: 3` keeps embedding and head gathered until the backward pass ends, as FSDP's root unit.",
        "transformer",
        "zero_stage 3",
        "gathers",
        "resharding",
    )
    preset: str | None = setting(None, "Defaults of a framework, below all other keys; see `clustersim show presets`; default: none.")
    offload: Annotated[
        Offload,
        Written(
            Annotated[list[OffloadItem], BeforeValidator(_check_parts)],
            _read_offload,
            lambda offload: [*offload.parts, *([{"to": "nvme"}] if offload.to_drives else [])],
        ),
    ] = setting(
        Offload(),
        "Parts of the training state that are on the hosts while not in use: any of `optimizer`, `gradients`, `parameters`, "
        "`activations`, and the place, `{to: host}` or `{to: nvme}`.",
        shown=[],
    )
    etp: Degree | None = setting(None, "Ranks that divide each expert; default: `tp`.")
    expert_load: Annotated[
        ExpertLoad,
        Written(
            Annotated[str, _choice_or_file(EXPERT_LOADS, "load.csv")],
            _read_expert_load,
            lambda load: load.file or load.kind,
        ),
    ] = setting(
        EVEN_LOAD,
        "Distribution of tokens over experts: `balanced`; `zipf`, the k-th expert gets 1 / k^skew of the first; `dirichlet`, drawn for "
        "every layer; or a CSV file with the columns `layer` (optional: without it all layers are equal), `expert` and `tokens`.",
        "experts",
        shown="balanced",
    )
    expert_skew: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = auto(
        "Exponent of `zipf`, or concentration of `dirichlet` (smaller is more uneven); default: 1.", "skewed load"
    )
    expert_capacity: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = setting(
        None,
        "Most tokens of an expert, as a multiple of the mean; more are dropped; 1 fills all of a balanced load; default: no limit.",
        "experts",
        "capacity",
    )
    dispatch: ExpertDispatch = setting(
        "all_to_all",
        "`all_to_all` sends a token to each of its experts; `per_node` once to each node with some of them, then once to each such rank.",
        "ep",
    )
    overlap_ep: StrictBool | Literal["micro_batches"] = setting(
        False, "Computation while tokens are exchanged: shared experts (`true`), or other `micro_batches`.", "ep", "work beside experts"
    )
    dispatch_precision: WirePrecision = setting("same", "Precision of tokens on the way to their experts; results keep theirs.", "ep")
    context_parallel: ContextKind = setting(
        "ring",
        "`ring` passes keys and values around during attention; `all_gather` gathers them first; `ulysses` exchanges parts of sequences "
        "for heads.",
        "cp",
    )
    placement: Annotated[tuple[Dimension, ...], Written(Literal["auto"] | list[Dimension], _read_placement)] = setting(
        DIMENSIONS,
        "Order of the dimensions over the ranks, fastest-varying first. With `pp` between `ep` and `dp`, replicas that together hold all "
        "experts stay neighbours. `auto`: tp, cp and ep first, then pp if all stages fit under one leaf with them, otherwise dp.",
        "own layout",
        "places that differ",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Numbers of ranks over which ZeRO and FSDP spread the training state."""

    degree: int
    """Ranks that hold one copy together: all replicas, or a divisor of them (hybrid sharding), which then all-reduces between copies."""
    expert_degree: int = 1
    """Ranks that hold one copy of an expert together."""


class Strategy(StrategySettings, frozen=True):
    """A strategy on the nodes of a cluster, with nothing left open."""

    data_parallel: DataParallel = DataParallel()
    node_size: int = Field(default=8, exclude=True)
    """Accelerators of a node."""
    domain_size: int = Field(default=8, exclude=True)
    """Accelerators that a node, or several nodes of one scale-up domain, hold together."""
    symmetric: bool = Field(default=False, exclude=True)
    """Whether all ranks compute and reach each other alike."""
    costs: PassCosts = Field(default=EQUAL_COSTS, exclude=True)
    """Costs of passes, for a schedule that depends on them."""
    written: WrittenSchedule | None = Field(default=None, exclude=True)
    """The schedule itself, where ``schedule`` names a file."""

    @property
    def expert_tp(self) -> int:
        """Ranks that divide each expert among them."""
        return self.tp if self.etp is None else self.etp

    @property
    def n_ranks(self) -> int:
        """Ranks of all dimensions together."""
        return self.dp * self.tp * self.pp * self.cp

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
        """Whether weights are gathered before each pass: from the shards of other ranks, or from a lone rank's host memory."""
        away = self.offload.parameters != "accelerator"
        return self.zero_stage == SHARDS_PARAMETERS and (max(self.sharding.degree, self.sharding.expert_degree) > 1 or away)

    @property
    def keeps_gathered(self) -> bool:
        """Whether gathered parameters stay until the last pass of a step, and not only until a backward pass.

        PyTorch's FSDP does not free them while gradients add up (``torch/distributed/fsdp/_runtime_utils.py``,
        ``_should_free_in_backward``), and torchtitan not under a pipeline.
        """
        return not self.reshard_after_forward and (self.pp > 1 or self.data_parallel.no_sync)

    @property
    def deals_tensors(self) -> bool:
        """Whether ranks update whole tensors, of which they need the sum of all gradients, and broadcast them (InternEvo)."""
        return self.zero_stage == SHARDS_OPTIMIZER and self.gather == "tensor"

    @property
    def sharding(self) -> Sharding:
        """Sharding of the training state by ZeRO and FSDP; over one rank where they do not shard."""
        degree = 1 if self.zero_stage == 0 else self.shard_degree or self.replicas
        return Sharding(
            degree=degree,
            # The ranks that share a copy hold all experts together, each of them on as many ranks as there are for it.
            expert_degree=max(1, degree * self.expert_replicas // self.replicas),
        )


def micro_batches(training: Training, strategy: Strategy) -> int:
    """Return the micro-batches per data-parallel replica and step."""
    return training.global_batch_size // (strategy.dp * training.micro_batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that lowering needs besides the cluster."""

    model: Model
    training: Training
    strategy: Strategy

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches per data-parallel replica and step."""
        return micro_batches(self.training, self.strategy)

    @property
    def n_ranks(self) -> int:
        """Ranks of the whole plan."""
        return self.strategy.n_ranks
