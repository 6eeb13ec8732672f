"""One run from a checked plan to its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from clustersim.collectives.protocols import MEASURED
from clustersim.engine.collection import collection_paused
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.provenance import UNSEEN
from clustersim.report.measure import breakdown, busiest_links, tier_use
from clustersim.report.metrics import Flag, Memory, Metrics, Parallelism, StageMemory
from clustersim.scenario.replaying import Neighbours, replay_plan
from clustersim.strategy.flops import hardware_flops, model_flops
from clustersim.strategy.memory import stage_memory
from clustersim.strategy.plan import Plan
from clustersim.topology.cluster import TIERS, Cluster
from clustersim.trace.timeline import Timeline

SCHEMA_VERSION = 1
TERA = 1e12
N_NAMED = 3
"""Groups that a flag names."""


def simulate(
    plan: Plan, cluster: Cluster, *, name: str, flags: Sequence[Flag], neighbours: Neighbours | None = None
) -> tuple[Metrics, Timeline]:
    """Return the metrics and the timeline of one training step.

    Parameters
    ----------
    plan
        What is trained and how it is spread; as many ranks as its nodes have.
    name
        Of the scenario, for the result.
    flags
        What has been assumed so far; what the simulation assumes is added to it.
    neighbours
        What else there is on the cluster.
    """
    calibration = calibration_for(cluster.node.accelerator)
    with collection_paused():
        replayed = replay_plan(plan, cluster, calibration, neighbours)
        timeline = replayed.timeline
        parts, hidden = breakdown(timeline, sends_block=not plan.strategy.overlap_p2p, pipelined=plan.strategy.pp > 1)
    assumed = (*calibration_flags(calibration), *_model_flags(plan))
    chosen = algorithm_flags(choice.algorithm for choice in timeline.collectives)
    all_flags = [*flags, *assumed, *chosen, *_uneven_flags(replayed.uneven), *_job_flags(neighbours, cluster)]
    step_s, n_ranks, strategy = timeline.step_time_s, plan.n_ranks, plan.strategy
    peak_flops_per_s = cluster.node.accelerator.peak_flops_per_s[plan.training.precision] * n_ranks
    model, hardware = model_flops(plan), hardware_flops(plan)
    tokens_per_s = plan.training.global_batch_size * plan.training.seq_length / step_s
    metrics = Metrics(
        schema_version=SCHEMA_VERSION,
        scenario=name,
        ranks=n_ranks,
        gpus=n_ranks,
        parallelism=Parallelism(dp=strategy.dp, tp=strategy.tp, pp=strategy.pp, cp=strategy.cp, ep=strategy.ep),
        step_time_s=step_s,
        samples_per_s=plan.training.global_batch_size / step_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / n_ranks,
        model_flops_per_step=model,
        hardware_flops_per_step=hardware,
        tflops_per_gpu=model / step_s / n_ranks / TERA,
        mfu=model / step_s / peak_flops_per_s,
        hfu=hardware / step_s / peak_flops_per_s,
        breakdown_s=parts,
        overlapped_communication_s=hidden,
        bubble_fraction=parts.bubble / step_s,
        memory=memory_report(plan, cluster),
        links=tier_use(timeline, _links_per_tier(cluster)),
        busiest_links=busiest_links(timeline),
        collectives=timeline.collectives,
        step_time_alone_s=replayed.alone_s,
        jobs=replayed.jobs,
        engine=timeline.engine,
        flags=tuple(all_flags),
    )
    return metrics, timeline


def memory_report(plan: Plan, cluster: Cluster) -> Memory:
    """Return the peak memory of every stage, and whether the largest fits."""
    stages = tuple(_stage(plan, stage) for stage in range(plan.strategy.pp))
    capacity_bytes = cluster.node.accelerator.memory_bytes
    peak_bytes = max(stage.peak_bytes for stage in stages)
    return Memory(fits=peak_bytes <= capacity_bytes, capacity_bytes=capacity_bytes, peak_bytes=peak_bytes, by_stage=stages)


def _stage(plan: Plan, stage: int) -> StageMemory:
    holds = stage_memory(plan, stage)
    return StageMemory(
        stage=stage,
        parameters_bytes=holds.parameters_bytes,
        gradients_bytes=holds.gradients_bytes,
        optimizer_bytes=holds.optimizer_bytes,
        activations_bytes=holds.activations_bytes,
        buffers_bytes=holds.buffers_bytes,
        peak_bytes=holds.peak_bytes,
    )


def _links_per_tier(cluster: Cluster) -> dict[str, tuple[int, float]]:
    counts = np.bincount(cluster.tier_index, minlength=len(TIERS))
    sums = np.bincount(cluster.tier_index, weights=cluster.bandwidth_bytes_per_s, minlength=len(TIERS))
    return {tier: (int(counts[index]), float(sums[index])) for index, tier in enumerate(TIERS)}


def calibration_flags(calibration: Calibration) -> tuple[Flag, ...]:
    """Return what a result with these constants must say."""
    flags = [Flag(code=code, message=message) for code, message in calibration.notes]
    unseen = [f"{calibration.name}.{cover}" for source in calibration.sources if source.url in UNSEEN for cover in source.covers]
    if unseen:
        flags.append(Flag(code="assumed_constants", message=f"assumed, and neither measured nor fitted: {', '.join(unseen)}"))
    return tuple(flags)


def _model_flags(plan: Plan) -> tuple[Flag, ...]:
    strategy = plan.strategy
    flags = [Flag(code="assumed_reserve", message="1.5 GB of every accelerator are set aside for the framework and communication buffers")]
    if plan.training.precision == "fp8":
        flags.append(Flag(code="fp8_products_only", message="fp8 applies to matrix products; casts and scaling factors cost nothing here"))
    if (strategy.data_parallel.overlap and strategy.dp > 1) or (strategy.overlap_tp and strategy.tp > 1):
        flags.append(Flag(code="no_interference", message="computation is not slowed by communication that runs beside it"))
    return tuple(flags)


def algorithm_flags(algorithms: Iterable[str]) -> tuple[Flag, ...]:
    """Return what a result must say about the algorithms of its collectives."""
    guessed = sorted(set(algorithms) - set(MEASURED))
    if not guessed:
        return ()
    message = f"no measurements of {', '.join(guessed)}; start, hops and ramp-up are those of related algorithms"
    return (Flag(code="uncalibrated_algorithm", message=message),)


def _job_flags(neighbours: Neighbours | None, cluster: Cluster) -> tuple[Flag, ...]:
    jobs = neighbours.jobs if neighbours else ()
    too_large = [job.name for job in jobs if not memory_report(job.planned.plan, cluster).fits]
    return tuple(Flag(code="job_memory", message=f"job {name} does not fit in memory, and is simulated all the same") for name in too_large)


def _uneven_flags(names: Sequence[str]) -> tuple[Flag, ...]:
    if not names:
        return ()
    shown = ", ".join(f"'{name}'" for name in names[:N_NAMED])
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    message = f"the members of {shown}{more} are not all placed alike; those of each go at the pace of their slowest"
    return (Flag(code="uneven_placement", message=message),)
