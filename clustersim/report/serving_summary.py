"""The result of a serving run for a terminal, as Markdown, as CSV files and as a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.documents.files import replacing_bytes
from clustersim.measure.serving_metrics import PoolMemory, ServingCost, ServingMetrics, SloCheck, SloReport
from clustersim.network.in_flight import TICK_S
from clustersim.report.chrome import STEP_NS, to_ns
from clustersim.report.facts import memory_text, rate_text
from clustersim.report.summary import bar_text, flags_table, page_on
from clustersim.report.tables import write_table
from clustersim.report.text_tables import TextTable, html_answer, markdown_answer
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import EngineStepLog, RequestLog, StepRecord
from clustersim.serving.requests import Requests
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_alike, format_quantity, format_range

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

_BAR: Final = 30
_LEAST: Final = 0.0005
"""Least share that one decimal of a percentage shows."""
_NAMES: Final = {"kv cache": "KV cache", "graphs": "CUDA graphs", "context": "CUDA context"}
"""Parts of memory as people write them."""
Row = tuple[str, ...]


def print_serving(metrics: ServingMetrics, console: Console) -> None:
    """Print the report of a serving run."""
    page = page_on(console)
    page.line((metrics.scenario, "bold"))
    page.paragraph(layout_line(metrics))
    page.figures(headline(metrics))
    for each in _sections(metrics):
        page.section(each)


def markdown_serving(metrics: ServingMetrics) -> str:
    """Return the same as Markdown; equal runs give equal text."""
    return markdown_answer(metrics.scenario, (f"{layout_line(metrics)}.",), (_headline_table(metrics), *_sections(metrics)))


def html_serving(metrics: ServingMetrics) -> str:
    """Return the same as HTML tables, which notebooks show."""
    return html_answer(metrics.scenario, (layout_line(metrics),), (_headline_table(metrics), *_sections(metrics)))


def _headline_table(metrics: ServingMetrics) -> TextTable:
    return TextTable("", ("figure", ">value"), tuple(headline(metrics)))


def headline(metrics: ServingMetrics) -> list[tuple[str, str]]:
    """Return the headline figures, each as name and text."""
    figures = [
        ("output tokens/s", metrics.output_tokens_per_s),
        ("tokens/s at full load", metrics.full_load_output_tokens_per_s if metrics.rate_binds or metrics.overloaded else None),
        ("output tokens/s/GPU", metrics.output_tokens_per_s_per_gpu),
        ("all tokens/s", metrics.total_tokens_per_s),
        ("requests/s", metrics.requests_per_s),
        ("requests/s offered", metrics.asked_requests_per_s),
        ("goodput, requests/s", None if metrics.slo is None else metrics.slo.goodput_requests_per_s),
    ]
    answered = f"{metrics.requests.completed:,} of {metrics.requests.arrived:,}"
    return [*((name, rate_text(value)) for name, value in figures if value is not None), ("requests answered", answered)]


def layout_line(metrics: ServingMetrics) -> str:
    """Return replicas, GPUs, mean batch and duration in one line."""
    warmup = metrics.requests.completed - metrics.requests.measured
    during = f"{format_quantity(metrics.duration_s, 's')}{f' after the {warmup:,} of the warm-up' if warmup else ''}"
    gpus = count_text(metrics.gpus, "GPU")
    replicas = count_text(metrics.replicas, "replica")
    return f"{replicas} on {gpus} ({metrics.accelerators}), a mean batch of {metrics.batch.mean_sequences:.3g} sequences; {during}"


def _sections(metrics: ServingMetrics) -> list[TextTable]:
    return [*measured_sections(metrics), *([flags_table(metrics.flags)] if metrics.flags else [])]


def measured_sections(metrics: ServingMetrics) -> list[TextTable]:
    """Return latencies, SLOs, step, KV cache, memory, transfers and cost."""
    several = len(metrics.memory.by_pool) > 1
    both = " of both pools" if several else ""
    found = [
        TextTable("Latency", ("", ">mean", ">p50", ">p90", ">p99"), _latency_rows(metrics), _interval_lines(metrics)),
        TextTable(
            f"Where a step goes (mean over steps{both})",
            ("term", ">share", ">time", ""),
            _term_rows(metrics),
        ),
        TextTable("Settings of the engine", sentences=_settings_lines(metrics)),
        TextTable("KV cache", sentences=_kv_lines(metrics)),
        *(
            TextTable(
                f"Memory of one GPU{f' of the {pool.role} pool' if several else ''}",
                ("", ">share", ">size", ""),
                _memory_rows(pool, metrics.memory.capacity_bytes),
                _reserve_lines(pool, metrics.memory.capacity_bytes, settings.memory_fraction),
            )
            for pool, settings in zip(metrics.memory.by_pool, metrics.settings, strict=True)
        ),
    ]
    if metrics.slo is not None:
        found.insert(
            1,
            TextTable(
                "Service level objectives (SLO)",
                ("", ">limit", ">predicted", ">80 % interval", ""),
                slo_rows(metrics.slo),
                _slo_lines(metrics.slo, overloaded=metrics.overloaded),
            ),
        )
    if metrics.transfers is not None:
        moved, each = format_quantity(metrics.transfers.bytes, "B"), format_quantity(metrics.transfers.mean_s, "s")
        found.append(TextTable("Between the pools", sentences=(f"{metrics.transfers.count:,} KV caches, {moved}, each in {each}",)))
    if metrics.cost is not None:
        found.append(TextTable("Power and cost", sentences=_cost_lines(metrics, metrics.cost)))
    return found


def _latency_rows(metrics: ServingMetrics) -> tuple[Row, ...]:
    named = (
        ("time to first token", metrics.ttft_s),
        ("time per output token", metrics.tpot_s),
        ("between tokens", metrics.itl_s),
        ("end to end", metrics.e2e_s),
    )
    return tuple((name, *format_alike((each.mean, each.p50, each.p90, each.p99), "s")) for name, each in named if each is not None)


def _interval_lines(metrics: ServingMetrics) -> tuple[str, ...]:
    ttft, tpot = (metrics.ttft_interval_s, metrics.ttft_s), (metrics.tpot_interval_s, metrics.tpot_s)
    lines = [
        f"80 % interval of the mean {name}: {format_range(*ends, 's', as_of=max(row.mean, row.p99))}"
        for name, (ends, row) in (("time to first token", ttft), ("time per output token", tpot))
        if ends is not None and row is not None
    ]
    gaps = metrics.itl_s
    if gaps is not None and gaps.mean > gaps.p99:
        lines.append(
            "between tokens, less than 1 % of the gaps, in which prompts are computed or a sequence is preempted, raise the mean above p99"
        )
    return tuple(lines)


def _term_rows(metrics: ServingMetrics) -> tuple[Row, ...]:
    whole = metrics.step_s.mean
    terms = sorted(metrics.step_s.by_term.items(), key=lambda each: -each[1])
    some = [(term, seconds) for term, seconds in terms if seconds > _LEAST * whole]
    times = format_alike([seconds for _, seconds in some], "s")
    rows = [_bar_row(term.replace("_", " "), seconds / whole, time) for (term, seconds), time in zip(some, times, strict=True)]
    return (*rows, ("step", "", format_quantity(whole, "s"), f"{metrics.batch.mean_tokens:.4g} tokens"))


def _bar_row(name: str, share: float, text: str) -> Row:
    return (name, f"{100 * share:.1f} %", text, bar_text(share, _BAR))


def _memory_rows(memory: PoolMemory, capacity_bytes: float) -> tuple[Row, ...]:
    parts = sorted(memory.by_category.items(), key=lambda each: -each[1])
    shares = [(name.replace("_", " "), size / capacity_bytes, size) for name, size in parts]
    return tuple(_bar_row(_NAMES.get(name, name), share, memory_text(size)) for name, share, size in shares if share > _LEAST)


def _reserve_lines(memory: PoolMemory, capacity_bytes: float, fraction: float) -> tuple[str, ...]:
    share = memory.by_category.get("reserve", 0.0) / capacity_bytes
    if share <= _LEAST:
        return ()
    what = "1 - memory_fraction" if abs(share - (1.0 - fraction)) < _LEAST else f"what memory_fraction {fraction:.3g} leaves"
    return (f"reserve is {what}",)


def _settings_lines(metrics: ServingMetrics) -> tuple[str, ...]:
    lines: list[str] = []
    for each in metrics.settings:
        pool = f"{each.role}: " if len(metrics.settings) > 1 else ""
        tokens = f"max_batched_tokens {each.max_batched_tokens:,}, max_graph_tokens {each.max_graph_tokens:,}"
        lines.append(f"{pool}{tokens}, max_num_seqs {each.max_num_seqs:,}, memory_fraction {each.memory_fraction:.3g}")
        if each.without_graphs_fraction > _LEAST:
            share = f"{100 * each.without_graphs_fraction:.3g} % of the steps without prompts"
            lines.append(f"{pool}{share} run without CUDA graphs: max_graph_tokens is {each.max_graph_tokens:,}")
    return tuple(lines)


def _kv_lines(metrics: ServingMetrics) -> tuple[str, ...]:
    kv = metrics.kv
    how = "predicted" if kv.predicted else "as given"
    pools = metrics.memory.by_pool
    lines = [
        f"{pool.kv_tokens:,} tokens for each {f'{pool.role} ' if len(pools) > 1 else ''}replica ({how}),"
        f" at most {100 * pool.kv_peak_fraction:.1f} % full"
        for pool in pools
    ]
    lines.append(count_text(kv.preemptions, "preemption"))
    if kv.sequences_with_states is not None:
        lines.insert(len(pools), f"at most {kv.sequences_with_states:,} sequences in the batch of a rank, set by the states")
    if kv.prefix_hit_fraction is not None:
        lines.append(f"{100 * kv.prefix_hit_fraction:.1f} % of the blocks of prompts were in the cache")
    return tuple(lines)


def slo_title(name: str) -> str:
    """Return the latency of an SLO as people write it.

    Examples
    --------
    >>> slo_title("ttft_p99")
    'TTFT p99'
    """
    latency, _, statistic = name.partition("_")
    return f"{latency.upper()} {statistic}"


def slo_verdict(check: SloCheck) -> str:
    """Return whether an SLO is met, and decided."""
    return f"{'met' if check.holds else 'MISSED'}{'' if check.decided else ', not decided'}"


def slo_rows(slo: SloReport) -> tuple[Row, ...]:
    """Return limit, latency, interval and verdict of each SLO."""
    return tuple(
        (
            slo_title(check.name),
            format_quantity(check.limit_s, "s"),
            "-" if check.found_s is None else format_quantity(check.found_s, "s"),
            "" if check.interval_s is None else format_range(*check.interval_s, "s", as_of=check.found_s),
            slo_verdict(check),
        )
        for check in slo.checks
    )


def _slo_lines(slo: SloReport, *, overloaded: bool) -> tuple[str, ...]:
    kept = f"{100 * slo.attained_fraction:.2f} % of the requests meet every limit by themselves"
    return (kept, "no SLO is met for long: the queue grows without end") if overloaded else (kept,)


def _cost_lines(metrics: ServingMetrics, cost: ServingCost) -> tuple[str, ...]:
    lines: list[str] = []
    if metrics.energy is not None:
        power, energy = format_quantity(metrics.energy.power_w, "W"), metrics.energy.joules_per_output_token
        lines.append(f"the nodes draw {power}, {energy:.3g} J for each output token")
    for what, amount in (("output tokens", cost.per_million_output_tokens), ("tokens of prompts and answers", cost.per_million_tokens)):
        money = "" if amount.usd is None else f"{amount.usd:.4g} USD, "
        lines.append(f"a million {what}: {money}{amount.gpu_hours:.4g} GPU hours, {format_quantity(amount.energy_kwh, 'kWh')}")
    return tuple(lines)


_REQUESTS: Final = ("request", "sent_s", "first_token_s", "last_token_s", "input_tokens", "output_tokens")
_STEPS: Final = ("replica", "start_s", "end_s", "steps", "prefill_tokens", "decoding_sequences", "waiting_requests", "used_blocks")
_MOST_REQUESTS: Final = 100_000


def requests_frame(requests: Requests, log: RequestLog) -> pandas.DataFrame:
    """Return one row for each request, times in seconds."""
    import pandas as pd

    columns = (np.arange(len(requests)), *_times(log), requests.input_tokens, requests.output_tokens)
    return pd.DataFrame(dict(zip(_REQUESTS, columns, strict=True)))


def write_serving_tables(requests: Requests, log: RequestLog, steps: Iterable[EngineStepLog], folder: Path) -> None:
    """Write requests.csv (the first 100,000) and steps.csv (steps at about equal distances in time) into a folder that exists."""
    kept = min(len(requests), _MOST_REQUESTS)
    sent, first, done = (column[:kept].tolist() for column in _times(log))
    lengths = requests.input_tokens[:kept].tolist(), requests.output_tokens[:kept].tolist()
    rows = zip(range(kept), sent, map(_or_none, first), map(_or_none, done), *lengths, strict=True)
    write_table(folder / "requests.csv", _REQUESTS, rows)
    write_steps(steps, folder / "steps.csv")


def write_steps(steps: Iterable[EngineStepLog], path: Path) -> None:
    """Write steps at about equal distances in time, pool after pool."""
    write_table(path, _STEPS, _step_rows(steps))


def steps_frame(steps: Iterable[EngineStepLog]) -> pandas.DataFrame:
    """Return the same as a frame."""
    import pandas as pd

    return pd.DataFrame.from_records(list(_step_rows(steps)), columns=list(_STEPS))


def _step_rows(steps: Iterable[EngineStepLog]) -> Iterator[tuple[float, ...]]:
    return ((each[0], each[1] * TICK_S, each[2] * TICK_S, *each[3:]) for log in steps for each in log.samples)


def _times(log: RequestLog) -> tuple[FloatArray, ...]:
    return tuple(np.where(column >= 0, column * TICK_S, np.nan) for column in (log.sent, log.first_token, log.done))


def _or_none(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - not a number


_NS_PER_US: Final = 1000


def write_serving_trace(logs: Iterable[EngineStepLog], n_replicas: int, path: Path) -> None:
    """Write the first steps of a run; a stretch of steps that only decode is one slice."""
    kept = list(logs)
    other = {"steps": f"the first {sum(len(log.first) for log in kept)} steps and stretches of steps of the run"}
    head = f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(other)},\n"traceEvents": [\n'
    events = ",\n".join([*_names(n_replicas), *(event for log in kept for record in log.first for event in _events(record))])
    with replacing_bytes(path) as packed:
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
