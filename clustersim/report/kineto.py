"""A timeline as PyTorch's profiler (Kineto) would have written it: one file for each rank class, of its first rank.

Kernels stand on streams of a device, each with the call that launched it; those that communicate have names that begin with ``nccl``,
by which analysers tell them apart, and the collective, its bytes and its process group beside them, as PyTorch gives them. What they make
of it is what a result has: kernels that compute cover computation and optimizer, those that communicate alone what is exposed, and no
kernel runs while a rank is idle or waits for its host. Three things are counted otherwise: what communicates while the host is at work is
hidden in a result, and communicates alone for an analyser; so does a send for which nobody waits; and a moment in which several dimensions
communicate counts once for it, and once for each dimension in a result.

References
----------
.. [1] PyTorch, *Kineto*, output of ``torch.profiler`` as Chrome trace: categories ``kernel``, ``cuda_runtime`` and ``user_annotation``.
.. [2] Meta, *Holistic Trace Analysis*, trace format and kernel types: https://hta.readthedocs.io.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import fsum
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from clustersim.collection import collection_paused
from clustersim.documents.files import replacing_bytes
from clustersim.program.tasks import COMPUTE_STREAM
from clustersim.trace.timeline import DIMENSIONS, Span, Timeline

COMPUTE_TID: Final = 7
"""The stream on which PyTorch computes."""
_STREAMS: Final = MappingProxyType({dimension: tid for tid, dimension in enumerate(DIMENSIONS, start=20)})
_HOST_PID: Final = 1000
_SAME_S: Final = 1e-9


class Call(NamedTuple):
    """Collective or send that kernels of one name carry out."""

    op: str
    group: int
    """Number of its process group."""
    ranks: tuple[int, ...]
    """Ranks of the process group; of a send its source and its destination."""
    dimension: str


class Kernel(NamedTuple):
    """One kernel on a stream of the device."""

    name: str
    stream: int
    start_s: float
    end_s: float
    call: Call | None = None
    bytes: float = 0.0


Calls = Mapping[tuple[str, str, int], Call]
"""Calls of a rank class, by name, dimension and whole bytes of their spans or of their slices."""
_NAMES: Final = MappingProxyType(
    {
        "all_reduce": ("AllReduce_Sum", "allreduce"),
        "all_gather": ("AllGather", "_allgather_base"),
        "reduce_scatter": ("ReduceScatter_Sum", "_reduce_scatter_base"),
        "all_to_all": ("SendRecv", "all_to_allv"),
        "broadcast": ("Broadcast", "broadcast"),
        "reduce": ("Reduce_Sum", "reduce"),
        "gather": ("SendRecv", "gather"),
        "scatter": ("SendRecv", "scatter"),
        "send_recv": ("SendRecv", "coalesced"),
        "send": ("SendRecv", "send"),
        "recv": ("SendRecv", "recv"),
    }
)
"""Kernel of NCCL that carries out an operation, and the name that PyTorch gives it."""


_ORDER: Final = attrgetter("start_s", "stream", "end_s")


@collection_paused()
def write_kineto(timeline: Timeline, folder: Path, calls: Sequence[Calls] = (), device: str | None = None) -> tuple[Path, ...]:
    """Write a trace of the representative rank of each class into a folder, which must exist, and return the files.

    Equal timelines give equal bytes. Named ``rank<number>.json.gz``, as analysers look for them.

    Parameters
    ----------
    calls
        Of the representative rank of each class, where they are known.
    device
        Name of the accelerator; that of the rank class where it is not given.
    """
    n_ranks = sum(rank_class.n_ranks for rank_class in timeline.rank_classes)
    of_class: list[list[Span]] = [[] for _ in timeline.rank_classes]
    for span in timeline.spans:
        of_class[span.rank_class].append(span)
    files: list[Path] = []
    for rank_class, spans, own in zip(timeline.rank_classes, of_class, calls or [{} for _ in of_class], strict=True):
        path = folder / f"rank{rank_class.representative_rank}.json.gz"
        with replacing_bytes(path) as packed:
            head = {
                "schemaVersion": 1,
                "deviceProperties": [{"id": 0, "name": device or rank_class.name}],
                "distributedInfo": {"backend": "nccl", "rank": rank_class.representative_rank, "world_size": n_ranks, **_groups(own)},
                "displayTimeUnit": "ms",
            }
            packed.write((json.dumps(head)[:-1] + ', "traceEvents": [\n').encode())
            packed.write(",\n".join(_events(kernels_of(spans, own), rank_class.representative_rank, timeline.duration_s)).encode())
            packed.write(b"\n]}\n")
        files.append(path)
    return tuple(files)


def _groups(calls: Calls) -> dict[str, object]:
    """Return the process groups of a rank, as PyTorch lists them."""
    found = {call.group: call for call in calls.values()}
    listed = [
        {
            "pg_name": str(number),
            "pg_desc": call.dimension,
            "backend_config": "cuda:nccl",
            "pg_size": len(call.ranks),
            "ranks": list(call.ranks),
        }
        for number, call in sorted(found.items())
    ]
    return {"pg_count": len(listed), "pg_config": listed} if listed else {}


def kernels_of(spans: Sequence[Span], calls: Calls = MappingProxyType({})) -> list[Kernel]:
    """Return the kernels of one rank class, by start: passes as their layers, or as a whole where they did not run at their usual pace."""
    kernels: list[Kernel] = []
    for span in spans:
        if span.kind == "communication":
            kernels.append(_moved(calls, span.dimension, span.name, (span.start_s, span.end_s), span.bytes))
        elif span.stream == COMPUTE_STREAM and span.kind != "host":
            kernels += _layers(span, calls) if _at_usual_pace(span) else _whole(span)
    return sorted([each for each in kernels if _us(each.end_s) > _us(each.start_s)], key=_ORDER)


def _moved(calls: Calls, dimension: str, name: str, times_s: tuple[float, float], size: float) -> Kernel:
    """Return a kernel that communicates."""
    call = calls.get((name, dimension, round(size)))
    words = _slug(dimension, name) if call is None else f"{_NAMES[call.op][0]}_{_slug(dimension, name)}"
    return Kernel(f"ncclDevKernel_{words}", _STREAMS[dimension], *times_s, call, size)


def _us(seconds: float) -> int:
    """Return whole microseconds: analysers truncate fractions event by event, and adjacent events would separate."""
    return round(seconds * 1e6)


def _at_usual_pace(span: Span) -> bool:
    """Return whether the layers of a pass fill it: its exposed time is that of their collectives, and the host is hidden."""
    inner = [(part.dimension, block.repeat * part.duration_s) for block in span.detail for part in block.slices]
    exposed_s = fsum(seconds for dimension, seconds in inner if dimension)
    return (
        bool(inner)
        and span.host_s == 0.0
        and abs(fsum(seconds for _, seconds in inner) - (span.end_s - span.start_s)) < _SAME_S
        and abs(exposed_s - fsum(seconds for _, seconds in span.exposed_s)) < _SAME_S
    )


def _layers(span: Span, calls: Calls) -> Iterator[Kernel]:
    """Yield the layers of a pass in sequence, each with its share of the overlapped communication."""
    computing_s = fsum(block.repeat * part.duration_s for block in span.detail for part in block.slices if not part.dimension)
    at_s = span.start_s
    for block in span.detail:
        for _ in range(block.repeat):
            for part in block.slices:
                start_s, at_s = at_s, at_s + part.duration_s
                if part.dimension:
                    yield _moved(calls, part.dimension, part.name, (start_s, at_s), part.bytes)
                else:
                    yield Kernel(_slug(part.kind, part.name), COMPUTE_TID, start_s, at_s)
                    yield from _hidden(span, start_s, at_s, (at_s - start_s) / computing_s if computing_s > 0.0 else 0.0)


def _whole(span: Span) -> Iterator[Kernel]:
    """Yield a pass as one kernel that computes, and then one for each dimension that it waits for; the host's share stays free."""
    exposed_s = fsum([seconds for _, seconds in span.exposed_s])
    at_s = max(span.start_s, span.end_s - exposed_s - span.host_s)
    yield Kernel(_slug(span.kind, span.name), COMPUTE_TID, span.start_s, at_s)
    yield from _hidden(span, span.start_s, at_s, 1.0)
    for dimension, seconds in span.exposed_s:
        yield Kernel(f"ncclDevKernel_{dimension}_inside", _STREAMS[dimension], at_s, at_s + seconds)
        at_s += seconds


def _hidden(span: Span, start_s: float, end_s: float, share: float) -> Iterator[Kernel]:
    """Yield a share of the overlapped communication of a pass, up to the end of a compute kernel."""
    for dimension, seconds in span.hidden_s:
        yield Kernel(f"ncclDevKernel_{dimension}_hidden", _STREAMS[dimension], max(start_s, end_s - share * seconds), end_s)


@lru_cache(maxsize=65536)
def _slug(*words: str) -> str:
    return "_".join(word.replace(" ", "_").replace("->", "_to_") for word in words if word)


def _events(kernels: Sequence[Kernel], rank: int, duration_s: float) -> Iterator[str]:
    """Yield names of processes and threads, the step, and each kernel after the call that launched it."""
    for pid, name in ((0, f"python rank {rank} GPU"), (_HOST_PID, f"python rank {rank} CPU")):
        yield json.dumps({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}})
    step_us = _us(duration_s)
    yield json.dumps(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "pid": _HOST_PID, "tid": 1, "ts": 0, "dur": step_us, "args": {}}
    )
    for number, (name, stream, start_s, end_s, call, size) in enumerate(kernels, start=1):
        start_us = _us(start_s)
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {_HOST_PID}, "tid": 1, "ts": {start_us}, "dur": 0,'
            f' "args": {{"External id": {number}, "correlation": {number}}}}},\n'
            f'{{"ph": "X", "cat": "kernel", "name": {_quoted(name)}, "pid": 0, "tid": {stream}, "ts": {start_us},'
            f' "dur": {_us(end_s) - start_us}, "args": {{"External id": {number}, "device": 0, "context": 1, "stream": {stream},'
            f' "correlation": {number}{"" if call is None else _about(call, size)}}}}}'
        )


@lru_cache(maxsize=65536)
def _about(call: Call, size: float) -> str:
    """Return what PyTorch says of a collective, in bytes; a send is of the ranks of its source and its destination."""
    n, share = round(size), round(size / max(1, len(call.ranks)))
    about: dict[str, object] = {
        "Collective name": _NAMES[call.op][1],
        "In msg nelems": share if call.op == "all_gather" else n,
        "Out msg nelems": share if call.op == "reduce_scatter" else n,
        "Group size": len(call.ranks),
        "dtype": "Byte",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": str(call.group),
        "Process Group Description": call.dimension,
        "Process Group Ranks": str(list(call.ranks)),
    }
    if call.op in ("send", "recv"):
        about["Dst Rank" if call.op == "send" else "Src Rank"] = call.ranks[1 if call.op == "send" else 0]
    return f", {json.dumps(about)[1:-1]}"


@lru_cache(maxsize=65536)
def _quoted(name: str) -> str:
    return json.dumps(name)
