"""A timeline and its metrics made by hand, for everything that shows results: round durations, no engine, no hardware.

Forward passes take 10 ms, backward passes 20 ms, a transfer 0.5 ms; the arithmetic can be followed on paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import fsum

import numpy as np

from clustersim.measure.memory_use import memory_curves
from clustersim.measure.metrics import Breakdown, BusyLink, ByDimension, Memory, Metrics, Parallelism, StageMemory, TierUse
from clustersim.notices import Flag
from clustersim.program.holds import FORWARD_TO_BACKWARD, Category, Hold, held_bytes
from clustersim.trace.timeline import (
    CollectiveChoice,
    EngineStats,
    LinkUse,
    Meeting,
    RankClass,
    Span,
    Timeline,
)
from tests.golden.passes_by_hand import (
    BUCKET_BYTES,
    BUCKET_S,
    HOST_S,
    KEPT_BYTES,
    N_BUCKETS,
    OPTIMIZER_S,
    RANKS_PER_STAGE,
    TRANSFER_BYTES,
    Replay,
    order_of,
)


def end_of_step(stage: int, last: Span) -> Iterator[Span]:
    """Yield gradient buckets that start half-way through the last backward pass, then the optimizer."""
    bucket_end_s = last.start_s + (last.end_s - last.start_s) / 2
    for bucket in range(N_BUCKETS):
        start_s, bucket_end_s = bucket_end_s, bucket_end_s + BUCKET_S
        yield Span(
            rank_class=stage,
            stream="dp",
            kind="communication",
            name=f"reduce_scatter {bucket}",
            start_s=start_s,
            end_s=bucket_end_s,
            dimension="dp",
            bytes=BUCKET_BYTES,
        )
    start_s = max(bucket_end_s, last.end_s)
    yield Span(
        rank_class=stage,
        stream="compute",
        kind="optimizer",
        name="optimizer",
        start_s=start_s,
        end_s=start_s + OPTIMIZER_S,
        compute_s=OPTIMIZER_S,
    )


def reference_holds(stage: int, n_stages: int, n_chunks: int = 1) -> list[Hold]:
    """Return what a rank of a stage holds, all of it round: the first and the last one also the ends of the model."""
    ends = 2e9 if stage in {0, n_stages - 1} else 0.0
    always: dict[Category, float] = {"parameters": 16e9 + ends, "gradients": 8e9 + ends, "optimizer": 6e9, "buffers": 1.5e9}
    states = [Hold(category=category, owner="state", bytes=size) for category, size in always.items()]
    kept = Hold(category="activations", owner="activations", bytes=KEPT_BYTES / n_chunks, interval=FORWARD_TO_BACKWARD)
    return [*states, *(replace(kept, chunk=chunk) for chunk in range(n_chunks))]


@cache
def reference_timeline(
    n_stages: int = 4, n_micro_batches: int = 8, n_chunks: int = 1, *, data_parallel: bool = True, ranks_per_stage: int = RANKS_PER_STAGE
) -> Timeline:
    """Return one step of 1F1B (interleaved with several chunks), replayed by hand."""
    replay = Replay(n_stages, n_chunks, n_micro_batches, free_s=[0.0] * n_stages)
    waiting = [order_of(stage, n_stages, n_micro_batches, n_chunks) for stage in range(n_stages)]
    for order in waiting:
        order.reverse()
    while any(waiting):
        runnable = [
            (stage, ready) for stage, order in enumerate(waiting) if order and (ready := replay.ready_s(stage, order[-1])) is not None
        ]
        assert runnable, "the hand-made schedule waits for itself"
        for stage, ready in runnable:
            replay.run(stage, waiting[stage].pop(), ready)
    for stage in range(n_stages):
        last = max((span for span in replay.spans if span.rank_class == stage and span.stream == "compute"), key=lambda span: span.end_s)
        *buckets, optimizer = end_of_step(stage, last)
        if data_parallel:
            replay.spans += [*buckets, optimizer]
        else:
            replay.spans.append(replace(optimizer, start_s=last.end_s, end_s=last.end_s + OPTIMIZER_S))
    step_s = max(span.end_s for span in replay.spans) + HOST_S
    for stage in range(n_stages):
        replay.spans.append(Span(rank_class=stage, stream="compute", kind="host", name="host", start_s=step_s - HOST_S, end_s=step_s))
    timeline = Timeline(
        rank_classes=tuple(
            RankClass(
                name=f"stage {stage}",
                stage=stage,
                representative_rank=stage * ranks_per_stage,
                ranks=stage * ranks_per_stage + np.arange(ranks_per_stage),
            )
            for stage in range(n_stages)
        ),
        spans=tuple(sorted(replay.spans, key=lambda span: (span.rank_class, span.stream, span.start_s))),
        step_time_s=step_s,
        links=reference_links(step_s),
        collectives=reference_choices(),
        engine=EngineStats(events=4321, n_tasks=1234, ranks=n_stages * ranks_per_stage, rank_classes=n_stages, folded=True, wall_s=0.25),
    )
    return replace(timeline, memory=memory_curves(timeline, [reference_holds(stage, n_stages, n_chunks) for stage in range(n_stages)]))


def reference_links(step_s: float) -> tuple[LinkUse, ...]:
    """Return three groups of links with round loads, on one of which sends and buckets met."""
    return tuple(
        LinkUse(
            tier=tier,
            name=name,
            n_links=n_links,
            bandwidth_bytes_per_s=bandwidth,
            bytes=mean * bandwidth * step_s,
            busy_s=1.25 * mean * step_s,
            peak_utilisation=peak,
            users=users,
            meetings=meetings,
        )
        for tier, name, n_links, bandwidth, mean, peak, users, meetings in (
            ("nvlink", "gpu 0 to nvswitch", 1024, 450e9, 0.25, 0.8, ("tp all-reduce",), ()),
            ("nic", "nic 0 to leaf 0", 1024, 50e9, 0.0625, 1.0, ("pp F 0->1", "dp all-reduce"), REFERENCE_MEETINGS),
            ("spine", "leaf 0 to spine 0", 512, 50e9, 0.03125, 0.5, ("dp all-reduce",), REFERENCE_MEETINGS[1:]),
        )
    )


REFERENCE_MEETINGS = (
    Meeting(names=("dp all-reduce", "pp F 0->1"), seconds=1.5e-3),
    Meeting(names=("dp all-reduce",), seconds=0.25e-3),
)


def reference_choices() -> tuple[CollectiveChoice, ...]:
    """Return how collectives of the reference step were performed; the small all-reduce goes another way than the large one."""
    return (
        CollectiveChoice(dimension="tp", op="all_reduce", ranks=8, bytes=64e6, algorithm="nvls", protocol="simple"),
        CollectiveChoice(dimension="tp", op="all_reduce", ranks=8, bytes=48e3, algorithm="ring", protocol="ll"),
        CollectiveChoice(dimension="pp", op="send", ranks=2, bytes=TRANSFER_BYTES, algorithm="direct", protocol="simple"),
        CollectiveChoice(dimension="dp", op="all_reduce", ranks=16, bytes=BUCKET_BYTES, algorithm="nvls_tree", protocol="simple"),
        CollectiveChoice(dimension="dp", op="all_reduce", ranks=16, bytes=BUCKET_BYTES / 2, algorithm="nvls_tree", protocol="simple"),
    )


def _overlap_s(pieces: list[tuple[float, float]], busy: list[tuple[float, float]]) -> float:
    """Return how much of the pieces lies inside the busy stretches, which are in order and apart."""
    total_s, ahead = 0.0, 0
    for start, end in sorted(pieces):
        while ahead < len(busy) and busy[ahead][1] <= start:
            ahead += 1
        for busy_start, busy_end in busy[ahead:]:
            if busy_start >= end:
                break
            total_s += min(end, busy_end) - max(start, busy_start)
    return total_s


def stage_breakdown(timeline: Timeline, stage: int) -> dict[str, float]:
    """Return what the step of one stage went to, by name of part; ``hidden_dp`` and ``hidden_pp`` are besides."""
    spans = [span for span in timeline.spans if span.rank_class == stage]
    compute = [span for span in spans if span.stream == "compute"]
    busy = sorted((span.start_s, span.end_s) for span in compute)
    parts = {
        "compute": fsum(span.compute_s for span in compute if span.kind in {"forward", "backward"}),
        "tp": fsum(seconds for span in compute for _, seconds in span.exposed_s),
        "optimizer": fsum(span.end_s - span.start_s for span in compute if span.kind == "optimizer"),
        "host": fsum(span.end_s - span.start_s for span in compute if span.kind == "host"),
    }
    for dimension, stream in (("dp", "dp"), ("pp", "recv_")):
        pieces = [(span.start_s, span.end_s) for span in spans if span.stream.startswith(stream)]
        hidden_s = _overlap_s(pieces, busy)
        parts[f"hidden_{dimension}"] = hidden_s
        parts[dimension] = fsum(end - start for start, end in pieces) - hidden_s
    known = fsum(seconds for name, seconds in parts.items() if not name.startswith("hidden"))
    parts["bubble"] = max(0.0, timeline.step_time_s - known)
    return parts


def reference_metrics(timeline: Timeline, *, capacity_bytes: float = 80e9, scenario: str = "reference") -> Metrics:
    """Return the metrics of a reference timeline, means over its stages."""
    n_stages = len(timeline.rank_classes)
    stages = [stage_breakdown(timeline, stage) for stage in range(n_stages)]
    mean = {name: fsum(parts[name] for parts in stages) / n_stages for name in stages[0]}
    step_s = timeline.step_time_s
    gpus = timeline.engine.ranks
    n_micro_batches = 1 + max(span.micro_batch for span in timeline.spans)
    tp = 8 if gpus > 1 else 1
    dp = gpus // n_stages // tp
    samples = float(dp * n_micro_batches)
    flops = fsum(span.flops for span in timeline.spans) / n_stages * gpus
    breakdown = Breakdown(
        compute=mean["compute"],
        exposed_communication=ByDimension(tp=mean["tp"], pp=mean["pp"], dp=mean["dp"]),
        bubble=mean["bubble"],
        stall=0.0,
        optimizer=mean["optimizer"],
        host=mean["host"],
    )
    return Metrics(
        schema_version=1,
        scenario=scenario,
        ranks=gpus,
        gpus=gpus,
        parallelism=Parallelism(dp=dp, tp=tp, pp=n_stages, cp=1, ep=1),
        step_time_s=step_s,
        step_time_interval_s=(0.92 * step_s, 1.12 * step_s),
        step_time_interval_level_fraction=0.8,
        step_time_interval_kind="all runs",
        samples_per_s=samples / step_s,
        tokens_per_s=4096 * samples / step_s,
        tokens_per_s_per_gpu=4096 * samples / step_s / gpus,
        model_flops_per_step=flops,
        hardware_flops_per_step=1.1 * flops,
        tflops_per_gpu=flops / gpus / step_s / 1e12,
        mfu=flops / gpus / step_s / 989.4e12,
        hfu=1.1 * flops / gpus / step_s / 989.4e12,
        breakdown_s=breakdown,
        overlapped_communication_s=ByDimension(pp=mean["hidden_pp"], dp=mean["hidden_dp"]),
        bubble_fraction=breakdown.bubble / step_s,
        memory=reference_memory(n_stages, n_micro_batches, capacity_bytes),
        links=tuple(
            TierUse(
                tier=link.tier,
                mean_utilisation=link.bytes / link.bandwidth_bytes_per_s / step_s,
                peak_utilisation=link.peak_utilisation,
                bytes=link.bytes * link.n_links,
            )
            for link in timeline.links
        ),
        busiest_links=tuple(
            BusyLink(
                name=link.name,
                tier=link.tier,
                n_links=link.n_links,
                bytes=link.bytes,
                mean_utilisation=link.bytes / link.bandwidth_bytes_per_s / step_s,
                peak_utilisation=link.peak_utilisation,
                users=link.users,
                meetings=link.meetings,
            )
            for link in timeline.links
        ),
        collectives=timeline.collectives,
        engine=EngineStats(events=4321, n_tasks=1234, ranks=gpus, rank_classes=n_stages, folded=True, wall_s=0.25),
        flags=(
            Flag(code="uncalibrated", message="no measurements for this accelerator; efficiencies of its generation are used"),
            Flag(code="assumed_sources", message="the latency of the leaf switch was only remembered"),
        ),
    )


def reference_memory(n_stages: int, n_micro_batches: int, capacity_bytes: float) -> Memory:
    """Return memory in which the first stage keeps most activations and the last one the logits."""
    stages: list[StageMemory] = []
    for stage in range(n_stages):
        in_flight = {FORWARD_TO_BACKWARD: min(n_micro_batches, n_stages - stage)}
        held = [replace(hold, bytes=hold.bytes * in_flight.get(hold.interval, 1)) for hold in reference_holds(stage, n_stages)]
        stages.append(
            StageMemory(
                stage=stage,
                parameters_bytes=held_bytes(held, category="parameters"),
                gradients_bytes=held_bytes(held, category="gradients"),
                optimizer_bytes=held_bytes(held, category="optimizer"),
                activations_bytes=held_bytes(held, category="activations"),
                buffers_bytes=held_bytes(held, category="buffers"),
                peak_bytes=held_bytes(held),
            )
        )
    peak = max(stage.peak_bytes for stage in stages)
    return Memory(fits=peak <= capacity_bytes, capacity_bytes=capacity_bytes, peak_bytes=peak, by_stage=tuple(stages))
