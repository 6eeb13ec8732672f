"""A serving scenario: its keys, and text checked against them. None means "left out" throughout; the build fills it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, StrictBool, model_validator

from clustersim.config.cost_section import CostSpec
from clustersim.config.load import ScenarioText, name_from, read_source, with_others
from clustersim.config.overriding import Override, apply_overrides, blame
from clustersim.config.scenario_schema import NAME_PATTERN, BackgroundSpec, ClusterSpec, ModelField, VersionField, json_schema
from clustersim.documents.check import located, validate_document
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.profile_schema import Checked
from clustersim.serving.router import ROUTERS
from clustersim.units.fields import Degree, NonNegativeInt, PerSecond, PositiveInt, Seconds, mistake

Share = Annotated[float, Field(strict=True, gt=0, le=1)]
Tokens = Annotated[int, Field(strict=True, gt=0, le=100_000_000)]
WeightFormat = Literal["bf16", "fp16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4"]


class SpeculativeSpec(Checked):
    """Draft tokens that are proposed cheaply, and verified in one step of the model."""

    method: str = Field(default="draft", max_length=40, description="Names how tokens are drafted; their cost is not modelled.")
    draft_tokens: Annotated[int, Field(strict=True, gt=0, le=64)] = Field(description="Tokens that are drafted for each step.")
    mean_tokens: Annotated[float, Field(strict=True, ge=1, le=65)] | None = Field(
        default=None, description="Tokens that a step yields for a sequence on average, the model's own included."
    )
    acceptance: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        default=None, description="Probability that a draft token is accepted after those before it were."
    )

    @model_validator(mode="after")
    def _check_one_rate(self) -> SpeculativeSpec:
        if (self.mean_tokens is None) == (self.acceptance is None):
            raise mistake("acceptance and mean_tokens say the same", "give one of the two, such as acceptance: 0.7")
        if self.mean_tokens is not None and self.mean_tokens > self.draft_tokens + 1:
            raise mistake(
                f"{self.draft_tokens} draft tokens yield at most {self.draft_tokens + 1} tokens", f"give at most {self.draft_tokens + 1}"
            )
        return self


class ReplicaPoolSpec(Checked):
    """Replicas of one of two pools."""

    replicas: Degree = Field(default=1, description="Number of replicas.")
    tp: Degree = Field(default=1, description="Tensor parallelism of one replica.")
    pp: Degree = Field(default=1, description="Pipeline parallelism of one replica.")
    ep: Degree = Field(default=1, description="Expert parallelism of one replica.")
    dp: Degree = Field(default=1, description="Attention data parallelism inside one replica.")
    redundant_experts: NonNegativeInt = Field(default=0, description="Copies of popular experts, placed so that ranks are even.")


class DisaggregatedSpec(Checked):
    """Prompts are computed by one pool of replicas, and outputs by another, to which the KV cache goes over the network."""

    prefill: ReplicaPoolSpec
    decode: ReplicaPoolSpec
    transfer: Literal["layers", "prompt"] = Field(
        default="layers", description="A KV cache leaves layer by layer while its prompt is computed, or when the whole prompt is."
    )


def _known_router(value: object) -> object:
    if value not in ROUTERS:
        raise mistake(f"'{value}' is no router", f"use one of {', '.join(ROUTERS)}")
    return value


class BatchWaitSpec(Checked):
    """New prompts wait, while sequences decode, until there are many."""

    steps: NonNegativeInt = Field(description="Most steps that they wait (TensorRT-LLM: batch_wait_timeout_iters).")
    budget_share: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Share of the token budget for which they wait (batch_wait_max_tokens_ratio)."
    )


class RankWaitSpec(Checked):
    """New prompts wait, while sequences decode, until each rank of attention data parallelism has one."""

    steps: PositiveInt = Field(default=50, description="Every so many steps they begin all the same (attention_dp_config.timeout_iters).")
    further_steps: NonNegativeInt = Field(default=10, description="Steps that they then wait for more (batching_wait_iters).")


class ServingSpec(Checked):
    """The deployment: engine, layout, precision, batch limits and pools."""

    engine: str = Field(default="vllm", description="vllm, sglang, tensorrt_llm or static; vllm@0.11 names a version.")
    precision: WeightFormat = Field(default="bf16", description="Number format of the weights.")
    kv_precision: Literal["bf16", "fp16", "fp8"] = Field(default="bf16", description="Number format of the KV cache.")
    tp: Degree = Field(default=1, description="Tensor parallelism of one replica.")
    pp: Degree = Field(default=1, description="Pipeline parallelism of one replica.")
    ep: Degree = Field(default=1, description="Expert parallelism of one replica.")
    dp: Degree = Field(default=1, description="Attention data parallelism inside one replica.")
    redundant_experts: NonNegativeInt = Field(default=0, description="Copies of popular experts, placed so that ranks are even.")
    expert_exchange: Literal["all_gather", "all_to_all"] = Field(
        default="all_gather", description="With dp: all tokens on every rank, or each token to the ranks of its experts (DeepEP)."
    )
    two_batch_overlap: StrictBool = Field(default=False, description="Whether half a batch computes while the other half communicates.")
    replicas: Degree | Literal["auto"] = Field(default="auto", description="Default: as many as the cluster has accelerators for.")
    max_num_seqs: Degree | None = Field(default=None, description="Sequences in a batch; default: the engine's.")
    max_batched_tokens: Tokens | None = Field(default=None, description="Token budget of a step; default: the engine's.")
    max_graph_tokens: NonNegativeInt | None = Field(default=None, description="Tokens of the largest CUDA graph; default: the engine's.")
    memory_fraction: Share | None = Field(default=None, description="Share of the memory that is used; default: the engine's.")
    kv_tokens: PositiveInt | Literal["auto"] = Field(default="auto", description="Tokens in the KV cache of a replica; default: predicted.")
    prefix_cache: StrictBool | None = Field(default=None, description="Whether prefixes stay in the cache; default: the engine's.")
    chunked_prefill: StrictBool | None = Field(default=None, description="Whether prompts are computed in parts; default: the engine's.")
    asynchronous: StrictBool | None = Field(default=None, description="Whether steps are scheduled ahead; default: the engine's.")
    batch_wait: BatchWaitSpec | None = None
    rank_wait: RankWaitSpec | None = None
    receive_interval: PositiveInt | None = Field(
        default=None, description="Decode steps between two looks for new requests (SGLang: scheduler_recv_interval); default: 1."
    )
    speculative: SpeculativeSpec | None = None
    disaggregated: DisaggregatedSpec | None = Field(default=None, description="Instead of tp, pp, ep, dp, redundant_experts and replicas.")
    router: Annotated[str, BeforeValidator(_known_router)] = Field(
        default="round_robin", description="round_robin, least_loaded, power_of_two or prefix_aware."
    )

    @model_validator(mode="after")
    def _check_one_layout(self) -> ServingSpec:
        both = sorted({"tp", "pp", "ep", "dp", "redundant_experts", "replicas"} & self.model_fields_set)
        if self.disaggregated is not None and both:
            raise mistake(f"{both[0]} and disaggregated both say how replicas are laid out", f"delete {both[0]}")
        return self


class UniformSpec(Checked):
    """Lengths from the first to the second, equally likely."""

    uniform: tuple[Tokens, Tokens] = Field(description="Least and most.")

    @model_validator(mode="after")
    def _check_order(self) -> UniformSpec:
        if self.uniform[0] > self.uniform[1]:
            raise mistake(f"{self.uniform[0]} is more than {self.uniform[1]}", "write the least length first")
        return self


class LognormalShape(Checked):
    """Mean and 90th percentile."""

    mean: Annotated[float, Field(gt=0, le=1e8, description="Tokens.")]
    p90: Annotated[float, Field(gt=0, le=1e8, description="Tokens that nine of ten do not exceed.")]


class LognormalSpec(Checked):
    """Lengths whose logarithm is normal."""

    lognormal: LognormalShape


Length = Tokens | UniformSpec | LognormalSpec | str


class RequestsSpec(Checked):
    """The requests: arrivals, lengths and warm-up."""

    arrival: Literal["poisson", "gamma", "constant", "at_once", "closed", "trace"] = Field(description="When requests are sent.")
    rate: PerSecond | None = Field(default=None, description="Requests in a second (poisson, gamma, constant).")
    burstiness: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="Shape of the gaps (gamma): 1 as poisson, less gives bursts."
    )
    concurrency: PositiveInt | None = Field(default=None, description="Requests under way (closed).")
    trace: str | None = Field(default=None, description="A CSV with arrival_s, input_tokens, output_tokens[, prefix_blocks] (trace).")
    speed: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="Speed of the requests of a trace, as a multiple of the recorded one."
    )
    count: Annotated[int, Field(strict=True, gt=0, le=20_000_000)] | None = Field(default=None, description="Requests in all.")
    duration: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="Instead of count: for how long requests are sent.")
    warmup: NonNegativeInt = Field(default=0, description="The first requests, which are not measured.")
    input_tokens: Length | None = Field(default=None, description="Length of a prompt: a number, a distribution, or a CSV of lengths.")
    output_tokens: Length | None = Field(default=None, description="Length of an answer, in the same way.")


Limit = Annotated[Seconds, Field(gt=0)] | None


class SloSpec(Checked):
    """Latencies that are required (SLO)."""

    ttft_mean: Limit = Field(default=None, description="Mean of the time to the first token.")
    ttft_p50: Limit = Field(default=None, description="Median of the time to the first token.")
    ttft_p90: Limit = Field(default=None, description="90th percentile of the time to the first token.")
    ttft_p99: Limit = Field(default=None, description="99th percentile of the time to the first token.")
    tpot_mean: Limit = Field(default=None, description="Mean of the time per output token.")
    tpot_p50: Limit = Field(default=None, description="Median of the time per output token.")
    tpot_p90: Limit = Field(default=None, description="90th percentile of the time per output token.")
    tpot_p99: Limit = Field(default=None, description="99th percentile of the time per output token.")
    itl_mean: Limit = Field(default=None, description="Mean of the gap between two tokens.")
    itl_p50: Limit = Field(default=None, description="Median of the gap between two tokens.")
    itl_p90: Limit = Field(default=None, description="90th percentile of the gap between two tokens.")
    itl_p99: Limit = Field(default=None, description="99th percentile of the gap between two tokens.")
    e2e_mean: Limit = Field(default=None, description="Mean of the time to the last token.")
    e2e_p50: Limit = Field(default=None, description="Median of the time to the last token.")
    e2e_p90: Limit = Field(default=None, description="90th percentile of the time to the last token.")
    e2e_p99: Limit = Field(default=None, description="99th percentile of the time to the last token.")


class ServingScenarioSpec(Checked):
    """A served model to predict."""

    version: VersionField = Field(default=1, description="Version of this format.")
    name: str | None = Field(default=None, pattern=f"^{NAME_PATTERN}$", description="Names the run directory; default: the file's name.")
    model: ModelField
    cluster: ClusterSpec
    serving: ServingSpec
    requests: RequestsSpec
    slo: SloSpec | None = Field(default=None, description="Latencies to keep; exit code 1 where one is missed.")
    background: list[BackgroundSpec] = Field(default=[], description="Loads of others on links that KV caches cross between pools.")
    cost: CostSpec | None = None


def serving_json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of a serving scenario, for editors."""
    return json_schema(ServingScenarioSpec, "serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingScenario(ScenarioText):
    """A serving scenario whose keys and values are right one by one, the overrides in its document."""

    name: str
    spec: ServingScenarioSpec
    overrides: tuple[Override, ...]

    def located(self, error: DomainError) -> ScenarioError:
        """Return an error with its key and the place of that: a line of the file, or the ``--set`` that brought the value."""
        if not isinstance(error, ScenarioError):
            key = str(error.path[-1]) if error.path else ""
            field = f"serving.{key}" if key in ServingSpec.model_fields else "serving" if key else None
            error = ScenarioError(error.message, field=field, hint=error.hint)
        placed = error if error.place else located(error, self.document)
        return blame(with_others(placed, self.document), self.overrides, self.document)


def is_serving(source: ScenarioText) -> bool:
    """Return whether a scenario is about serving."""
    return "serving" in source.document.data


def load_serving(source: str | Path | Mapping[str, object]) -> ServingScenario:
    """Return a checked serving scenario; the source as for :func:`clustersim.config.load.load_scenario`."""
    return checked_serving(read_source(source), ())


def checked_serving(source: ScenarioText, changes: Sequence[Override]) -> ServingScenario:
    """Return a checked serving scenario: what was written, with changes on top.

    Raises
    ------
    ScenarioError
        With each mistake, its place and what would be right.
    """
    document = apply_overrides(source.document, changes)
    if "serving" not in document.data and "training" in document.data:
        hint = "name a scenario with 'serving', such as serve-llama3-70b-chat"
        raise located(ScenarioError("trains and serves no requests", field="training", hint=hint), document)
    try:
        try:
            for key in ("training", "strategy"):
                if key in document.data:
                    hint = "a scenario is about one of the two: delete the other"
                    raise located(ScenarioError(f"{key} stands beside serving", field=key, hint=hint), document)
            spec = validate_document(ServingScenarioSpec, document)
        except ScenarioError as error:
            raise with_others(error, document, lambda: validate_document(ServingScenarioSpec, document), more=True) from error.__cause__
    except ScenarioError as error:
        raise blame(error, tuple(changes), document) from error
    return ServingScenario(
        name=spec.name or name_from(document.name),
        spec=spec,
        document=document,
        text=source.text,
        folder=source.folder,
        overrides=tuple(changes),
    )
