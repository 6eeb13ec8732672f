"""Passes of a pipeline and their transfers, laid out by hand in round durations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from clustersim.trace.timeline import DetailBlock, Span, SpanDetail

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
KEPT_BYTES = 6e9
"""Activations of one micro-batch."""

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
