"""A timeline as Chrome trace events, which Perfetto and chrome://tracing open.

One process for each rank class, one thread for each stream. Every time is a whole number of eighths of a microsecond: the format
wants microseconds, viewers add start and duration as floating-point numbers, and only binary fractions add without error. So slices that
touch do touch, and nested ones do nest.

References
----------
.. [1] Google, *Trace Event Format*, complete (X), metadata (M), flow (s, f) and counter (C) events.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Final

from clustersim.collection import collection_paused
from clustersim.documents.files import replacing_bytes
from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.memory_curves import STACK, MemoryCurve
from clustersim.trace.timeline import RankClass, Span, Timeline
from clustersim.units.divisors import count_text

LARGEST_TRACE: Final = 200_000
"""Events up to which every pass is unfolded into its layers; Perfetto stays quick well beyond it, browsers do not."""

_PIPELINE: Final = ("recv_forward", "send_forward", "recv_backward", "send_backward")
_OFFLOAD: Final = ("to_host", "from_host", "host_update", "from_nvme", "to_nvme")
_STREAMS: Final = (COMPUTE_STREAM, "tp", "cp", "ep", *_PIPELINE, "dp", "ps", *_OFFLOAD)
"""Order of the threads of a process; other streams follow by name."""

N_STRETCHES: Final = 240
"""Intervals of a step, in each of which utilisation is one figure."""
MOST_STRETCHES: Final = 6000
_BATCH: Final = 10_000
_BY_START: Final = attrgetter("start_s", "end_s")
_TOGETHER_S: Final = 1e-9
"""By how much a receive may end before its send, for round-off."""


STEP_NS: Final = 125
"""An eighth of a microsecond: times in microseconds are then binary fractions, and viewers add start and duration without error."""
_EIGHTHS: Final = tuple(f".{eighth * STEP_NS:03d}" for eighth in range(8))
"""Microsecond eighths, as text."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """One thread of the trace: spans that do not overlap, in order."""

    process: int
    thread: int
    name: str
    spans: list[Span]
    where: str
    """Its place in an event."""


def write_trace(timeline: Timeline, path: Path) -> None:
    """Write the timeline as Chrome trace JSON, compressed if the name ends in ``.gz``.

    Passes are unfolded into layers, and layers into computation and collectives, while the trace stays below
    :data:`LARGEST_TRACE` events; otherwise only the passes of the first and last micro-batch are, and ``otherData`` says so.
    """
    with collection_paused(), replacing_bytes(path) as file:
        file.writelines(trace_chunks(timeline))


def trace_chunks(timeline: Timeline) -> Iterator[bytes]:
    """Yield the trace as pieces of UTF-8 text, one event a line."""
    lanes = _lanes_of(timeline)
    details, chosen = _spans_to_unfold(timeline)
    other = {
        "details": details,
        "step_time_s": timeline.step_time_s,
        "time": "microseconds from the start, in steps of an eighth",
    }
    yield f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(other)},\n"traceEvents": ['.encode()
    between = "\n"
    links = _link_counters(timeline)
    events = chain(_metadata(timeline.rank_classes, lanes), _slices(lanes, chosen), _flows(lanes), _counters(timeline.memory), links)
    while batch := list(islice(events, _BATCH)):
        yield (between + ",\n".join(batch)).encode()
        between = ",\n"
    yield b"\n]}\n"


def _slices(lanes: Sequence[_Lane], chosen: frozenset[int] | None) -> Iterator[str]:
    for lane in lanes:
        for span in lane.spans:
            yield _span_event(span, lane)
            if span.detail and (chosen is None or span.micro_batch in chosen):
                for piece in unfolded(span):
                    yield _slice_event(piece, lane)


def _spans_to_unfold(timeline: Timeline) -> tuple[str, frozenset[int] | None]:
    """Return a sentence on the unfolded micro-batches, and those micro-batches (None for all)."""
    unfoldable = [span for span in timeline.spans if span.detail]
    n_events = len(timeline.spans) + sum(map(n_slices, unfoldable))
    if n_events <= LARGEST_TRACE:
        return "every pass is unfolded into its layers", None
    last = max((span.micro_batch for span in timeline.spans), default=0)
    chosen = frozenset({0, last})
    n_kept = len(timeline.spans) + sum(n_slices(span) for span in unfoldable if span.micro_batch in chosen)
    if n_kept <= LARGEST_TRACE:
        return f"only passes of micro-batches 0 and {last} are unfolded into layers: all would be {n_events} events", chosen
    return f"no pass is unfolded into layers: even two micro-batches would be {n_kept} events", frozenset()


def _metadata(rank_classes: Sequence[RankClass], lanes: Sequence[_Lane]) -> Iterator[str]:
    # Viewers take process 0 for the idle task, hence the count from one.
    for pid, rank_class in enumerate(rank_classes, start=1):
        ranks = count_text(rank_class.n_ranks, "rank")
        yield _meta("process_name", pid, 0, {"name": f"{rank_class.name} ({ranks})"})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        yield _meta("process_labels", pid, 0, {"labels": f"rank {rank_class.representative_rank} and its like"})
    for lane in lanes:
        yield _meta("thread_name", lane.process, lane.thread, {"name": lane.name})
        yield _meta("thread_sort_index", lane.process, lane.thread, {"sort_index": lane.thread})


def _meta(name: str, pid: int, tid: int, args: dict[str, str | int]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})


def _span_event(span: Span, lane: _Lane) -> str:
    start_ns = to_ns(span.start_s)
    args = _numbers(span.bytes, span.flops) if span.bytes or span.flops else ""
    if span.exposed_s:
        args += "".join([f', "exposed_{dimension}_s": {float(seconds)!r}' for dimension, seconds in span.exposed_s])
    head, place = _head(span.name, span.kind, span.dimension, span.micro_batch, span.chunk)
    return f'{head}{lane.where}{_us(start_ns)}, "dur": {_us(to_ns(span.end_s) - start_ns)}, "args": {{{(place + args)[2:]}}}}}'


def _slice_event(piece: Slice, lane: _Lane) -> str:
    args = _numbers(piece.bytes, piece.flops)[2:]
    length = _us(piece.end_ns - piece.start_ns)
    return f'{_slice_head(piece.name, piece.category)}{lane.where}{_us(piece.start_ns)}, "dur": {length}, "args": {{{args}}}}}'


def _numbers(size_bytes: float, flops: float) -> str:
    sizes = f', "bytes": {float(size_bytes)!r}' if size_bytes else ""
    return f'{sizes}, "flops": {float(flops)!r}' if flops else sizes


@lru_cache(maxsize=65536)
def _head(name: str, kind: str, dimension: str, micro_batch: int, chunk: int) -> tuple[str, str]:
    """Return the opening of an event and its place in a step; a viewer writes only the name, hence the micro-batch in it."""
    shown, place = name, ""
    if micro_batch >= 0:
        shown, place = f"{name} mb {micro_batch}", f', "micro_batch": {micro_batch}, "chunk": {chunk}'
    return f'{{"ph": "X", "name": {json.dumps(shown)}, "cat": {json.dumps(category_of(kind, dimension))}, ', place


@lru_cache(maxsize=65536)
def _slice_head(name: str, category: str) -> str:
    return f'{{"ph": "X", "name": {json.dumps(name)}, "cat": {json.dumps(category)}, '


def _flows(lanes: Sequence[_Lane]) -> Iterator[str]:
    """Yield an arrow from every send to the receive it feeds."""
    categories: dict[str, str] = {}
    for number, (send, send_lane, receive, receive_lane) in enumerate(_pairs(lanes), start=1):
        start_ns = to_ns(send.start_s)
        category = categories.get(send.dimension) or categories.setdefault(send.dimension, json.dumps(send.dimension))
        arrow = f'"name": "transfer", "cat": {category}, "id": {number}'
        yield f'{{"ph": "s", {arrow}, {send_lane.where}{_us(start_ns)}}}'
        yield f'{{"ph": "f", "bp": "e", {arrow}, {receive_lane.where}{_us(max(start_ns, to_ns(receive.start_s)))}}}'


def _counters(curves: Sequence[MemoryCurve]) -> Iterator[str]:
    """Yield the memory of a rank of each class, in bytes; a viewer holds a value until the next."""
    for curve in curves:
        parts_bytes = curve.parts_bytes
        after: dict[int, int] = {to_ns(time_s): index for index, time_s in enumerate(curve.time_s)}
        for time_ns, index in after.items():
            held = json.dumps({name: round(parts_bytes[name][index]) for name in STACK})
            yield f'{{"ph": "C", "name": "memory, bytes", "pid": {curve.rank_class + 1}, "ts": {_us(time_ns)}, "args": {held}}}'


def _link_counters(timeline: Timeline) -> Iterator[str]:
    """Yield the utilisation of each tier of links, in percent, as counters of a process after those of the ranks."""
    # A report on a terminal must not wait for numpy.
    import numpy as np

    from clustersim.measure.utilisation import used_links, utilisation_over_time

    if not used_links(timeline) or timeline.duration_s <= 0.0:
        return
    process = len(timeline.rank_classes) + 1
    yield _meta("process_name", process, 0, {"name": "links"})
    yield _meta("process_sort_index", process, 0, {"sort_index": process})
    n_steps = max(1, round(timeline.duration_s / timeline.step_time_s)) if timeline.step_time_s > 0.0 else 1
    edges_s = np.linspace(0.0, timeline.duration_s, min(N_STRETCHES * n_steps, MOST_STRETCHES) + 1)
    starts_ns = [to_ns(time_s) for time_s in edges_s.tolist()]
    for tier, row in utilisation_over_time(timeline, edges_s).items():
        before = -1.0
        for start_ns, share in zip(starts_ns, [*row.tolist(), 0.0], strict=True):
            percent = round(100 * share, 2)
            if percent != before:
                name = json.dumps(f"{tier} utilisation, %")
                yield f'{{"ph": "C", "name": {name}, "pid": {process}, "ts": {_us(start_ns)}, "args": {{"mean": {percent}}}}}'
            before = percent


def _pairs(lanes: Sequence[_Lane]) -> Iterator[tuple[Span, _Lane, Span, _Lane]]:
    """Yield sends with their receives: same micro-batch, together in time, the earliest end first.

    A micro-batch is in one place at a time, so that order within it is enough to tell its transfers apart.
    """
    sends: list[tuple[Span, _Lane]] = []
    receives: defaultdict[tuple[str, int], list[tuple[Span, _Lane]]] = defaultdict(list)
    for lane in lanes:
        for span in lane.spans:
            if "send" in span.stream:
                sends.append((span, lane))
            elif "recv" in span.stream:
                receives[span.dimension, span.micro_batch].append((span, lane))
    waiting = {key: deque(sorted(bucket, key=_by_end)) for key, bucket in receives.items()}
    for send, send_lane in sorted(sends, key=_by_end):
        bucket = waiting.get((send.dimension, send.micro_batch))
        # What ended before this send ends before all that follow.
        while bucket and bucket[0][0].end_s < send.end_s - _TOGETHER_S:
            bucket.popleft()
        for index, (receive, lane) in enumerate(bucket or ()):
            if receive.start_s <= send.end_s:
                assert bucket is not None
                del bucket[index]
                yield send, send_lane, receive, lane
                break


def _by_end(item: tuple[Span, _Lane]) -> tuple[float, float, int]:
    span, _ = item
    return span.end_s, span.start_s, span.rank_class


def _lanes_of(timeline: Timeline) -> list[_Lane]:
    """Return the threads of the trace; a stream whose spans overlap is spread over several, since slices may not cross."""
    streams: defaultdict[tuple[int, int, str], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        place = _STREAMS.index(span.stream) if span.stream in _STREAMS else len(_STREAMS)
        streams[span.rank_class, place, span.stream].append(span)
    lanes: list[_Lane] = []
    n_threads: defaultdict[int, int] = defaultdict(int)
    for rank_class, place, stream in sorted(streams):
        for index, spans in enumerate(_apart(streams[rank_class, place, stream])):
            n_threads[rank_class] += 1
            name = stream if index == 0 else f"{stream} {index + 1}"
            process, thread = rank_class + 1, n_threads[rank_class]
            lanes.append(_Lane(process, thread, name, spans, f'"pid": {process}, "tid": {thread}, "ts": '))
    return lanes


def _apart(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans in as few lists as needed so that none overlaps another in its list."""
    lists: list[list[Span]] = []
    ends_s: list[float] = []
    for span in sorted(spans, key=_BY_START):
        start_s = span.start_s
        for free, end_s in enumerate(ends_s):
            if end_s <= start_s:
                lists[free].append(span)
                ends_s[free] = span.end_s
                break
        else:
            lists.append([span])
            ends_s.append(span.end_s)
    return lists


def _us(ns: int) -> str:
    steps = ns // STEP_NS
    return f"{steps >> 3}{_EIGHTHS[steps & 7]}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch inside a span; either a whole repetition of a block or one of its parts."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    bytes: float = 0.0
    flops: float = 0.0


def to_ns(seconds: float) -> int:
    """Return nanoseconds in whole steps; what ends before another thing starts does so in steps too."""
    return round(seconds * 1e9 / STEP_NS) * STEP_NS


def category_of(kind: str, dimension: str) -> str:
    """Return the comma-separated trace categories of a span or slice."""
    return f"{kind},{dimension}" if dimension else kind


def n_slices(span: Span) -> int:
    """Return how many slices :func:`unfolded` yields at most."""
    return sum(block.repeat * (1 + len(block.slices)) for block in span.detail)


def unfolded(span: Span) -> Iterator[Slice]:
    """Yield the repetitions of every block of a span, each followed by its parts.

    The parts keep their own durations, so that what the pass waited for beyond them shows as a gap at its end; where they
    are longer than the span, all are shortened alike to fit into it. What takes no time, such as a collective that is hidden to its
    end, is no slice: viewers lose the nesting over slices that end where they start.
    """
    inner_s = math.fsum(block.repeat * part.duration_s for block in span.detail for part in block.slices)
    length_s = span.end_s - span.start_s
    scale = length_s / inner_s if inner_s > length_s else 1.0
    last_ns = to_ns(span.end_s)
    at_s = span.start_s
    for block in span.detail:
        for repetition in range(block.repeat):
            parts: list[Slice] = []
            start_ns = end_ns = min(to_ns(at_s), last_ns)
            for part in block.slices:
                at_s += part.duration_s * scale
                part_ns, end_ns = end_ns, min(to_ns(at_s), last_ns)
                if end_ns > part_ns:
                    parts.append(Slice(part.name, category_of(part.kind, part.dimension), part_ns, end_ns, part.bytes, part.flops))
            name = block.name if block.repeat == 1 else f"{block.name} {repetition}"
            if parts:
                yield Slice(name, span.kind, start_ns, end_ns)
                yield from parts
