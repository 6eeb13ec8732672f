"""Scaling over accelerators: the same work on more of them, or more work with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from clustersim.errors import ScenarioError
from clustersim.report import palette
from clustersim.report.facts import percent_text, rate_text
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, caption, draw_grid, new_axes, round_locator, write
from clustersim.report.subject import Subject

HEIGHT_PX: Final = 560

_MARGINS: Final = Margins(left=130, right=190, top=84, bottom=64)


def scaling(subjects: Sequence[Subject], ax: Axes | None = None, *, weak: bool = False) -> Axes:
    """Draw samples per second over the number of accelerators, beside what perfect scaling would give.

    Parameters
    ----------
    weak
        Whether the batch grows with the accelerators; otherwise it is the same in all runs.

    Raises
    ------
    ScenarioError
        When the batches of the runs are others, or all are of one size.
    """
    if len({subject.global_batch_size / (subject.metrics.gpus if weak else 1) for subject in subjects}) > 1:
        differ, hint = "training.global_batch_size", "strong scaling wants one batch; see weak_scaling"
        if weak:
            differ, hint = "samples for each accelerator", "weak scaling wants a batch that grows with them; see strong_scaling"
        raise ScenarioError(f"these runs differ in {differ}", hint=hint)
    what = "weak scaling: the batch grows with the accelerators" if weak else "strong scaling: one batch on more accelerators"
    ordered = sorted(subjects, key=lambda subject: (subject.metrics.gpus, subject.label))
    gpus = [subject.metrics.gpus for subject in ordered]
    if len(set(gpus)) < 2:
        raise ScenarioError("all runs have as many accelerators", hint="name runs of several sizes, or one scenario whose cluster can grow")
    rates = [subject.metrics.samples_per_s for subject in ordered]
    ideal = [rates[0] * count / gpus[0] for count in gpus]
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.plot(gpus, ideal, color=FAINT_INK, linewidth=1.2, linestyle=(0, (5, 2)))
    ax.plot(gpus, rates, color=palette.FORWARD, linewidth=2.4, marker="o", markersize=6, markeredgecolor="white")
    ax.set_ylim(min(*rates, *ideal) / 1.5, max(*rates, *ideal) * 1.35)
    ax.set_xlim(gpus[0] / 1.12, gpus[-1] * 1.12)
    for count, rate, best in zip(gpus[1:], rates[1:], ideal[1:], strict=True):
        write(ax, percent_text(rate / best), (count, rate), (0, -9), ha="center", va="top")
    for text, rate, colour, up, va in (("perfect", ideal[-1], INK, 3, "bottom"), ("simulated", rates[-1], palette.FORWARD, -3, "top")):
        write(ax, f"{text} {rate_text(rate)}", (1, rate), (8, up), of=("axes fraction", "data"), va=va, fontsize=10, color=colour)
    ax.set_xticks(gpus, [f"{count:,}" for count in gpus])
    ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    values = [float(value) for value in round_locator(6).tick_values(min(rates), max(ideal)) if low <= value <= high]
    ax.set_yticks(values, [rate_text(value) for value in values])
    ax.yaxis.set_minor_locator(NullLocator())
    draw_grid(ax)
    ax.set_xlabel("accelerators", loc="right")
    ax.set_ylabel("samples per second", loc="top")
    kept = rates[-1] / ideal[-1]
    title = f"{ordered[0].metrics.scenario}: {gpus[-1] / gpus[0]:g} times the accelerators bring {rates[-1] / rates[0]:.3g} times the rate"
    caption(ax, title, f"{what}; percentages are of perfect scaling from {gpus[0]:,}; {percent_text(kept)} are kept at {gpus[-1]:,}")
    return ax
