"""Which layouts nothing beats: time against cost, and energy as the size of a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from clustersim.errors import ScenarioError
from clustersim.measure.deciding import UNDECIDED, Decision, is_better, judged_by
from clustersim.measure.error_bars import BAR, BAR_COLUMNS, ErrorBar
from clustersim.report import palette
from clustersim.report.plots.breakdown import spread
from clustersim.report.plots.canvas import (
    FAINT_INK,
    INK,
    FloatArray,
    Margins,
    caption,
    draw_grid,
    new_axes,
    note,
    round_locator,
    size_px,
)
from clustersim.report.plots.heatmap import have_results, keys_of, label_of, table_bars
from clustersim.report.subject import Subject, check_alike

if TYPE_CHECKING:
    import pandas

HEIGHT_PX: Final = 600
COLUMNS: Final = ("label", "step_time_s", "usd", "energy_kwh")
"""Columns of the table: a name, the time of a step, and the cost and energy of a million tokens."""
_OF_RESULTS: Final = {"point": "label", "cost.per_million_tokens.usd": "usd", "cost.per_million_tokens.energy_kwh": "energy_kwh"}
"""Names of the columns in the table of a sweep."""
MOST_LABELS: Final = 14

_MARGINS: Final = Margins(left=110, right=60, top=84, bottom=72)
_WIDEST: Final = 44
_LETTER_PX: Final = 7.3
"""Letters of a line beside the picture, and the width of one."""
_SIZES: Final = (50.0, 420.0)
_ALIKE: Final = 0.8
"""Share of the largest area from which on a smaller one looks as large."""
_RING: Final = 90.0
"""Area of the ring about a point beyond that of the point, in square points."""
_WORK: Final = ("model", "training.global_batch_size", "training.seq_length")
"""Keys that change the work of a step."""
_COST: Final = "cost.per_million_tokens.usd"
_LINE_PX: Final = 17.0
_FAR: Final = 20.0
"""From which ratio on a logarithmic axis shows more."""


def frame_of(subjects: Sequence[Subject]) -> pandas.DataFrame:
    """Return the table of runs that this picture draws.

    Raises
    ------
    ScenarioError
        When a run has no prices.
    """
    import pandas

    rows: list[tuple[str, float, float, float]] = []
    for subject in subjects:
        amount = None if subject.cost is None else subject.cost.per_million_tokens
        if amount is None or amount.usd is None:
            raise ScenarioError(f"{subject.label} has no cost", hint="add such as 'cost: {gpu_hour: 2.50 USD, pue: 1.2}' to its scenario")
        rows.append((subject.label, subject.metrics.step_time_s, amount.usd, amount.energy_kwh))
    bars = [{} if subject.metrics.error_bar is None else asdict(subject.metrics.error_bar) for subject in subjects]
    frame = pandas.DataFrame(rows, columns=list(COLUMNS))
    return frame.join(pandas.DataFrame([[bar.get(name.removeprefix(BAR)) for name in BAR_COLUMNS] for bar in bars], columns=[*BAR_COLUMNS]))


def pareto_of_runs(subjects: Sequence[Subject], ax: Axes | None = None) -> Axes:
    """Draw runs by step time and cost of a million tokens; see :func:`pareto`."""
    check_alike(subjects, "pareto")
    return pareto(frame_of(subjects), ax)


def pareto(frame: pandas.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw a point for each row by time and cost, as large as its energy, and join those that no other beats in both.

    A ring is about each of the others that none of these beats beyond the error bars.

    Parameters
    ----------
    frame
        With the columns of :data:`COLUMNS`; rows without time or cost, such as those that do not fit, are left out.
    """
    frame = _named(frame)
    known = frame[have_results(frame)].dropna(subset=["step_time_s", "usd"])
    if known.empty:
        raise ScenarioError(
            "no row has both a step time and a cost", hint="give scenarios with prices, such as 'cost: {gpu_hour: 2.50 USD}'"
        )
    times = known["step_time_s"].to_numpy(dtype=np.float64)
    costs = known["usd"].to_numpy(dtype=np.float64)
    energies = known["energy_kwh"].to_numpy(dtype=np.float64)
    labels = [str(label) for label in known["label"]]
    _check_work(known)
    front = unbeaten(times, costs)
    names = ["\n".join(wrap(label, _WIDEST, max_lines=2, placeholder=" …")) for label in labels]
    longest = max(len(line) for name in names for line in name.split("\n"))
    ax = new_axes(HEIGHT_PX, replace(_MARGINS, right=round(_MARGINS.right + _LETTER_PX * longest))) if ax is None else ax
    ax.set_xlim(*_scaled(ax, "x", times))
    ax.set_ylim(*_scaled(ax, "y", costs))
    least, most = float(np.nanmin(energies)), float(np.nanmax(energies))
    sizes = np.nan_to_num(_SIZES[1] * energies / most, nan=_SIZES[0]).clip(_SIZES[0])
    others = [place for place in range(len(labels)) if place not in front]
    ax.plot(times[front], costs[front], color=palette.FORWARD, linewidth=1.6, zorder=2)
    ax.scatter(times[others], costs[others], s=sizes[others], color=palette.STALL, edgecolor="white", zorder=3)
    ax.scatter(times[front], costs[front], s=sizes[front], color=palette.FORWARD, edgecolor="white", zorder=4)
    points = [_Point(*each) for each in zip(times.tolist(), costs.tolist(), table_bars(known), strict=True)]
    near = [place for place in others if not any(points[best].beats(points[place]) for best in front)]
    ax.scatter(times[near], costs[near], s=sizes[near] + _RING, facecolor="none", edgecolor=palette.FORWARD, linewidth=1.6, zorder=5)
    shown = [*front, *others][:MOST_LABELS]
    _label(ax, [(times.item(place), costs.item(place), names[place], place in front) for place in shown])
    draw_grid(ax, "both", 0.7)
    ax.set_xlabel("time of a step, s", loc="right")
    ax.set_ylabel("cost of a million tokens, USD", loc="top")
    left_out = f"; {len(frame) - len(known)} without a result are left out" if len(known) < len(frame) else ""
    seen = "the area of a point grows with its energy, " if sizes.min() < _ALIKE * sizes.max() else ""
    subtitle = f"to the lower left is better; {seen}{least:.3g} to {most:.3g} kWh for a million tokens{left_out}"
    caption(ax, _finding(labels, points, front, len(near)), subtitle)
    note(ax, f"ringed points are {UNDECIDED} against {'a joined' if len(front) > 1 else 'the best'} one" if near else "", below_px=30)
    return ax


@dataclass(frozen=True, slots=True)
class _Point:
    time_s: float
    cost_usd: float
    bar: ErrorBar | None

    def faster(self, other: _Point) -> Decision | None:
        """Return whether this one is faster; None without error bars."""
        return self._less("step_time_s", self.time_s, other.time_s, other.bar)

    def beats(self, other: _Point) -> bool:
        """Return whether this one is both faster and cheaper beyond the error bars, as far as these are known."""
        cheaper = self._less(_COST, self.cost_usd, other.cost_usd, other.bar)
        return self.faster(other) in {"yes", None} and cheaper in {"yes", None}

    def _less(self, name: str, mine: float, others: float, bar: ErrorBar | None) -> Decision | None:
        return is_better(judged_by(name, mine, self.bar), judged_by(name, others, bar))


def _named(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table with the columns of :data:`COLUMNS`, from one that has them under the names of results.

    Raises
    ------
    ScenarioError
        When one is missing.
    """
    given = frame.rename(columns={long: short for long, short in _OF_RESULTS.items() if short not in frame.columns})
    missing = [name for name in COLUMNS if name not in given.columns]
    if missing:
        names = {short: long for long, short in _OF_RESULTS.items()}
        hint = f"sweep with --metrics step_time_s,{','.join(long for long in _OF_RESULTS if long.startswith('cost.'))}"
        raise ScenarioError(f"the table has no column '{names.get(missing[0], missing[0])}'", hint=hint)
    keys = keys_of(frame) if "point" in frame.columns else []
    if not keys:
        return given
    # Values that were swept tell more than the number of a point.
    rows = zip(*([f"{key.rpartition('.')[2]} {label_of(value)}" for value in frame[key]] for key in keys), strict=True)
    return given.assign(label=[" with ".join(row) for row in rows])


def _check_work(known: pandas.DataFrame) -> None:
    """Check that no key was swept that changes the work of a step."""
    unlike = next((name for name in _WORK if name in known.columns and known[name].astype(str).nunique() > 1), None)
    if unlike is not None:
        values = ", ".join(sorted(known[unlike].astype(str).unique())[:4])
        raise ScenarioError(
            f"the rows differ in {unlike} ({values}), so that their step times are not of the same work",
            hint=f"keep the rows of one {unlike}",
        )


def _scaled(ax: Axes, which: Literal["x", "y"], values: FloatArray) -> tuple[float, float]:
    """Choose scale and ticks of an axis, logarithmic where values lie far apart, and return its ends."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = float(values.min()), float(values.max())
    if low > 0.0 and high > _FAR * low:
        ends = low / 1.6, high * 1.6
        ax.set_xscale("log") if which == "x" else ax.set_yscale("log")
        ticks = [
            step * 10.0**power for power in range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1) for step in (1, 2, 5)
        ]
        shown = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
        axis.set_ticks(shown, [f"{tick:g}" for tick in shown])
        axis.set_minor_locator(NullLocator())
        return ends
    axis.set_major_locator(round_locator(8))
    room = 0.12 * ((high - low) or high)
    return max(0.0, low - room), high + room


def unbeaten(times: FloatArray, costs: FloatArray) -> list[int]:
    """Return the places that no other beats in one without being worse in the other, by time.

    Examples
    --------
    >>> unbeaten(np.array([1.0, 2.0, 3.0, 2.5]), np.array([5.0, 3.0, 4.0, 3.0]))
    [0, 1]
    """
    found: list[int] = []
    cheapest = np.inf
    for place in np.lexsort((costs, times)).tolist():
        if costs[place] < cheapest:
            found.append(place)
            cheapest = float(costs[place])
    return found


def _label(ax: Axes, points: Sequence[tuple[float, float, str, bool]]) -> None:
    """Write names beside the picture, at the height of their points as far as there is room."""
    height_px = size_px(ax)[1]
    ordered = sorted(points, key=lambda point: point[1])
    bottom_px = ax.get_window_extent().y0
    wanted_px = [float(ax.transData.transform((time, cost))[1]) - bottom_px for time, cost, _, _ in ordered]
    places_px = spread(wanted_px, [_LINE_PX * (1 + name.count("\n")) for _, _, name, _ in ordered], height_px, between_px=0.0)
    for (time, cost, name, best), place_px in zip(ordered, places_px, strict=True):
        ax.annotate(
            name,
            (time, cost),
            xytext=(1.0 + 18 / size_px(ax)[0], place_px / height_px),
            textcoords="axes fraction",
            va="center",
            fontsize=9.5,
            color=INK if best else FAINT_INK,
            fontweight="bold" if best else "normal",
            arrowprops={"arrowstyle": "-", "color": palette.STALL, "linewidth": 0.6, "shrinkA": 1.0, "shrinkB": 4.0, "relpos": (0.0, 0.5)},
        )


def _finding(labels: Sequence[str], points: Sequence[_Point], front: Sequence[int], n_near: int) -> str:
    first, last = front[0], front[-1]
    if first == last:
        if n_near:
            return f"{labels[first]} is ahead in time and in cost; not decided against the {n_near} ringed"
        text, doubt = f"{labels[first]} is both the fastest and the cheapest of {len(labels)}", ""
    else:
        faster, dearer = points[last].time_s / points[first].time_s, points[first].cost_usd / points[last].cost_usd
        text = f"{labels[first]} is {faster:.3g} times as fast as {labels[last]}, which is the cheapest, for {dearer:.3g} times its cost"
        doubt = UNDECIDED if points[first].faster(points[last]) == "not decided" else ""
    return f"{text}; {doubt}" if doubt else text
