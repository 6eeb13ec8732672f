"""Lower bounds of a served run, from the roofline and the conservation of work: without a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

import numpy as np

from clustersim.apps.serve.deployment import BuiltServing, refused_of, refused_text
from clustersim.config.serving_scenario import SloSpec
from clustersim.documents.text import Data
from clustersim.hardware.serving_constants import FORMATS
from clustersim.serving.batch import FloatArray

SHARE: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Share of the requests that must meet a limit on a percentile."""
OF_BATCH: Final = ("max_num_seqs", "max_batched_tokens", "router")
"""Dimensions in which deployments of one kind differ."""
_ROUND_OFF: Final = 1e-9
Values = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A deployment whose number of replicas is open."""

    values: tuple[tuple[str, str], ...]
    gpus_each: int
    gpus_per_node: int
    machine: str
    precision: str
    """Precisions of weights and KV cache, in words."""
    least_replicas: float
    binds: str
    cost: Data = field(compare=False)
    """That of the scenario, with the list where no rent is given."""

    @property
    def kind(self) -> Values:
        """Values but for those of the batch."""
        return but_for(self.values, OF_BATCH)


def but_for(values: Sequence[tuple[str, str]], dimensions: Sequence[str]) -> Values:
    """Return values but for those of some dimensions."""
    return frozenset(each for each in values if each[0] not in dimensions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """Least times of one replica, in seconds."""

    per_token_s: float
    """Compute of one token, at the peak."""
    weights_s: float
    """Reading the weights that every step reads, at the full bandwidth."""
    per_cached_token_s: float
    """Reading one cached token in one decode step."""
    most_sequences: int
    """Sequences that batch limits and the KV cache allow in a step."""


def replica_bounds(built: BuiltServing) -> ReplicaBounds:
    """Return the bounds of one replica.

    A kernel takes at least its FLOPs at the peak, and at least its bytes at the full bandwidth; terms of a step add up. Experts count with
    their FLOPs only, since it depends on the batch which are read.
    """
    pool = built.pools[0]
    model, requests = pool.model, built.asked.requests
    formats, layout = model.formats, pool.layout
    peak = model.accelerator.peak_flops_per_s["bf16"]
    bandwidth = model.accelerator.memory_bandwidth_bytes_per_s
    per_token_s = weights_s = 0.0
    for layer in model.work.layers:
        for each in layer.projections:
            number_format = FORMATS[formats.of(each)]
            per_token_s += layer.n_layers * 2.0 * each.parameters / (peak * number_format.rate) / layout.dp
            weights_s += layer.n_layers * each.parameters * number_format.weight_bytes / bandwidth
        experts = layer.experts
        if experts is not None:
            chosen = experts.top_k * experts.n_local / experts.n_experts
            per_token_s += layer.n_layers * 2.0 * chosen * experts.parameters_each / (peak * FORMATS[formats.experts].rate)
    cached_s = sum(law.per_token_s for law in model.decode_laws(1) if law.window is None) / layout.dp
    shares = pool.rules.prefix_cache and bool(requests.prefixes)
    room = pool.kv_tokens // int(requests.input_tokens.min()) if not shares else pool.rules.max_num_seqs
    return ReplicaBounds(
        per_token_s=per_token_s,
        weights_s=weights_s,
        per_cached_token_s=cached_s,
        most_sequences=max(1, min(pool.rules.max_num_seqs, room)),
    )


def least_tpot_s(built: BuiltServing, bounds: ReplicaBounds) -> float:
    """Return the least time per output token of any request, in seconds."""
    shortest = int(built.asked.requests.input_tokens.min())
    return (bounds.weights_s + bounds.per_cached_token_s * shortest) / _tokens_per_step(built)


def prompt_work_s(built: BuiltServing, bounds: ReplicaBounds) -> FloatArray:
    """Return the least time of a replica for the prompt of each request; none where prefixes may be in the cache already."""
    requests = built.asked.requests
    if built.pools[0].rules.prefix_cache and requests.prefixes:
        return np.zeros(len(requests))
    return requests.input_tokens.astype(np.float64) * bounds.per_token_s


def whole_work_s(built: BuiltServing, bounds: ReplicaBounds) -> tuple[FloatArray, FloatArray]:
    """Return the least time of a replica for each request, once by compute and once by weights; caches are read in both."""
    requests = built.asked.requests
    later = np.maximum(requests.output_tokens - 1, 0) / _tokens_per_step(built)
    cached = bounds.per_cached_token_s * later * (requests.input_tokens + (later - 1.0) / 2.0 * (later > 0))
    compute = prompt_work_s(built, bounds) + later * bounds.per_token_s + cached
    return compute, later * (bounds.weights_s / bounds.most_sequences) + cached


def _tokens_per_step(built: BuiltServing) -> int:
    speculative = built.scenario.spec.serving.speculative
    return 1 if speculative is None else 1 + speculative.draft_tokens


def refused_beyond(built: BuiltServing, slo: SloSpec) -> str | None:
    """Return limit and remedy where more requests are too long than the SLOs allow: 1 % of them for a p99, none for a mean."""
    refused = refused_of(built)[built.asked.requests.n_warmup :]
    allowed = {name: 1.0 - SHARE.get(name.partition("_")[2], 1.0) for name in SloSpec.model_fields if getattr(slo, name) is not None}
    count, strictest = int(refused.sum()), min(allowed, key=lambda name: allowed[name], default=None)
    if strictest is None or count <= allowed[strictest] * len(refused) * (1.0 + _ROUND_OFF):
        return None
    return f"{strictest} allows {100 * allowed[strictest]:.0f} % of requests without an answer: {refused_text(built, count)}"


def least_replicas(built: BuiltServing, bounds: ReplicaBounds, slo: SloSpec) -> tuple[float, str]:
    r"""Return the least number of replicas that can meet the SLO, infinite where none can, and the term that requires them.

    Where a share q of the requests is answered within L, and the last is sent at H, the work of the least q N requests is done until
    H + L:

    .. math:: R \ge \frac{1}{H + L} \min_{|S| = q N} \sum_{i \in S} w_i
    """
    requests, refused = built.asked.requests, refused_of(built)
    kept = ~refused & (np.arange(len(refused)) >= requests.n_warmup)
    least, reason = 1.0, "one replica"
    for name in SloSpec.model_fields:
        limit_s: float | None = getattr(slo, name)
        latency, _, statistic = name.partition("_")
        if limit_s is None:
            continue
        if latency == "tpot" and int(requests.output_tokens.max()) > 1 and least_tpot_s(built, bounds) > limit_s:
            return inf, f"{name}: decode time, reading the weights alone takes longer"
        if latency not in ("ttft", "e2e") or statistic not in SHARE or requests.arrival_s is None:
            continue
        works = {"prefill": prompt_work_s(built, bounds)}
        if latency == "e2e":
            works = dict(zip(("prefill and decode", "decode"), whole_work_s(built, bounds), strict=True))
        until_s = float(requests.arrival_s[-1]) + limit_s
        for work, work_s in works.items():
            measured = np.sort(work_s[kept])
            needed = float(measured[: int(SHARE[statistic] * (len(measured) - 1))].sum()) / until_s
            if needed * (1.0 - _ROUND_OFF) > least:
                least, reason = ceil(needed * (1.0 - _ROUND_OFF)), f"{name}: {work} time of all requests"
    return float(ceil(least)), reason
