"""Pictures of a serving run: how latencies are distributed, batch and queue over time, and the KV cache over time."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter

from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.report import palette
from clustersim.report.plots.canvas import INK, Margins, caption, new_axes, save, style
from clustersim.serving.records import TICK_S, StepRecord
from clustersim.units.quantity import format_quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clustersim.serving.batch import FloatArray

HEIGHT_PX: Final = 560
_MARGINS: Final = Margins(left=90, right=170, top=84, bottom=72)
_COLOURS: Final = {"ttft": palette.FORWARD, "tpot": palette.BACKWARD, "e2e": palette.EXPOSED}
_NAMES: Final = {"ttft": "first token", "tpot": "output token", "e2e": "whole answer"}


def write_serving_plots(
    metrics: ServingMetrics, latencies_s: Mapping[str, FloatArray], samples: Sequence[StepRecord], n_blocks: Mapping[int, int], folder: Path
) -> None:
    """Write latency.png, timeline.png and kv.png into ``folder``, which must exist; equal runs give equal bytes."""
    with style():
        save(latency_distribution(metrics, latencies_s), folder / "latency.png")
        save(step_timeline(metrics, samples), folder / "timeline.png")
        save(kv_over_time(metrics, samples, n_blocks), folder / "kv.png")


def latency_distribution(metrics: ServingMetrics, latencies_s: Mapping[str, FloatArray], ax: Axes | None = None) -> Axes:
    """Draw, for each latency, how many requests stay below it."""
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xscale("log")
    for name, values_s in latencies_s.items():
        above = np.sort(values_s[values_s > 0.0])
        if not len(above):
            continue
        picked = above[np.unique(np.linspace(0, len(above) - 1, min(len(above), 2000)).astype(int))]
        shares = 100.0 * (np.searchsorted(above, picked, side="right") / len(above))
        ax.step(picked, shares, where="post", color=_COLOURS[name], linewidth=2.0, label=_NAMES[name])
    if metrics.slo is not None:
        for check in metrics.slo.checks:
            latency = check.name.partition("_")[0]
            ax.axvline(check.limit_s, color=_COLOURS.get(latency, INK), linewidth=1.0, linestyle=(0, (5, 2)))
    ax.set_ylim(0, 101)
    ax.xaxis.set_major_formatter(FuncFormatter(_as_time))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("latency", loc="right")
    ax.set_ylabel("requests, %", loc="top")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    first = metrics.ttft_s
    finding = ""
    if first is not None:
        half, most = format_quantity(first.p50, "s"), format_quantity(first.p99, "s")
        finding = f": half of the requests have their first token within {half}, 99 % within {most}"
    caption(ax, f"{metrics.scenario}{finding}", "share of the requests that stay below a latency; dashed: promised")
    return ax


def _as_time(value: float, _: int) -> str:
    return format_quantity(value, "s")


def step_timeline(metrics: ServingMetrics, samples: Sequence[StepRecord], ax: Axes | None = None) -> Axes:
    """Draw the sequences of the batch and the requests that wait, over time, summed over replicas."""
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    for label, colour, index in (("decoding", palette.FORWARD, 5), ("waiting", palette.EXPOSED, 6)):
        times_s, values = _summed(samples, index)
        ax.step(times_s, values, where="post", color=colour, linewidth=1.4, label=label)
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.grid(axis="y", color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("time, s", loc="right")
    ax.set_ylabel("requests", loc="top")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    mean = f"{metrics.batch.mean_sequences:.3g} sequences in a batch on average"
    caption(
        ax, f"{metrics.scenario}: {mean}{', and the queue grows without end' if metrics.overloaded else ''}", "batch and queue over time"
    )
    return ax


def kv_over_time(metrics: ServingMetrics, samples: Sequence[StepRecord], n_blocks: Mapping[int, int], ax: Axes | None = None) -> Axes:
    """Draw how full the KV cache of each replica is, over time."""
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    shown = sorted(n_blocks)[:8]
    for number in shown:
        own = [each for each in samples if each.replica == number]
        shares = [100.0 * each.n_used_blocks / n_blocks[number] for each in own]
        ax.step([each.end * TICK_S for each in own], shares, where="post", linewidth=1.4, label=f"replica {number}")
    ax.set_ylim(0, 101)
    ax.set_xlim(left=0)
    ax.grid(axis="y", color=palette.IDLE, linewidth=0.8)
    ax.set_xlabel("time, s", loc="right")
    ax.set_ylabel("KV cache, %", loc="top")
    if len(shown) > 1:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    more = f"; the first {len(shown)} of {len(n_blocks)} replicas" if len(n_blocks) > len(shown) else ""
    title = (
        f"{metrics.scenario}: at most {100 * metrics.kv.peak_fraction:.1f} % of the KV cache is used, {metrics.kv.preemptions} preemptions"
    )
    caption(ax, title, f"{metrics.kv.capacity_tokens:,} tokens for each replica{more}")
    return ax


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
