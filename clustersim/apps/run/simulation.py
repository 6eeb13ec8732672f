"""One run from a checked plan to its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import fsum
from statistics import fmean

import numpy as np

from clustersim.apps.run.replaying import NOBODY, ONE_EVEN_STEP, Conditions, Neighbours, ReplayedPlan, in_own_time_of, in_turn, replay_plan
from clustersim.collection import collection_paused
from clustersim.collectives.timing import MEASURED
from clustersim.engine.spread import CHAOTIC, VARIATION
from clustersim.engine.uneven_ranks import division_of, slow_among, slow_ranks
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.calibrations import calibration_of
from clustersim.hardware.provenance import UNSEEN
from clustersim.measure.memory_use import memory_curves
from clustersim.measure.metrics import (
    Breakdown,
    ByDimension,
    ExpertsReport,
    Memory,
    Metrics,
    Parallelism,
    StageMemory,
    waited_for_experts_s,
)
from clustersim.measure.step_breakdown import breakdown, busiest_links, shared_links, tier_use
from clustersim.measure.steps_report import StepsReport, in_whole_steps, steps_report
from clustersim.network.in_flight import LONGEST_S
from clustersim.notices import Flag
from clustersim.parallel.contributors import ALLOCATOR_FRACTION, stage_holds, stage_peak
from clustersim.parallel.contributors.model_state import FRAMEWORK_BYTES
from clustersim.parallel.division import place
from clustersim.parallel.flops import step_flops
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.shard import WHOLE_VOCABULARY, head_vector_bytes
from clustersim.parallel.sharding_groups import expert_grid
from clustersim.parallel.stage import Stage, stages_of
from clustersim.parallel.step_settings import Precision, Training
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.program.holds import CATEGORIES, held_bytes
from clustersim.progress import phase
from clustersim.report.facts import memory_text
from clustersim.report.subject import domains_text
from clustersim.topology.cluster import TIERS
from clustersim.topology.wired import Cluster
from clustersim.trace.memory_curves import Curves, MemoryCurve
from clustersim.trace.timeline import Timeline, ranks_text
from clustersim.workloads.model import Model
from clustersim.workloads.operators import VECTOR_BYTES


def experts_report(local: LocalModel, strategy: Strategy, timeline: Timeline) -> ExpertsReport | None:
    """Return how tokens spread over the experts of a model; None for a model without any."""
    model = local.model
    if model.experts is None:
        return None
    layers = [layer for layer in range(model.n_layers) if model.has_experts(layer)]
    spreads = [local.expert_spread.dispatch(layer) for layer in layers]
    even = all(max(spread.rows) - min(spread.rows) <= 1 for spread in spreads)
    hottest, times = Counter(spread.hottest for spread in spreads).most_common(1)[0]
    fullest = max((spread for spread in spreads if spread.hottest == hottest), key=lambda spread: max(spread.of(hottest)))
    kept, dropped = sum(sum(spread.rows) for spread in spreads), sum(spread.dropped for spread in spreads)
    load = strategy.expert_load
    return ExpertsReport(
        load=load.file or load.kind,
        tokens_per_expert=kept / len(spreads) / model.experts.n_experts,
        hottest_expert=fullest.rows.index(max(fullest.of(hottest))),
        expert_skew=1.0 if even else fmean(max(spread.rows) * len(spread.rows) / sum(spread.rows) for spread in spreads),
        rank_skew=1.0 if even else fmean(spread.skew for spread in spreads),
        hot_ranks="" if even or strategy.ep == 1 else _ranks_at(strategy, hottest),
        hot_layers_fraction=1.0 if even else times / len(spreads),
        dropped_fraction=dropped / (kept + dropped),
        waited_s=waited_for_experts_s(timeline),
    )


def _ranks_at(strategy: Strategy, place_of_experts: int) -> str:
    mesh = place(strategy)
    grids = (expert_grid(strategy, mesh, stage) for stage in range(strategy.pp))
    return ranks_text(np.concatenate([grid[:, place_of_experts].reshape(-1) for grid in grids]))


SCHEMA_VERSION = 1
TERA = 1e12
MASKED_SHARE = 0.2
"""Share of the counted FLOPs from which on MFU without them is worth telling."""
N_NAMED = 3
"""Groups that a flag names."""


def simulate(
    plan: Plan,
    cluster: Cluster,
    *,
    name: str,
    flags: Sequence[Flag],
    neighbours: Neighbours = NOBODY,
    conditions: Conditions = ONE_EVEN_STEP,
) -> tuple[Metrics, Timeline]:
    """Return the metrics and the timeline of one training step, or of several.

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
    conditions
        How often, and what is unlike between ranks; one step of like ranks when left out.
    """
    calibration = calibration_of([node for node, _ in cluster.kinds])
    with collection_paused():
        replayed = replay_plan(plan, cluster, calibration, neighbours, conditions)
        with phase("measure"):
            replayed = replace(replayed, timeline=_whole_steps(plan, replayed.timeline, curves=conditions.settings.links))
            metrics = _metrics(plan, cluster, replayed, neighbours, conditions, name)
    return replace(metrics, flags=(*flags, *calibration_flags(calibration), *metrics.flags)), replayed.timeline


def _metrics(plan: Plan, cluster: Cluster, replayed: ReplayedPlan, neighbours: Neighbours, conditions: Conditions, name: str) -> Metrics:
    """Return the metrics of a replayed plan, with the notices of the simulation."""
    strategy, timeline, stages, in_full = plan.strategy, replayed.timeline, stages_of(plan), conditions.settings.links
    own = in_own_time_of(strategy, timeline)
    parts, hidden = breakdown_of(strategy, own)
    memory = memory_report(stages, cluster, timeline)
    step_s, n_ranks = own.step_time_s, plan.n_ranks
    peak_flops_per_s = _peak_flops_per_s(plan.training.precision, n_ranks, cluster, conditions)
    used = _used_share(strategy, timeline)
    flops = step_flops(plan.model, plan.training, plan.strategy)
    model, hardware = used * flops.model, used * flops.hardware
    samples_per_s = used * plan.training.global_batch_size / step_s
    tokens_per_s = samples_per_s * plan.training.seq_length
    mfu = model / step_s / peak_flops_per_s
    return Metrics(
        schema_version=SCHEMA_VERSION,
        scenario=name,
        ranks=n_ranks,
        gpus=n_ranks,
        accelerators=", ".join(dict.fromkeys(node.accelerator.name for node, _ in cluster.kinds)),
        domains=_domains(cluster),
        parallelism=Parallelism(dp=strategy.dp, tp=strategy.tp, pp=strategy.pp, cp=strategy.cp, ep=strategy.ep),
        trained=_trained(plan.training),
        step_time_s=step_s,
        samples_per_s=samples_per_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / n_ranks,
        model_flops_per_step=model,
        hardware_flops_per_step=hardware,
        tflops_per_gpu=model / step_s / n_ranks / TERA,
        mfu=mfu,
        hfu=hardware / step_s / peak_flops_per_s,
        breakdown_s=parts,
        overlapped_communication_s=hidden,
        bubble_fraction=parts.bubble / step_s,
        memory=memory,
        links=tier_use(own, _links_per_tier(cluster)) if in_full else (),
        busiest_links=busiest_links(own),
        collectives=timeline.collectives,
        step_time_alone_s=replayed.alone_s,
        jobs=replayed.jobs,
        shared_links=shared_links(own, name),
        steps=_steps(plan.training.global_batch_size, n_ranks / strategy.pp, timeline, _slow(n_ranks, timeline, neighbours, conditions)),
        experts=experts_report(stages[0].local, strategy, timeline),
        engine=timeline.engine,
        flags=(
            *_model_flags(stages[0]),
            *_room_flags(memory),
            *_pace_flags(plan.model, strategy, conditions),
            *algorithm_flags(choice.algorithm for choice in timeline.collectives),
            *_timeline_flags(strategy, timeline),
            *_uneven_flags(replayed.uneven),
            *_job_flags(neighbours, cluster),
            *_mask_flags(flops.masked / model, mfu=mfu),
        ),
    )


def _whole_steps(plan: Plan, timeline: Timeline, *, curves: bool) -> Timeline:
    """Return the whole steps of a timeline, with the memory over time if asked for."""
    whole = in_whole_steps_of(plan.strategy, timeline)
    return replace(whole, memory=memory_curves(whole, list(map(stage_holds, stages_of(plan))))) if curves else whole


def _used_share(strategy: Strategy, timeline: Timeline) -> float:
    """Return the share of the batch whose gradients are not too late for an update."""
    return 1.0 - (strategy.data_parallel.backup_workers or 0) / len(timeline.rank_classes)


def _domains(cluster: Cluster) -> str:
    """Return the nodes of each kind and the NVLink domains that several of them share; empty where each has its own."""
    shared = [(count, text) for node, count in cluster.kinds if (text := domains_text(node, count))]
    return " and ".join(f"{count:,} node{'' if count == 1 else 's'}{text}" for count, text in shared)


def in_whole_steps_of(strategy: Strategy, timeline: Timeline) -> Timeline:
    """Return the timeline of a plan with the step time that the whole steps of its workers give, where these go at their own pace."""
    return in_whole_steps(timeline) if strategy.data_parallel.mode == "async" else timeline


def breakdown_of(strategy: Strategy, timeline: Timeline) -> tuple[Breakdown, ByDimension]:
    """Return the parts of the step time of a plan, and the overlapped communication."""
    return breakdown(timeline, sends_block=not strategy.overlap_p2p, pipelined=strategy.pp > 1)


def _mask_flags(share: float, *, mfu: float) -> tuple[Flag, ...]:
    """Return what MFU would be without the pairs that a causal mask spares, where these are a large share of what it counts."""
    if share < MASKED_SHARE:
        return ()
    without = 100 * mfu * (1 - share)
    message = f"{100 * share:.0f} % of the counted FLOPs are attention that a causal mask spares; without them MFU is {without:.1f} %"
    return (Flag(code="masked_attention_counted", message=message),)


def _peak_flops_per_s(precision: Precision, n_ranks: int, cluster: Cluster, conditions: Conditions) -> float:
    """Return what all accelerators of the plan could do together."""
    if conditions.uneven is None:
        return cluster.node.accelerator.peak_flops_per_s[precision] * n_ranks
    return fsum(node.accelerator.peak_flops_per_s[precision] * node.n_accelerators for node in conditions.uneven.nodes)


def _slow(n_ranks: int, timeline: Timeline, neighbours: Neighbours, conditions: Conditions) -> tuple[str, ...]:
    """Return for each class the ranks of it that are slower than the others."""
    if conditions.uneven is None:
        return ()
    of_classes = [rank_class.ranks for rank_class in timeline.rank_classes]
    if neighbours:
        per_node = n_ranks // len(neighbours.nodes)
        of_classes = [np.searchsorted(neighbours.nodes, ranks // per_node) * per_node + ranks % per_node for ranks in of_classes]
    return tuple(slow_among(conditions.uneven, ranks) for ranks in of_classes)


def _pace_flags(model: Model, strategy: Strategy, conditions: Conditions) -> tuple[Flag, ...]:
    """Return which ranks go at the pace of slower ones that they work with in every layer or add up with before anybody else."""
    if conditions.uneven is None:
        return ()
    division = division_of(strategy, conditions.uneven, has_experts=model.experts is not None)
    pairs = [
        (each.name, ranks) for each, ranks in zip(division.rank_classes(), slow_ranks(division, conditions.uneven), strict=True) if ranks
    ]
    return tuple(Flag(code="pace_of_slowest", message=f"{name} go at the pace of {ranks}") for name, ranks in pairs)


def _steps(batch: int, ranks_per_stage: float, timeline: Timeline, slow: Sequence[str]) -> StepsReport | None:
    if timeline.steps is None:
        return None
    samples = [batch * rank_class.n_ranks / ranks_per_stage for rank_class in timeline.rank_classes]
    return steps_report(timeline.steps, timeline, samples, slow=slow)


def memory_report(stages: Sequence[Stage], cluster: Cluster, timeline: Timeline | None = None) -> Memory:
    """Return the peak memory of every stage, and whether the largest fits.

    Parameters
    ----------
    timeline
        With memory over time, for the moment of each peak; of a plan that was not replayed it is not known.
    """
    classes = timeline.rank_classes if timeline else ()
    memory = timeline.memory if timeline else ()
    written = memory.written if isinstance(memory, Curves) else memory
    curves = {classes[curve.rank_class].stage: curve for curve in reversed(written)}
    by_stage = tuple(_stage(stage, curves.get(stage.number)) for stage in stages)
    capacity_bytes = min(node.accelerator.memory_bytes for node, _ in cluster.kinds)
    peak_bytes = max(stage.peak_bytes for stage in by_stage)
    return Memory(fits=peak_bytes <= capacity_bytes, capacity_bytes=capacity_bytes, peak_bytes=peak_bytes, by_stage=by_stage)


def _stage(stage: Stage, curve: MemoryCurve | None) -> StageMemory:
    held = stage_peak(stage)
    return StageMemory(
        stage=stage.number,
        **{f"{category}_bytes": held_bytes(held, category=category) for category in CATEGORIES},
        peak_bytes=held_bytes(held),
        peak_at_s=curve.peak_at_s if curve else None,
        peak_during=curve.peak_during if curve else None,
    )


def _links_per_tier(cluster: Cluster) -> dict[str, tuple[int, float]]:
    tiers, bandwidths_bytes_per_s = cluster.tier_index, cluster.bandwidth_bytes_per_s
    n_of_kind = np.bincount(tiers.kinds, minlength=len(tiers.values))
    counts = np.bincount(tiers.values, weights=n_of_kind, minlength=len(TIERS))
    sums = np.bincount(tiers.values, weights=n_of_kind * bandwidths_bytes_per_s.values, minlength=len(TIERS))
    return {tier: (int(counts[index]), float(sums[index])) for index, tier in enumerate(TIERS)}


def calibration_flags(calibration: Calibration) -> tuple[Flag, ...]:
    """Return the notices of a result with these constants."""
    flags = [Flag(code=code, message=message) for code, message in calibration.notes]
    unseen = [f"{calibration.name}.{cover}" for source in calibration.sources if source.url in UNSEEN for cover in source.covers]
    if unseen:
        flags.append(Flag(code="assumed_constants", message=f"assumed, and neither measured nor fitted: {', '.join(unseen)}"))
    return tuple(flags)


def _model_flags(stage: Stage) -> tuple[Flag, ...]:
    training, strategy = stage.training, stage.strategy
    message = f"{memory_text(FRAMEWORK_BYTES)} of every accelerator are set aside for the framework and communication buffers"
    flags = [Flag(code="assumed_reserve", message=message)]
    if training.precision == "fp8":
        flags.append(Flag(code="fp8_products_only", message="fp8 applies to matrix products, and every cast is a kernel of its own"))
        if training.fp8_scaling == "nvfp4":
            message = "products of 4 bits are taken to reach as much of their peak as those of 8; none was measured"
            flags.append(Flag(code="assumed_fp4_rate", message=message))
    if head_vector_bytes(stage.local, training.precision) < VECTOR_BYTES:
        message = "rows of logits are no multiples of 16 bytes, and the head's products are taken to lose by it what they do on an A100;"
        flags.append(Flag(code="unaligned_vocabulary", message=f"{message} training.vocabulary_multiple: {WHOLE_VOCABULARY} pads them"))
    if stage.local.model.experts is not None:
        message = "products of several experts are timed with the constants of single products; no grouped ones were measured"
        flags.append(Flag(code="uncalibrated_experts", message=message))
        if training.grouped_experts == "fused":
            message = "what is joined to the products of experts, casts among it, is counted by its bytes; no such kernel was measured"
            flags.append(Flag(code="joined_experts", message=message))
    if stage.local.model.position == "yarn" and stage.local.numerics.kernels == "fused":
        message = "YaRN is rotated by separate kernels, as in Megatron-Core with Transformer Engine; a compiler fuses them"
        flags.append(Flag(code="unfused_rotation", message=message))
    if stage.local.adapters and strategy.tp > 1:
        message = "adapters are divided as their layers are, and partial results are summed with those of the layers"
        flags.append(Flag(code="adapters_divided", message=message))
    packed = stage.local.whole.packed
    if packed and packed.busiest > packed.mean and strategy.dp > 1:
        more = f"{100 * (packed.busiest / packed.mean - 1):.2g} %"
        message = (
            f"documents vary, and all replicas wait for the one with most of them: attention is taken to be {more} longer than the mean"
        )
        flags.append(Flag(code="uneven_documents", message=message))
    served = strategy.data_parallel.service is not None and strategy.data_parallel.overlap
    if served or (strategy.overlap_tp != "none" and strategy.tp > 1) or (strategy.overlap_p2p and strategy.pp > 1):
        message = "computation is not slowed by tensor-parallel collectives, sends, pushes and pulls that run beside it"
        flags.append(Flag(code="no_interference", message=message))
    return tuple(flags)


def _room_flags(memory: Memory) -> tuple[Flag, ...]:
    """Return a warning if the allocated memory fits and the reserved memory may not."""
    reserved_bytes = memory.peak_bytes + ALLOCATOR_FRACTION * (memory.peak_bytes - FRAMEWORK_BYTES)
    if not memory.fits or reserved_bytes <= memory.capacity_bytes:
        return ()
    share, room = f"{100 * ALLOCATOR_FRACTION:g} %", memory_text(memory.capacity_bytes - memory.peak_bytes)
    message = f"what is allocated fits and leaves {room}; an allocator that reserves {share} more, as was measured, would run out of memory"
    return (Flag(code="allocator_reserve", message=message),)


def algorithm_flags(algorithms: Iterable[str]) -> tuple[Flag, ...]:
    """Return the notices on the algorithms of collectives."""
    guessed = sorted(set(algorithms) - set(MEASURED))
    if not guessed:
        return ()
    message = f"no measurements of {', '.join(guessed)}; start, hops and ramp-up are those of related algorithms"
    return (Flag(code="uncalibrated_algorithm", message=message),)


def _job_flags(neighbours: Neighbours, cluster: Cluster) -> tuple[Flag, ...]:
    too_large = [job.name for job in neighbours.jobs if not memory_report(stages_of(job.planned.plan), cluster).fits]
    return tuple(Flag(code="job_memory", message=f"job {name} does not fit in memory, and is simulated all the same") for name in too_large)


def _timeline_flags(strategy: Strategy, timeline: Timeline) -> Iterator[Flag]:
    """Yield notices on groups that differ and are replayed together, a chaotic step, times that are rounded, and stages that take turns."""
    engine = timeline.engine
    where = {"nodes": "on links of the fabric", "none": "on any link"}.get(engine.told_apart)
    if where is not None:
        message = f"groups that differ {where} are too many to be told apart, and go at the pace of the slowest; --no-fold replays each"
        yield Flag(code="folded_together", message=message)
    if engine.spread > CHAOTIC:
        varied, moved = f"{100 * VARIATION:g} %", f"{100 * engine.spread:.2g} %"
        message = f"contention makes the step chaotic: when computation varies by {varied}, the step varies by {moved} and more"
        yield Flag(code="chaotic_step", message=message)
    if timeline.duration_s > LONGEST_S:
        message = f"{timeline.duration_s / 3600:,.0f} hours are replayed; times after 36 are rounded, and ties may be broken"
        yield Flag(code="rounded_ticks", message=message)
    if in_turn(strategy, timeline):
        message = "each stage begins its next step when it has ended one; the step time is that of the stage that takes longest"
        yield Flag(code="stages_in_turn", message=message)


def _uneven_flags(names: Sequence[str]) -> tuple[Flag, ...]:
    if not names:
        return ()
    shown = ", ".join(f"'{name}'" for name in names[:N_NAMED])
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    message = f"the members of {shown}{more} are not all placed alike; those of each go at the pace of their slowest"
    return (Flag(code="uneven_placement", message=message),)


def _trained(training: Training) -> str:
    adapters = f"LoRA rank {training.lora_rank}" if training.lora_rank else ""
    documents = training.document_tokens
    packed = f"packed documents of {'' if documents.p90 is None else 'on average '}{documents.mean:,.4g} tokens" if documents else ""
    return ", ".join(filter(None, (adapters, packed)))
