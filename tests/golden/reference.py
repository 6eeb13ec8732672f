"""A timeline and its metrics made by hand, for everything that shows results: round durations, no engine, no hardware.

Forward passes take 10 ms, backward passes 20 ms, a transfer 0.5 ms; the arithmetic can be followed on paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from math import fsum

from clustersim.report.metrics import (
    Breakdown,
    BusyLink,
    ByDimension,
    Flag,
    Memory,
    Metrics,
    Parallelism,
    StageMemory,
    TierUse,
)
from clustersim.trace.timeline import (
    CollectiveChoice,
    DetailBlock,
    EngineStats,
    LinkUse,
    Meeting,
    RankClass,
    Span,
    SpanDetail,
    Timeline,
)

FORWARD_COMPUTE_S = 8.4e-3
FORWARD_TP_S = 1.6e-3
BACKWARD_COMPUTE_S = 14.8e-3
RECOMPUTE_S = 2.0e-3
BACKWARD_TP_S = 3.2e-3
TRANSFER_S = 0.5e-3
TRANSFER_BYTES = 16e6
BUCKET_S = 4.0e-3
BUCKET_BYTES = 100e6
N_BUCKETS = 4
OPTIMIZER_S = 6.0e-3
HOST_S = 2.0e-3
N_LAYERS = 2
RANKS_PER_STAGE = 128
PASS_FLOPS = 4.0e12

Pass = tuple[str, int, int]
"""Kind, micro-batch, chunk."""


@dataclass
class Replay:
    """A hand-driven pipeline: when each pass ended, and the spans so far."""

    n_stages: int
    n_chunks: int
    n_micro_batches: int
    free_s: list[float] = field(default_factory=list)
    ended_s: dict[tuple[int, Pass], float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def before(self, stage: int, work: Pass) -> tuple[int, Pass] | None:
        """Return the pass on another stage whose result ``work`` needs."""
        kind, micro_batch, chunk = work
        step = 1 if kind == "forward" else -1
        position = chunk * self.n_stages + stage - step
        if 0 <= position < self.n_stages * self.n_chunks:
            return position % self.n_stages, (kind, micro_batch, position // self.n_stages)
        return None

    def ready_s(self, stage: int, work: Pass) -> float | None:
        """Return when what ``work`` needs has arrived, or None while that is open."""
        kind, micro_batch, chunk = work
        source = self.before(stage, work)
        if source is None:
            needed = (stage, ("forward", micro_batch, chunk)) if kind == "backward" else None
            return 0.0 if needed is None else self.ended_s.get(needed)
        ended_s = self.ended_s.get(source)
        if ended_s is None:
            return None
        return ended_s if source[0] == stage else ended_s + TRANSFER_S

    def run(self, stage: int, work: Pass, ready_s: float) -> None:
        """Add the pass and the transfer that brought its input."""
        kind, micro_batch, chunk = work
        start_s = max(self.free_s[stage], ready_s)
        source = self.before(stage, work)
        if source is not None and source[0] != stage:
            self.spans.extend(transfer(source[0], stage, work, self.ended_s[source]))
        span = pass_span(stage, work, start_s, 1.0 / self.n_chunks)
        self.spans.append(span)
        self.free_s[stage] = self.ended_s[stage, (kind, micro_batch, chunk)] = span.end_s


def transfer(source: int, destination: int, work: Pass, start_s: float) -> Iterator[Span]:
    """Yield the two ends of one point-to-point transfer."""
    kind, micro_batch, chunk = work
    for stage, stream in ((source, f"send_{kind}"), (destination, f"recv_{kind}")):
        yield Span(
            rank_class=stage,
            stream=stream,
            kind="communication",
            name=f"{kind[0].upper()} {source}->{destination}",
            start_s=start_s,
            end_s=start_s + TRANSFER_S,
            dimension="pp",
            micro_batch=micro_batch,
            chunk=chunk,
            bytes=TRANSFER_BYTES,
        )


def pass_span(stage: int, work: Pass, start_s: float, scale: float) -> Span:
    """Return one forward or backward pass over ``N_LAYERS`` layers."""
    kind, micro_batch, chunk = work
    forward = kind == "forward"
    recompute_s = 0.0 if forward else RECOMPUTE_S * scale
    compute_s = (FORWARD_COMPUTE_S if forward else BACKWARD_COMPUTE_S + RECOMPUTE_S) * scale
    tp_s = (FORWARD_TP_S if forward else BACKWARD_TP_S) * scale
    flops = PASS_FLOPS * scale * (1 if forward else 2)
    halves = [
        part
        for name in ("attention", "mlp")
        for part in (
            SpanDetail(name=name, kind=kind, dimension="", duration_s=compute_s / N_LAYERS / 2, flops=flops / N_LAYERS / 2),
            SpanDetail(name="all_reduce", kind="communication", dimension="tp", duration_s=tp_s / N_LAYERS / 2, bytes=32e6),
        )
    ]
    return Span(
        rank_class=stage,
        stream="compute",
        kind=kind,
        name=kind[0].upper(),
        start_s=start_s,
        end_s=start_s + compute_s + tp_s,
        micro_batch=micro_batch,
        chunk=chunk,
        flops=flops,
        compute_s=compute_s,
        recompute_s=recompute_s,
        exposed_s=(("tp", tp_s),),
        detail=(DetailBlock(name="layer", repeat=N_LAYERS, slices=tuple(halves)),),
    )


def order_of(stage: int, n_stages: int, n_micro_batches: int, n_chunks: int) -> list[Pass]:
    """Return the passes of a stage under 1F1B, interleaved as in Megatron when there are several chunks."""
    n_passes = n_micro_batches * n_chunks
    per_round = n_stages * n_chunks

    def place(index: int, kind: str) -> Pass:
        chunk = index % per_round // n_stages if n_chunks > 1 else 0
        micro_batch = index // per_round * n_stages + index % n_stages if n_chunks > 1 else index
        return kind, micro_batch, chunk if kind == "forward" else n_chunks - 1 - chunk

    ahead = n_stages - stage - 1
    n_warm_up = min(n_passes, ahead if n_chunks == 1 else 2 * ahead + (n_chunks - 1) * n_stages)
    order = [place(index, "forward") for index in range(n_warm_up)]
    for index in range(n_passes - n_warm_up):
        order += [place(n_warm_up + index, "forward"), place(index, "backward")]
    return order + [place(index, "backward") for index in range(n_passes - n_warm_up, n_passes)]


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
    return Timeline(
        rank_classes=tuple(
            RankClass(name=f"stage {stage}", stage=stage, representative_rank=stage * ranks_per_stage, n_ranks=ranks_per_stage)
            for stage in range(n_stages)
        ),
        spans=tuple(sorted(replay.spans, key=lambda span: (span.rank_class, span.stream, span.start_s))),
        step_time_s=step_s,
        links=reference_links(step_s),
        collectives=reference_choices(),
        engine=EngineStats(events=4321, ranks=n_stages * ranks_per_stage, rank_classes=n_stages, folded=True, wall_s=0.25),
    )


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
        engine=EngineStats(events=4321, ranks=gpus, rank_classes=n_stages, folded=True, wall_s=0.25),
        flags=(
            Flag(code="uncalibrated", message="no measurements for this accelerator; efficiencies of its generation are used"),
            Flag(code="assumed_sources", message="the latency of the leaf switch was only remembered"),
        ),
    )


def reference_memory(n_stages: int, n_micro_batches: int, capacity_bytes: float) -> Memory:
    """Return memory in which the first stage keeps most activations and the last one the logits."""
    stages: list[StageMemory] = []
    for stage in range(n_stages):
        activations = 6e9 * min(n_micro_batches, n_stages - stage)
        ends = 2e9 if stage in {0, n_stages - 1} else 0.0
        sizes = (16e9 + ends, 8e9 + ends, 6e9, activations, 1.5e9)
        stages.append(
            StageMemory(
                stage=stage,
                parameters_bytes=sizes[0],
                gradients_bytes=sizes[1],
                optimizer_bytes=sizes[2],
                activations_bytes=sizes[3],
                buffers_bytes=sizes[4],
                peak_bytes=fsum(sizes),
            )
        )
    peak = max(stage.peak_bytes for stage in stages)
    return Memory(fits=peak <= capacity_bytes, capacity_bytes=capacity_bytes, peak_bytes=peak, by_stage=tuple(stages))
