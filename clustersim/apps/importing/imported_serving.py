"""Settings of served models that follow from others: layout of replicas and pools, engine, arrivals and lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clustersim.apps.importing.deriving import shipped_node
from clustersim.apps.importing.imported_settings import OF_A_POOL, Draft, Key
from clustersim.apps.importing.parts import POOLS
from clustersim.documents.text import Data
from clustersim.errors import DomainError
from clustersim.hardware.catalog import profile_names
from clustersim.serving.engines import engine_names, version_key
from clustersim.workloads.reading.model_spec import load_model

NEEDED: Final = (
    (
        "requests.arrival",
        "how requests arrive: -s requests.arrival=closed -s requests.concurrency=..., or -s 'requests.rate=... /s'",
    ),
    ("requests.count", "the number of requests: -s requests.count=..."),
    ("requests.input_tokens", "the length of prompts: -s requests.input_tokens=..."),
    ("requests.output_tokens", "the length of answers: -s requests.output_tokens=..."),
)

DIVIDED_ABOVE, SMALLEST_BUDGET = 32768, 2048
"""Tokens of the longest request above which vLLM 0.6 and 0.7 divide prompts, and of the smallest budget where they do not."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """Keys of a deployment, or of one of its pools."""

    name: str

    def serving(self, key: str) -> str:
        return f"serving.disaggregated.{self.name}.{key}" if self.name else f"serving.{key}"

    def job(self, key: str) -> str:
        return f"job.{self.name}.{key}" if self.name else f"job.{key}"


def derive_serving(draft: Draft, model: Data) -> None:
    """Fill in layout, engine and requests."""
    experts = n_experts(model)
    if draft.get("requests.rate") is not None and draft.get("requests.arrival") is None:
        draft.derive("requests.arrival", "poisson", "a rate is given")
    if any(pool.name for pool in _pools(draft)):
        draft.drop(*(f"serving.{key}" for key in OF_A_POOL))
    for pool in _pools(draft):
        _layout(draft, pool, has_experts=experts > 1)
    if draft.get("job.limits_of_all_ranks") is True:
        # Prompts are the prefill pool's, and sequences the decode pool's.
        first, *_, last = [*_pools(draft)] * 2
        _divide(draft, "serving.max_batched_tokens", first)
        _divide(draft, "serving.max_num_seqs", last)
    *_, last = _pools(draft)
    if (tokens := draft.whole(last.job("kv_tokens"))) is not None:
        draft.derive("serving.kv_tokens", tokens, "the limit of the engine")
    if experts < 2:
        draft.drop("serving.two_batch_overlap")
    attention_dp = any((draft.whole(pool.serving("dp")) or 1) > 1 for pool in _pools(draft))
    if experts < 2 or not attention_dp:
        draft.drop("serving.expert_exchange")
    if attention_dp:  # TensorRT-LLM ignores it then
        draft.drop("serving.batch_wait.steps", "serving.batch_wait.budget_share")
    engine, version = draft.get("serving.engine"), draft.get("job.version")
    if version is not None and engine in engine_names():
        draft.derive("serving.engine", f"{engine}@{version}", "the version of the container image")
        _budget(draft, version_key(str(version)))
    if draft.get("job.balance") is True and attention_dp:
        for key, fact, usual in (("steps", "job.balance_steps", 50), ("further_steps", "job.balance_further_steps", 10)):
            asked = draft.get(fact)
            draft.derive(
                f"serving.rank_wait.{key}", usual if asked is None else asked, "ranks of attention data parallelism wait for each other"
            )
    _requests(draft)


def _budget(draft: Draft, version: tuple[int, ...]) -> None:
    """Take the budget of a step from the longest request, as vLLM did before 0.8 unless it divided prompts."""
    longest, divided = draft.whole("job.max_model_len"), draft.get("serving.chunked_prefill")
    if longest is None or divided is True or not () < version < (0, 8) or draft.get("serving.max_batched_tokens") is not None:
        return
    if divided is None and longest > DIVIDED_ABOVE:
        note = f"prompts are divided by default above {DIVIDED_ABOVE}: give -s serving.chunked_prefill=true and a budget"
        draft.keys.append(Key(key="serving.chunked_prefill", how="not_modelled", value=False, note=note))
    else:
        note = f"the longest request, or {SMALLEST_BUDGET}, where prompts are not divided"
        draft.derive("serving.max_batched_tokens", max(longest, SMALLEST_BUDGET), note)


def n_ranks(draft: Draft) -> int:
    """Return the accelerators of all replicas."""
    return sum(_size(draft, pool) * (draft.whole(pool.serving("replicas")) or 1) for pool in _pools(draft))


def n_nodes(draft: Draft, cluster: str | None) -> int | None:
    """Return the nodes that the replicas fill; None without a shipped cluster."""
    if cluster not in (*profile_names("clusters"), *profile_names("nodes")):
        return None
    return -(-n_ranks(draft) // shipped_node(cluster).n_accelerators)


def _pools(draft: Draft) -> Iterator[_Pool]:
    found = [pool for pool in POOLS if any(key.startswith(f"serving.disaggregated.{pool}.") for key in draft.settings)]
    return (_Pool(name) for name in found or [""])


def _size(draft: Draft, pool: _Pool) -> int:
    return math.prod(draft.whole(pool.serving(key)) or 1 for key in ("tp", "pp", "dp"))


def _layout(draft: Draft, pool: _Pool, *, has_experts: bool) -> None:
    """Fill in the degrees of a replica, and how many there are."""
    tp, replicas = draft.whole(pool.serving("tp")) or 1, draft.whole(pool.serving("replicas")) or 1
    shared, copies = draft.whole(pool.job("dp")), draft.whole(pool.serving("dp"))
    attention = draft.whole(pool.job("attention_dp"))
    if draft.get(pool.job("attention_dp")) is True or (attention or 1) > 1:
        dp = attention or shared or tp
        replicas *= (shared or 1) if attention else 1
        draft.derive(pool.serving("dp"), dp, "attention is data parallel on the ranks of tensor parallelism")
        draft.derive(pool.serving("tp"), max(1, tp // dp), f"{tp} ranks, of which {dp} share no attention")
    elif shared is not None and shared > 1:
        replicas *= shared
        draft.derive(pool.serving("replicas"), replicas, "data parallelism is whole copies of the model")
    elif copies is not None and copies > 1 and not has_experts:
        replicas *= copies
        draft.drop(pool.serving("dp"))
        draft.derive(pool.serving("replicas"), replicas, "data parallelism of a model without experts is whole copies")
    ranks = (draft.whole(pool.serving("tp")) or 1) * (draft.whole(pool.serving("dp")) or 1)
    if not has_experts:
        draft.drop(pool.serving("ep"))
    elif draft.get(pool.job("expert_parallel")) is True and draft.whole(pool.serving("ep")) is None:
        draft.derive(pool.serving("ep"), ranks, "experts are divided among the ranks of tensor and data parallelism")
    if draft.whole(pool.serving("replicas")) is None:
        draft.derive(pool.serving("replicas"), replicas, "one command is one replica")


def _divide(draft: Draft, key: str, pool: _Pool) -> None:
    limit, dp = draft.whole(key), draft.whole(pool.serving("dp")) or 1
    asked = draft.get(pool.job("attention_dp"))
    if limit is not None and (asked is True or draft.whole(pool.job("attention_dp")) is not None):
        draft.derive(key, max(1, limit // dp), f"{limit} on {dp} ranks of attention data parallelism")


def n_experts(model: Data) -> int:
    """Return the experts of a layer of a model; 0 without any."""
    try:
        found = load_model(model).model
    except DomainError:
        return 0
    return found.experts.n_experts if found.experts is not None else 0


def _requests(draft: Draft) -> None:
    rate, concurrency = draft.get("job.rate"), draft.whole("job.concurrency")
    paced = isinstance(rate, int | float) and 0 < rate < math.inf
    if draft.get("requests.arrival") is None and draft.get("job.client") is not None:
        if paced:
            burstiness = draft.get("requests.burstiness")
            bursts = isinstance(burstiness, int | float) and burstiness not in (0, 1)
            draft.derive("requests.arrival", "gamma" if bursts else "poisson", f"{rate} requests in a second")
            draft.derive("requests.rate", f"{rate} /s", "")
        elif concurrency is not None:
            draft.derive("requests.arrival", "closed", f"at most {concurrency} requests under way")
        else:
            draft.derive("requests.arrival", "at_once", "all requests are sent at once")
    if draft.get("requests.arrival") == "closed" and concurrency is not None and draft.get("requests.concurrency") is None:
        draft.derive("requests.concurrency", concurrency, "requests under way")
    if draft.get("requests.arrival") != "gamma":
        draft.drop("requests.burstiness")
    _lengths(draft)


def _lengths(draft: Draft) -> None:
    """Turn lengths with a relative spread into distributions."""
    spread = draft.get("job.length_spread")
    for key in ("requests.input_tokens", "requests.output_tokens"):
        length = draft.whole(key)
        if length is None or not isinstance(spread, int | float) or isinstance(spread, bool) or not 0 <= spread <= 1:
            continue
        if draft.get("job.spread_of") == "below":
            least, most = max(1, math.floor(length * spread)), length
        else:
            least, most = max(1, math.floor(length * (1 - spread))), math.ceil(length * (1 + spread))
        if least < most:
            ends: list[Data] = [least, most]
            draft.derive(key, {"uniform": ends}, f"{length} with a range ratio of {spread}")
