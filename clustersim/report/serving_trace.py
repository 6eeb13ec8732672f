"""Engine steps as Chrome trace events, which Perfetto and chrome://tracing open: a process for each replica, counters beside it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from clustersim.documents.files import replacing
from clustersim.report.chrome import STEP_NS, to_ns
from clustersim.serving.records import TICK_S, EngineStepLog, StepRecord

_GZIP_LEVEL: Final = 4
_NS_PER_US: Final = 1000


def write_serving_trace(logs: Iterable[EngineStepLog], n_replicas: int, path: Path) -> None:
    """Write the first steps of a run; a stretch of steps that only decode is one slice."""
    kept = list(logs)
    other = {"steps": f"the first {sum(len(log.first) for log in kept)} steps and stretches of steps of the run"}
    head = f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(other)},\n"traceEvents": [\n'
    events = ",\n".join([*_names(n_replicas), *(event for log in kept for record in log.first for event in _events(record))])
    with replacing(path) as fresh, fresh.open("wb") as raw, gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
        packed.write(f"{head}{events}\n]}}\n".encode())


def _names(n_replicas: int) -> Iterator[str]:
    for number in range(n_replicas):
        yield json.dumps({"ph": "M", "name": "process_name", "pid": number + 1, "tid": 0, "args": {"name": f"replica {number}"}})
        yield json.dumps({"ph": "M", "name": "thread_name", "pid": number + 1, "tid": 1, "args": {"name": "steps"}})


def _events(record: StepRecord) -> Iterator[str]:
    start_ns, end_ns = to_ns(record.start * TICK_S), to_ns(record.end * TICK_S)
    name = "prefill" if record.n_prefill_tokens and not record.n_decode else "mixed" if record.n_prefill_tokens else "decode"
    args = {"steps": record.n_steps, "prefill_tokens": record.n_prefill_tokens, "decoding_sequences": record.n_decode}
    place = {"pid": record.replica + 1, "tid": 1}
    shown = name if record.n_steps == 1 else f"{name} x{record.n_steps}"
    duration_us = max(end_ns - start_ns, STEP_NS) / _NS_PER_US
    yield json.dumps({"ph": "X", "name": shown, "cat": name, **place, "ts": start_ns / _NS_PER_US, "dur": duration_us, "args": args})
    counters = {"waiting": record.n_waiting, "decoding": record.n_decode}
    yield json.dumps({"ph": "C", "name": "requests", **place, "ts": end_ns / _NS_PER_US, "args": counters})
    blocks = {"used": record.n_used_blocks}
    yield json.dumps({"ph": "C", "name": "KV blocks", **place, "ts": end_ns / _NS_PER_US, "args": blocks})
