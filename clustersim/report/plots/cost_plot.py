"""Cost of a step or a training, from the necessary to the actual amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes

from clustersim.economics import UsageCost
from clustersim.errors import ScenarioError
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import PART_WORDS
from clustersim.report import palette
from clustersim.report.facts import gpus_text
from clustersim.report.plots.canvas import FAINT_INK, INK, Margins, add_boxes, caption, draw_grid, new_axes, paper, round_values, write
from clustersim.report.shares import percentages, step_shares
from clustersim.report.subject import Subject
from clustersim.units.quantity import format_quantity

HEIGHT_PX: Final = 560

_MARGINS: Final = Margins(left=110, right=40, top=84, bottom=92)
_FAILURES_COLOUR: Final = palette.DIMENSION_COLOURS["tp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    label: str
    usd: float
    percent: float
    """Share of the whole in percent, rounded such that all bars sum to 100.0."""
    colour: str
    idle: bool = False


def cost_waterfall(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw what money buys: computing first, then everything that accelerators wait for, then what failures take, up to the whole.

    Money follows the time of the accelerators: a part that is a tenth of the step costs a tenth of it.
    """
    subject = subjects[0]
    amount, what = _priced(subject)
    bars = _bars(subject, amount)
    ax = new_axes(HEIGHT_PX, _MARGINS) if ax is None else ax
    ax.set_xlim(-0.6, len(bars) + 0.6)
    total = _whole_usd(amount, subject)
    ax.set_ylim(0, total * 1.12)
    at = 0.0
    for place, bar in enumerate(bars):
        add_boxes(ax, np.array([[place - 0.36, place + 0.36, at, at + bar.usd]]), bar.colour, hatched=bar.idle)
        at += bar.usd
        ax.plot([place - 0.36, place + 1.36], [at, at], color=FAINT_INK, linewidth=0.8)
        _write(ax, place, at, bar.usd, bar.percent)
    add_boxes(ax, np.array([[len(bars) - 0.36, len(bars) + 0.36, 0.0, total]]), INK)
    _write(ax, len(bars), total, total, 100.0, strong=True)
    names = [*(bar.label for bar in bars), "total"]
    ax.set_xticks(range(len(names)), ["\n".join(name.split(" ")) if len(name) > 9 else name for name in names])
    ax.tick_params(axis="x", length=0, labelsize=9.5)
    values = round_values(0.0, total * 1.12, 6)
    ax.set_yticks(values, [format_quantity(value, "USD") if value else "0" for value in values])
    draw_grid(ax, width=0.7)
    metrics = subject.metrics
    title = f"{metrics.scenario}, {gpus_text(metrics)}: {bars[0].percent:.1f} % of {format_quantity(total, 'USD')} buys computing"
    caption(ax, title, f"{what}; divided by accelerator time; {_prices(subject.cost)}")
    return ax


def _priced(subject: Subject) -> tuple[UsageCost, str]:
    if subject.cost is None or subject.cost.step.usd is None:
        raise ScenarioError(f"{subject.label} has no cost", hint="add such as 'cost: {gpu_hour: 2.50 USD, pue: 1.2}' to its scenario")
    training = subject.cost.training
    if training is None or training.usd is None:
        return subject.cost.step, _steps(subject.cost.step.usd)
    return training, f"the whole training of {format_quantity(training.tokens, 'count')} tokens"


def _times(step_usd: float) -> float:
    """Return of how many steps the cost is shown: one, a thousand or a million, so that it is some money."""
    return next((times for times in (1.0, 1e3) if step_usd * times >= 1.0), 1e6)


def _steps(step_usd: float) -> str:
    times = _times(step_usd)
    return "one step" if times == 1.0 else f"{times:,.0f} steps"


def _whole_usd(amount: UsageCost, subject: Subject) -> float:
    assert amount.usd is not None
    is_step = subject.cost is not None and amount is subject.cost.step
    return amount.usd * (_times(amount.usd) if is_step else 1.0)


def _bars(subject: Subject, amount: UsageCost) -> list[_Bar]:
    """Return the parts of the whole that a tenth of a percent shows, computing first."""
    shares, useful, lost = step_shares(subject.metrics), 1.0, dict[str, float]()
    if subject.goodput is not None and subject.cost is not None and subject.cost.training is amount:
        parts = subject.goodput.parts_fraction
        useful, lost = parts.useful, {words: getattr(parts, name) for name, words in PART_WORDS}
    fractions = [*(useful * share.fraction for share in shares), *lost.values()]
    looks = [*((share.label, share.colour, share.is_idle) for share in shares), *((words, _FAILURES_COLOUR, False) for words in lost)]
    usd = _whole_usd(amount, subject)
    return [
        _Bar(label=label, usd=usd * fraction, percent=percent, colour=colour, idle=idle)
        for (label, colour, idle), fraction, percent in zip(looks, fractions, percentages(fractions), strict=True)
        if percent or label == "compute"
    ]


def _write(ax: Axes, place: int, top: float, usd: float, percent: float, *, strong: bool = False) -> None:
    text, weight = f"{format_quantity(usd, 'USD')}\n{percent:.1f} %", "bold" if strong else "normal"
    write(ax, text, (place, top), (0, 4), ha="center", va="baseline", fontweight=weight, bbox=paper(0.5))


def _prices(report: CostReport | None) -> str:
    if report is None or report.prices.usd_per_gpu_hour is None:
        return "machines have no price"
    return f"{report.prices.usd_per_gpu_hour:.3g} USD per GPU hour"
