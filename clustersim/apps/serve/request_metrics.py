"""Metrics of a finished serving run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from clustersim.apps.serve.deployment import BuiltServing, refused_text
from clustersim.apps.serve.full_load import asked_tokens_per_s, full_load_tokens_per_s, short_run_flag
from clustersim.apps.serve.served_intervals import ServedIntervals, lenders, not_measured_flag, served_intervals
from clustersim.config.cost_section import MILLION, Priced
from clustersim.config.serving_scenario import SloSpec
from clustersim.economics import HOUR_S, amount
from clustersim.engine.replicas import Replica
from clustersim.engine.serving_run import ServingRun
from clustersim.measure.metrics import TierUse
from clustersim.measure.serving_metrics import (
    BatchReport,
    EngineSettings,
    KvReport,
    PoolMemory,
    RequestCounts,
    ServingCost,
    ServingEnergy,
    ServingEngineStats,
    ServingMemory,
    ServingMetrics,
    SloCheck,
    SloReport,
    StepReport,
    TransferReport,
)
from clustersim.network.in_flight import TICK_S
from clustersim.notices import Flag
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import IntArray, LatencyStatistics, StepTerms, latency_statistics
from clustersim.serving.requests import grows_without_end

SCHEMA_VERSION: Final = 1


def _seconds(ticks: IntArray) -> FloatArray:
    return ticks.astype(np.float64) * TICK_S


class RequestLatencies:
    """Latencies of the measured requests, in seconds, by their stated definitions."""

    def __init__(self, run: ServingRun) -> None:
        requests, log = run.requests, run.log
        measured = (np.arange(len(requests)) >= requests.n_warmup) & (log.done >= 0)
        sent, first, done = log.sent[measured], log.first_token[measured], log.done[measured]
        self.n_measured = int(measured.sum())
        self.output_tokens = requests.output_tokens[measured]
        self.input_tokens = requests.input_tokens[measured]
        self.ttft_s = _seconds(first - sent)
        self.e2e_s = _seconds(done - sent)
        several = self.output_tokens > 1
        gaps = np.maximum(self.output_tokens - 1, 1)
        self.tpot_s = np.where(several, _seconds(done - first) / gaps, 0.0)
        self.several = several
        self.duration_s = (int(done.max()) - int(sent.min())) * TICK_S if self.n_measured else 0.0

    def statistics(self, run: ServingRun) -> dict[str, LatencyStatistics | None]:
        """Return mean and percentiles by name."""
        log = run.steps if run.deployment.decode is None else run.decode_steps
        return {
            "ttft": latency_statistics(self.ttft_s),
            "tpot": latency_statistics(self.tpot_s[self.several]),
            "itl": log.gaps.statistics(),
            "e2e": latency_statistics(self.e2e_s),
        }


def serving_metrics(built: BuiltServing, run: ServingRun, wall_s: float) -> ServingMetrics:
    """Return the metrics of a finished run."""
    latencies = RequestLatencies(run)
    found, gpus, duration_s, kv = latencies.statistics(run), built.n_accelerators, latencies.duration_s, _kv(built, run)
    rate = 1.0 / duration_s if duration_s else 0.0
    n_output, n_input = int(latencies.output_tokens.sum()), int(latencies.input_tokens.sum())
    full_load = full_load_tokens_per_s(built, kv.prefix_hit_fraction or 0.0)
    overloaded = _is_overloaded(run, full_load)
    binds = _rate_binds(run, overloaded=overloaded)
    borrowed = bool(lenders(built.node.accelerator, built.borrowed))
    intervals = served_intervals(found, n_output * rate, full_load if binds else None, borrowed=borrowed)
    asked = asked_tokens_per_s(built, run) if binds else None
    lasting = n_output * rate if asked is None else min(full_load, asked)
    cost, energy = _cost_and_energy(built.priced, _utilisation(run), lasting, n_input / n_output if n_output else 0.0)
    return ServingMetrics(
        schema_version=SCHEMA_VERSION,
        scenario=built.scenario.name,
        gpus=gpus,
        accelerators=built.node.accelerator.name,
        replicas=sum(pool.n_replicas for pool in built.pools),
        requests=RequestCounts(
            arrived=len(run.requests),
            completed=int((run.log.done >= 0).sum()),
            refused=len(run.log.refused),
            measured=latencies.n_measured,
        ),
        duration_s=duration_s,
        asked_requests_per_s=built.scenario.spec.requests.rate,
        requests_per_s=latencies.n_measured * rate,
        requests_per_s_per_gpu=latencies.n_measured * rate / gpus,
        output_tokens_per_s=n_output * rate,
        output_tokens_per_s_interval=intervals.output_tokens_per_s,
        full_load_output_tokens_per_s=full_load,
        rate_binds=binds,
        kernels_borrowed=borrowed,
        total_tokens_per_s=(n_output + n_input) * rate,
        output_tokens_per_s_per_gpu=n_output * rate / gpus,
        total_tokens_per_s_per_gpu=(n_output + n_input) * rate / gpus,
        ttft_s=found["ttft"],
        ttft_interval_s=intervals.ttft_s,
        tpot_s=found["tpot"],
        tpot_interval_s=intervals.tpot_s,
        itl_s=found["itl"],
        itl_interval_s=intervals.itl_s,
        e2e_s=found["e2e"],
        e2e_interval_s=intervals.e2e_s,
        slo=_slo(built.scenario.spec.slo, latencies, found, intervals, len(run.requests) - run.requests.n_warmup),
        kv=kv,
        settings=_settings(built, run),
        batch=_batch(run),
        step_s=_steps(run),
        memory=_memory(built, run),
        links=_links(run),
        transfers=_transfers(built, run),
        overloaded=overloaded,
        cost=cost,
        energy=energy,
        engine=_engine(run, wall_s),
        flags=_flags(built, run, full_load, binds=binds, overloaded=overloaded),
    )


def _engine(run: ServingRun, wall_s: float) -> ServingEngineStats:
    return ServingEngineStats(
        events=run.n_events,
        replicas=len(run.replicas),
        steps=run.steps.n_steps + run.decode_steps.n_steps,
        wall_s=wall_s,
        events_per_s=run.n_events / wall_s if wall_s > 0.0 else 0.0,
    )


def _flags(built: BuiltServing, run: ServingRun, full_load_tokens_per_s: float, *, binds: bool, overloaded: bool) -> tuple[Flag, ...]:
    """Return all notices."""
    flags = [*built.flags]
    if run.log.refused:
        flags.append(Flag(code="refused", message=refused_text(built, len(run.log.refused))))
    if overloaded:
        rate = full_load_tokens_per_s / float(built.asked.requests.output_tokens.mean())
        message = (
            "requests come faster than they are answered: the queue grows without end, and latencies with the length of the run;"
            f" full batches answer about {rate:.3g} requests/s"
        )
        flags.append(Flag(code="overload", message=message))
    short = short_run_flag(built, run, full_load_tokens_per_s) if binds else None
    return (*flags, *filter(None, (not_measured_flag(built.node.accelerator, built.borrowed), short)))


def _is_overloaded(run: ServingRun, full_load_tokens_per_s: float) -> bool:
    """Return whether requests come faster than they are answered.

    Requests under way grow until the end of arrivals, and so do those without a first token, or more tokens are asked for than full batches
    give. Batches alone also grow in the beginning of a run that is short beside its answers.
    """
    log, arrival_s = run.log, run.requests.arrival_s
    answered = log.done >= 0
    if arrival_s is None or not grows_without_end(log.sent[answered], log.done[answered]):
        return False
    asked_tokens_per_s = float(run.requests.output_tokens[answered].sum()) / float(arrival_s[-1] - arrival_s[0])
    return asked_tokens_per_s > full_load_tokens_per_s or grows_without_end(log.sent[answered], log.first_token[answered])


def _rate_binds(run: ServingRun, *, overloaded: bool) -> bool:
    """Return whether requests come at an open rate, and are answered as fast."""
    arrival_s = run.requests.arrival_s
    return arrival_s is not None and float(arrival_s[-1]) > 0.0 and not overloaded


def _utilisation(run: ServingRun) -> float:
    """Return the share of the time in which replicas compute, from the first request to the last token."""
    whole = int(run.log.done.max()) - int(run.log.sent.min())
    busy = run.steps.busy_ticks + run.decode_steps.busy_ticks
    return min(1.0, busy / (whole * len(run.replicas))) if whole > 0 else 0.0


def _slo(
    spec: SloSpec | None,
    latencies: RequestLatencies,
    found: Mapping[str, LatencyStatistics | None],
    intervals: ServedIntervals,
    n_arrived: int,
) -> SloReport | None:
    if spec is None:
        return None
    limits = {name: limit for name in SloSpec.model_fields if (limit := getattr(spec, name)) is not None}
    checks: list[SloCheck] = []
    keeps = np.ones(latencies.n_measured, dtype=bool)
    for name, limit_s in limits.items():
        latency, _, statistic = name.partition("_")
        statistics = found[latency]
        value: float | None = None if statistics is None else getattr(statistics, statistic)
        expected_s = None if statistics is None or value is None else intervals.of(name, value, statistics.mean)
        holds = value is None or value <= limit_s
        checks.append(SloCheck(name=name, limit_s=limit_s, found_s=value, interval_s=expected_s, holds=holds))
        # A request's own gaps between tokens are known by their mean, which is its time per output token.
        own = {"ttft": latencies.ttft_s, "tpot": latencies.tpot_s, "itl": latencies.tpot_s, "e2e": latencies.e2e_s}[latency]
        keeps &= own <= limit_s
    n_kept = int(keeps.sum())
    return SloReport(
        met=all(check.holds for check in checks),
        attained_fraction=n_kept / n_arrived,
        goodput_requests_per_s=n_kept / latencies.duration_s if latencies.duration_s else 0.0,
        checks=tuple(checks),
    )


def _kv(built: BuiltServing, run: ServingRun) -> KvReport:
    last, pools = built.pools[-1], [replica.scheduler.pool for replica in run.replicas]
    asked = sum(pool.n_prefix_asked for pool in pools)
    return KvReport(
        capacity_tokens=last.kv_tokens,
        predicted=built.scenario.spec.serving.kv_tokens == "auto",
        bytes_per_token=last.capacity.bytes_per_token,
        sequences_with_states=last.capacity.max_num_seqs if last.capacity.states_limit else None,
        peak_fraction=_peak_fraction(run.replicas),
        preemptions=sum(replica.scheduler.n_preemptions for replica in run.replicas),
        prefix_hit_fraction=sum(pool.n_prefix_hit for pool in pools) / asked if asked else None,
    )


def _batch(run: ServingRun) -> BatchReport:
    logs = (run.steps, run.decode_steps)
    n_steps = sum(log.n_steps for log in logs)
    return BatchReport(
        mean_sequences=sum(log.n_sequences for log in logs) / max(n_steps, 1),
        mean_tokens=sum(log.n_tokens for log in logs) / max(n_steps, 1),
        steps=n_steps,
    )


def _settings(built: BuiltServing, run: ServingRun) -> tuple[EngineSettings, ...]:
    return tuple(
        EngineSettings(
            role=pool.role,
            max_batched_tokens=pool.rules.max_batched_tokens // pool.layout.dp,
            max_graph_tokens=pool.rules.largest_graph,
            max_num_seqs=pool.rules.max_num_seqs // pool.layout.dp,
            memory_fraction=pool.rules.memory_fraction,
            without_graphs_fraction=log.n_without_graphs / max(log.decode.n_steps, 1),
        )
        for pool, log in zip(built.pools, (run.steps, run.decode_steps), strict=False)
    )


def _steps(run: ServingRun) -> StepReport:
    logs = (run.steps, run.decode_steps)
    kinds = [kind for log in logs for kind in (log.mixed, log.decode)]
    n_steps = max(sum(kind.n_steps for kind in kinds), 1)
    terms: dict[str, float] = {}
    for kind in kinds:
        for term, seconds in kind.seconds().items():
            terms[term] = terms.get(term, 0.0) + seconds / n_steps
    return StepReport(
        mean=sum(kind.busy_ticks for kind in kinds) * TICK_S / n_steps,
        by_term=terms,
        prefill_mean=_mean_s([log.mixed for log in logs]),
        decode_mean=_mean_s([log.decode for log in logs]),
    )


def _mean_s(kinds: Sequence[StepTerms]) -> float | None:
    n_steps = sum(kind.n_steps for kind in kinds)
    return sum(kind.busy_ticks for kind in kinds) * TICK_S / n_steps if n_steps else None


def _peak_fraction(replicas: Sequence[Replica]) -> float:
    return max(each.scheduler.pool.peak_used / each.scheduler.pool.n_blocks for each in replicas)


def _memory(built: BuiltServing, run: ServingRun) -> ServingMemory:
    capacity, n_first = built.node.accelerator.memory_bytes, len(run.deployment.serving.schedulers)
    pools = tuple(
        PoolMemory(
            role=pool.role,
            kv_tokens=pool.kv_tokens,
            kv_peak_fraction=_peak_fraction(replicas),
            peak_bytes=capacity - pool.capacity.by_category.get("reserve", 0.0),
            by_category=dict(pool.capacity.by_category),
        )
        for pool, replicas in zip(built.pools, (run.replicas[:n_first], run.replicas[n_first:]), strict=False)
    )
    last = pools[-1]
    return ServingMemory(fits=True, capacity_bytes=capacity, peak_bytes=last.peak_bytes, by_category=last.by_category, by_pool=pools)


def _transfers(built: BuiltServing, run: ServingRun) -> TransferReport | None:
    if built.links is None:
        return None
    count = len(run.transfer_s)
    moved = run.requests.input_tokens[(run.log.done >= 0) & (run.requests.output_tokens > 1)]
    moved_bytes = float(moved.sum()) * built.links.bytes_per_token + len(moved) * built.links.state_bytes
    return TransferReport(count=count, mean_s=sum(run.transfer_s) / count if count else 0.0, bytes=moved_bytes)


def _links(run: ServingRun) -> tuple[TierUse, ...]:
    """Return the use of the links that KV caches cross."""
    if run.transfers is None:
        return ()
    tiers = run.transfers.tiers((int(run.log.done.max()) - int(run.log.sent.min())) * TICK_S)
    return tuple(
        TierUse(tier=tier, mean_utilisation=mean, peak_utilisation=most, bytes=moved) for tier, (mean, most, moved) in tiers.items()
    )


def _cost_and_energy(
    priced: Priced | None, utilisation: float, output_per_s: float, n_inputs: float
) -> tuple[ServingCost | None, ServingEnergy | None]:
    """Return cost and energy, for so many input tokens beside each output token."""
    if priced is None or not output_per_s:
        return None, None
    power_w = priced.machine_w(utilisation)
    output, total, hour = (
        amount(priced.prices, gpu_s=seconds * priced.n_accelerators, machine_j=seconds * power_w)
        for seconds in (MILLION / output_per_s, MILLION / (output_per_s * (1.0 + n_inputs)), HOUR_S)
    )
    return (
        ServingCost(prices=priced.prices, usd_per_hour=hour.usd, per_million_output_tokens=output, per_million_tokens=total),
        ServingEnergy(utilisation_fraction=utilisation, power_w=power_w, joules_per_output_token=power_w / output_per_s),
    )
