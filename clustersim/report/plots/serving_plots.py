"""Pictures of serving runs: latency distribution, batch and queue over time, KV cache over time, throughput against latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from clustersim.network.in_flight import TICK_S
from clustersim.report import palette
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, legend_aside, new_axes, size_px
from clustersim.report.subject import ServedSubject
from clustersim.serving.records import StepRecord
from clustersim.units.divisors import count_text
from clustersim.units.quantity import format_quantity

HEIGHT_PX: Final = 560
_LETTER_PX: Final = 8.5
_MARGINS: Final = Margins(left=90, right=220, top=84, bottom=72)
_COLOURS: Final = {"ttft": palette.FORWARD, "tpot": palette.BACKWARD, "e2e": palette.EXPOSED}
_DASHED: Final = (0, (5, 2))
_REPLICA_COLOURS: Final = (palette.FORWARD, palette.EXPOSED, *palette.DIMENSION_COLOURS.values())
_NAMES: Final = {"ttft": "first token (TTFT)", "tpot": "output token (TPOT)", "e2e": "whole answer (E2E)"}


def latency_distribution(runs: Sequence[ServedSubject], ax: Axes | None = None) -> Axes:
    """Draw, for each latency, how many requests stay below it."""
    run, metrics = runs[0], runs[0].metrics
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xscale("log")
    for name, values_s in run.latencies_s.items():
        above = np.sort(values_s[values_s > 0.0])
        if not len(above):
            continue
        picked = above[np.unique(np.linspace(0, len(above) - 1, min(len(above), 2000)).astype(int))]
        shares = 100.0 * (np.searchsorted(above, picked, side="right") / len(above))
        ax.step(picked, shares, where="post", color=_COLOURS[name], linewidth=2.0, label=_NAMES[name])
    _draw_slo(ax, run, across=False)
    ax.set_ylim(0, 101)
    ax.xaxis.set_major_formatter(_as_time)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("latency", loc="right")
    ax.set_ylabel("requests, %", loc="top")
    legend_aside(ax)
    first = metrics.ttft_s
    finding = ""
    if first is not None:
        half, most = format_quantity(first.p50, "s"), format_quantity(first.p99, "s")
        finding = f": half of the requests have their first token within {half}, 99 % within {most}"
        ax.plot(
            [first.p50, first.p99], [50.0, 99.0], marker="o", markersize=7, color=palette.FORWARD, markeredgecolor="white", linestyle="none"
        )
    caption(ax, f"{run.label}{finding}", "share of the requests that stay below a latency")
    return ax


def _draw_slo(ax: Axes, run: ServedSubject, *, across: bool) -> None:
    """Draw a dotted line at the limit of each SLO, across the picture or from bottom to top."""
    for check in run.metrics.slo.checks if run.metrics.slo else ():
        latency, _, statistic = check.name.partition("_")
        colour = _COLOURS.get(latency, INK)
        text = f"SLO: {latency.upper()} {statistic} {format_quantity(check.limit_s, 's')}"
        (ax.axhline if across else ax.axvline)(check.limit_s, color=colour, linewidth=1.0, linestyle=":", label=text)


def _as_time(value: float, _: float) -> str:
    return format_quantity(value, "s")


def step_timeline(runs: Sequence[ServedSubject], ax: Axes | None = None) -> Axes:
    """Draw the sequences of the batch and the requests that wait, over time, summed over replicas."""
    run, metrics = runs[0], runs[0].metrics
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    most: list[int] = []
    for label, colour, index in (("decoding", palette.FORWARD, 5), ("waiting", palette.EXPOSED, 6)):
        times_s, values = _summed(run.samples, index)
        ax.step(times_s, values, where="post", color=colour, linewidth=1.4, label=label)
        most.append(max(values, default=0))
    _over_time(ax, "requests")
    growing = ", and the queue grows without end" if metrics.overloaded else ""
    title = f"{run.label}: at most {count_text(most[0], 'request')} at once in decoding, and {most[1]:,} waiting{growing}"
    n_steps = format_quantity(metrics.step_s.mean, "s")
    caption(ax, title, f"of all replicas together, after engine steps; a step takes {n_steps} on average")
    return ax


def kv_over_time(runs: Sequence[ServedSubject], ax: Axes | None = None) -> Axes:
    """Draw how full the KV cache of each replica is, over time."""
    run, kv = runs[0], runs[0].metrics.kv
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    shown = sorted(run.n_blocks)[: len(_REPLICA_COLOURS)]
    for number, colour in zip(shown, _REPLICA_COLOURS, strict=False):
        own = [each for each in run.samples if each.replica == number]
        shares = [100.0 * each.n_used_blocks / run.n_blocks[number] for each in own]
        pool = "replica" if run.metrics.transfers is None else "prefill" if any(each.n_prefill_tokens for each in own) else "decode"
        ax.step([each.end * TICK_S for each in own], shares, where="post", color=colour, linewidth=1.4, label=f"{pool} {number}")
    ax.axhline(100.0 * kv.peak_fraction, color=INK, linewidth=1.0, linestyle=_DASHED, label="peak")
    _over_time(ax, "KV cache in use, %")
    ax.set_ylim(0, min(101.0, 125.0 * kv.peak_fraction) or 101.0)
    more = f"; the first {len(shown)} of {len(run.n_blocks)} replicas" if len(run.n_blocks) > len(shown) else ""
    whose = "replica" if run.metrics.transfers is None else "decode replica"
    title = f"{run.label}: at most {100 * kv.peak_fraction:.1f} % of a KV cache is used, {count_text(kv.preemptions, 'preemption')}"
    caption(ax, title, f"{kv.capacity_tokens:,} tokens in each {whose}; lines: after engine steps, dashed: highest within one{more}")
    return ax


def _over_time(ax: Axes, quantity: str) -> None:
    """Set axes whose abscissa is the time of the run."""
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.grid(axis="y", color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("time, s", loc="right")
    ax.set_ylabel(quantity, loc="top")
    legend_aside(ax)


def throughput_latency(runs: Sequence[ServedSubject], ax: Axes | None = None) -> Axes:
    """Draw latencies against output tokens a second per GPU, of one deployment under several loads or of several."""
    ax = new_axes(HEIGHT_PX, replace(_MARGINS, top=110)) if ax is None else ax
    ax.set_yscale("log")
    first, *others = (
        (run.metrics.scenario, run.metrics.replicas, run.metrics.settings, [pool.by_category for pool in run.metrics.memory.by_pool])
        for run in runs
    )
    same = all(other == first for other in others)
    # Past full load a higher load may have a lower throughput; numbers of concurrent requests come in order.
    ordered = sorted(runs, key=lambda run: (run.metrics.asked_requests_per_s or 0.0) if same else run.metrics.output_tokens_per_s_per_gpu)
    rates = [run.metrics.output_tokens_per_s_per_gpu for run in ordered]
    for name in _NAMES:
        found = [getattr(run.metrics, f"{name}_s") for run in ordered]
        for statistic, dashes, marker in (("p50", "-", "o"), ("p99", _DASHED, "^")):
            values = [float("nan") if each is None else getattr(each, statistic) for each in found]
            label, line = f"{name.upper()}, {statistic}", dashes if same else "none"
            ax.plot(rates, values, color=_COLOURS[name], linestyle=line, linewidth=1.8, marker=marker, markersize=5, label=label)
    ax.set_xlim(left=0)
    ax.yaxis.set_major_formatter(_as_time)
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("output tokens/s per GPU", loc="right")
    ax.set_ylabel("latency", loc="top")
    if same:
        _draw_slo(ax, ordered[0], across=True)
    legend_aside(ax)
    loads = [run.load.partition(" ") for run in ordered]
    unit = f" in {loads[0][2]}" if same and len({each[2] for each in loads}) == 1 else ""
    names = [each[0] for each in loads] if unit else [run.load if same else run.label for run in ordered]
    _name_points(ax, list(zip(rates, names, strict=True)))
    most = max(ordered, key=lambda run: run.metrics.output_tokens_per_s_per_gpu)
    growing = ", where the queue grows without end" if most.metrics.overloaded else ""
    title = f"{most.metrics.scenario if same else most.label}: {max(rates):,.0f} output tokens/s per GPU with {most.load}{growing}"
    full_load = f"{most.metrics.full_load_output_tokens_per_s / most.metrics.gpus:,.0f}"
    full = f"; in the long run full batches give {full_load} output tokens/s per GPU; runs have ramp and drain, too" if same else ""
    kept = [run for run in ordered if run.metrics.slo is not None and run.metrics.slo.met and not run.metrics.overloaded]
    if same and any(run.metrics.slo is not None for run in ordered):
        title += f"; the SLO holds up to {kept[-1].load}" if kept else "; no load meets the SLO"
    caption(
        ax,
        title,
        f"each point is a run; its {f'load{unit}' if same else 'name'} stands above it; TTFT, time per output token and whole answer{full}",
        lift_points=16,
    )
    return ax


def _name_points(ax: Axes, points: Sequence[tuple[float, str]]) -> None:
    """Write names above the axes at their places along the abscissa; points that lie together share a text."""
    free_px, last_px, width_px = np.inf, 0.0, size_px(ax)[0]
    for value, name in sorted(points, reverse=True):
        place_px = value / ax.get_xlim()[1] * width_px
        if place_px + _LETTER_PX * len(name) / 2 > free_px:
            together = f"{name}, {ax.texts[-1].get_text()}"
            ax.texts[-1].set_text(together)
            free_px = last_px - _LETTER_PX * len(together) / 2
            continue
        free_px, last_px = place_px - _LETTER_PX * len(name) / 2, place_px
        ax.text(value, 1.02, name, transform=ax.get_xaxis_transform(), ha="center", fontsize=9.5, color=FAINT_INK)


def _summed(samples: Sequence[StepRecord], index: int) -> tuple[list[float], list[int]]:
    """Return a figure summed over replicas, each with its latest value."""
    latest: dict[int, int] = {}
    times_s: list[float] = []
    values: list[int] = []
    for record in sorted(samples, key=lambda each: (each.end, each.replica)):
        latest[record.replica] = record[index]
        times_s.append(record.end * TICK_S)
        values.append(sum(latest.values()))
    return times_s, values
