"""The numbers that a serving run ends with, in the order in which ``run --json`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustersim.economics import Prices, UsageCost
from clustersim.measure.metrics import TierUse
from clustersim.notices import Flag
from clustersim.serving.records import LatencyStatistics

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests by what became of them, those of the warm-up included."""

    arrived: int
    completed: int
    refused: int
    """Too long for the model, or larger than the KV cache."""
    measured: int
    """Completed, without those of the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloCheck:
    """One limit of the SLO, and the latency of the run."""

    name: str
    limit_s: float
    found_s: float | None
    """None where no request has such a latency."""
    interval_s: Interval | None
    """Least and most that is expected of it."""
    holds: bool

    @property
    def decided(self) -> bool:
        """Whether it holds, or is broken, at both ends of its interval."""
        return self.interval_s is None or not self.interval_s[0] <= self.limit_s < self.interval_s[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReport:
    """Required latencies (SLO)."""

    met: bool
    """Whether every percentile and mean holds."""
    attained_fraction: float
    """Requests that keep all limits themselves (of the gaps between tokens only their mean is a request's own), of those that arrived."""
    goodput_requests_per_s: float
    """Such requests in a second."""
    checks: tuple[SloCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvReport:
    """Use of the KV cache, of the replicas that requests are sent to and those that decode."""

    capacity_tokens: int
    """KV-cache capacity of one replica in tokens; of a decode replica with disaggregated pools."""
    predicted: bool
    """Whether it follows from the memory, or was given."""
    bytes_per_token: float
    """On one accelerator."""
    sequences_with_states: int | None
    """Sequences in the batch of a rank, where memory for their states sets how many; None elsewhere."""
    peak_fraction: float
    """Largest share of the KV cache in use, on the fullest replica."""
    preemptions: int
    prefix_hit_fraction: float | None
    """Blocks of prompts found in the cache, of those that have ids; None where none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Means over engine steps."""

    mean_sequences: float
    mean_tokens: float
    """Computed."""
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of the engine of one pool, for each rank of attention data parallelism."""

    role: str
    max_batched_tokens: int
    max_graph_tokens: int
    max_num_seqs: int
    memory_fraction: float
    without_graphs_fraction: float
    """Share of the steps without prompt tokens that are larger than the largest CUDA graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Duration of engine steps, in seconds."""

    mean: float
    by_term: Mapping[str, float]
    """Mean over steps; the terms sum to it. From a sample of the steps."""
    prefill_mean: float | None
    """Mean time of steps with prompt tokens, in seconds."""
    decode_mean: float | None
    """Mean time of steps without prompt tokens, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """Memory of one accelerator of a pool, and the KV cache of a replica."""

    role: str
    kv_tokens: int
    kv_peak_fraction: float
    """Largest share of the KV cache in use, on the fullest replica of the pool."""
    peak_bytes: float
    """All that is set aside, the KV cache included."""
    by_category: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Memory of one accelerator; of the decode pool with disaggregated pools."""

    fits: bool
    capacity_bytes: float
    peak_bytes: float
    """All that is set aside, the KV cache included."""
    by_category: Mapping[str, float]
    by_pool: tuple[PoolMemory, ...]
    """One, or prefill and decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """KV transfers from prefill to decode replicas."""

    count: int
    mean_s: float
    """Waiting for the link included."""
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCost:
    """Cost of the service, for a number of tokens: at a rate of their own those that answered requests ask for."""

    prices: Prices
    usd_per_hour: float | None
    """Rent and energy of all nodes."""
    per_million_output_tokens: UsageCost
    per_million_tokens: UsageCost
    """Cost of a million input and output tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEnergy:
    """Energy of the nodes."""

    utilisation_fraction: float
    """Share of the time in which accelerators compute."""
    power_w: float
    """Mean power of all nodes over the run, in watts."""
    joules_per_output_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEngineStats:
    """Statistics of the simulation."""

    events: int
    replicas: int
    steps: int
    wall_s: float
    events_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetrics:
    """One serving run in numbers; field names and order are those of ``run --json``."""

    schema_version: int
    scenario: str
    gpus: int
    """GPUs of all replicas."""
    accelerators: str
    """Name of their kind."""
    replicas: int
    requests: RequestCounts
    duration_s: float
    """From sending the first measured request to the last token of the last."""
    asked_requests_per_s: float | None
    """Mean rate that arrivals are drawn at; None where they follow another rule or a trace."""
    requests_per_s: float
    requests_per_s_per_gpu: float
    output_tokens_per_s: float
    output_tokens_per_s_interval: Interval | None
    full_load_output_tokens_per_s: float
    """Output tokens a second of full batches of requests of the mean lengths, in closed form."""
    rate_binds: bool
    """Whether requests come at a rate of their own and are answered as fast: throughput is then what is asked for."""
    kernels_borrowed: bool
    """Whether another generation lends constants of kernels, so that intervals are wider."""
    total_tokens_per_s: float
    """Input and output tokens a second."""
    output_tokens_per_s_per_gpu: float
    total_tokens_per_s_per_gpu: float
    ttft_s: LatencyStatistics | None
    """From sending a request to its first token."""
    ttft_interval_s: Interval | None
    """Least and most that the mean is expected to be; None where nothing of the kind was measured."""
    tpot_s: LatencyStatistics | None
    """(last - first token) / (tokens - 1) of each request; None where all answers are a single token."""
    tpot_interval_s: Interval | None
    itl_s: LatencyStatistics | None
    """Gaps between tokens, of all requests together."""
    itl_interval_s: Interval | None
    e2e_s: LatencyStatistics | None
    """From sending a request to its last token."""
    e2e_interval_s: Interval | None
    slo: SloReport | None
    kv: KvReport
    settings: tuple[EngineSettings, ...]
    """One entry for each pool, as given or as the engine chooses."""
    batch: BatchReport
    step_s: StepReport
    memory: ServingMemory
    links: tuple[TierUse, ...]
    transfers: TransferReport | None
    """None where pools are not apart."""
    overloaded: bool
    """Whether requests come faster than they are answered, so that latencies grow as long as that lasts."""
    cost: ServingCost | None
    energy: ServingEnergy | None
    engine: ServingEngineStats
    flags: tuple[Flag, ...]
