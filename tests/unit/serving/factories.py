"""Replicas with a step time that can be worked out on paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.cache_transfers import CacheLinks
from clustersim.engine.pace import StepVariation
from clustersim.engine.serving_run import Deployment, ReplicaPool, ServingRun
from clustersim.program.program import Background
from clustersim.serving.batch import FloatArray, StepBatch, StepTime
from clustersim.serving.decoding import DecodingSet
from clustersim.serving.kv_cache import BlockPool
from clustersim.serving.policies import rules_of
from clustersim.serving.requests import LognormalTokens, Requests, poisson_arrivals_s
from clustersim.serving.rules import EngineDevice, EngineRules
from clustersim.serving.scheduler import Scheduler
from clustersim.serving.speculation import SpeculativeSet
from tests.unit.engine.factories import make_machine

H100 = EngineDevice(name="h100-sxm5-80g", memory_bytes=80e9)


@dataclass(frozen=True)
class LinearSteps:
    """A step takes a base, a time for each new token, and one for each token in the cache."""

    base_s: float = 5e-3
    token_s: float = 2e-5
    context_s: float = 3e-8

    def step_s(self, batch: StepBatch) -> float:
        return self.step(batch).total_s

    def step(self, batch: StepBatch) -> StepTime:
        fixed_s = self.base_s + self.token_s * (batch.n_prefill_tokens + batch.n_decode * batch.tokens_per_decode)
        context_s = self.context_s * batch.context_tokens
        return StepTime(fixed_s + context_s, {"fixed": fixed_s, "context": context_s})

    def decode_stretch_s(self, batch: StepBatch, n_steps: int) -> FloatArray:
        context = batch.context_tokens + np.arange(n_steps, dtype=np.float64) * batch.n_decode
        return (self.base_s + self.token_s * (batch.n_prefill_tokens + batch.n_decode * batch.tokens_per_decode)) + self.context_s * context


def make_rules(engine: str = "vllm", **changes: object) -> EngineRules:
    return replace(rules_of(engine, H100), **changes)


def make_scheduler(rules: EngineRules, n_blocks: int, *, draft_tokens: int = 0, acceptance: float = 0.0, seed: int = 0) -> Scheduler:
    decoding = DecodingSet(rules.block_tokens)
    if draft_tokens:
        decoding = SpeculativeSet(rules.block_tokens, draft_tokens, acceptance, np.random.default_rng(seed))
    return Scheduler(rules=rules, pool=BlockPool(n_blocks, rules.block_tokens, caches=rules.prefix_cache), decoding=decoding)


def make_requests(count: int, *, rate_per_s: float = 6.0, seed: int = 0) -> Requests:
    generator = np.random.default_rng(seed)
    return Requests(
        input_tokens=np.minimum(LognormalTokens(900, 1900).draw(count, generator), 5000),
        output_tokens=np.minimum(LognormalTokens(150, 300).draw(count, generator), 1500),
        arrival_s=poisson_arrivals_s(rate_per_s, count, generator),
    )


def fixed_requests(count: int, n_input: int, n_output: int, arrival_s: FloatArray | None = None, **more: int) -> Requests:
    lengths = np.full(count, n_input, dtype=np.int64), np.full(count, n_output, dtype=np.int64)
    return Requests(input_tokens=lengths[0], output_tokens=lengths[1], arrival_s=arrival_s, **more)  # pyright: ignore[reportArgumentType]


def served(
    requests: Requests,
    schedulers: list[Scheduler],
    *,
    steps: LinearSteps | None = None,
    every_step: bool = False,
    router: str = "round_robin",
    decode: list[Scheduler] | None = None,
    links: CacheLinks | None = None,
    slowdowns: tuple[float, ...] = (),
    jitter: StepVariation | None = None,
) -> ServingRun:
    model = steps or LinearSteps()
    run = ServingRun(
        Deployment(
            serving=ReplicaPool(schedulers=tuple(schedulers), model=model, slowdowns=slowdowns),
            decode=ReplicaPool(schedulers=tuple(decode), model=model) if decode else None,
            links=links,
            router=router,
            jitter=jitter,
            every_step=every_step,
        ),
        requests,
    )
    run.run()
    return run


def cache_links(
    senders: tuple[tuple[int, ...], ...],
    receivers: tuple[tuple[int, ...], ...],
    *,
    bytes_per_token: float,
    background: tuple[Background, ...] = (),
) -> CacheLinks:
    """Return nodes of eight accelerators, each with an adapter of its own, on which nothing has latency and all bandwidth is had."""
    machine = make_machine(n_nodes=2)
    library = Library(cluster=machine.cluster, calibration=machine.calibration.network)
    return CacheLinks(library=library, senders=senders, receivers=receivers, bytes_per_token=bytes_per_token, background=background)
