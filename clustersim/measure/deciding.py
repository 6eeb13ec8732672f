"""Verdict whether one run is better than another within the error bars of their step times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from clustersim.documents.text import Data
from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.metrics import Metrics
from clustersim.units.divisors import listed

Decision = Literal["yes", "no", "not decided"]

UNDECIDED: Final = "within the error bars: not decided"
"""Verdict on cases within the error bars of the best."""
MARK: Final = "*"
MARKED: Final = f"{MARK} {UNDECIDED}"
"""Legend of the mark, in tables."""
MOST_NAMED: Final = 5

_TIMES: Final = re.compile(
    r"step_time(_alone)?_s|time_to_train_s|(breakdown|overlapped_communication)_s\..+|steps\.(mean|median|p95)_s"
    r"|cost\.(step|per_(million|billion)_(output_)?tokens|training)\.(?!tokens).+|goodput\.time_to_train\.(mean|p5|p95)_s"
    r"|(ttft|tpot|itl|e2e)_s\..+"
)
"""Figures that grow with the step time, in proportion or nearly so."""
_RATES: Final = re.compile(r"(samples|requests|(((full_load_)?output|total)_)?tokens)_per_s(_per_gpu)?|tflops_per_gpu|[mh]fu")
"""Figures in inverse proportion to it."""
_MORE_IS_BETTER: Final = re.compile(
    rf"{_RATES.pattern}|goodput\..*goodput_fraction"
    r"|slo\.(attained_fraction|goodput_requests_per_s)|kv\.(capacity_tokens|prefix_hit_fraction)"
)
"""Figures of which more is better; of all others less is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run and the figure by which it is judged; a smaller one is better."""

    at: Callable[[float], float]
    """The figure if the step takes a given multiple of the predicted time."""
    bar: ErrorBar
    run: str = ""
    """Hash of the scenario; empty where that is not known."""


def is_better(one: Judged | None, other: Judged | None) -> Decision | None:
    """Return whether one run is better than another, or that the error bars do not tell; None of equal runs, and without error bars.

    All verdicts of comparisons, sweeps, plans, offers and pictures are this one. Runs on one machine share most of their error: only the
    ratio of their times can be off, by what was measured of such pairs. Of others each can be anywhere in its interval, and where these
    overlap nothing is decided. A figure that does not depend on the step time has no error bar.

    Examples
    --------
    >>> def run(time_s, machine):
    ...     bar = ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine=machine)
    ...     return Judged(at=lambda fraction: fraction * time_s, bar=bar)
    >>> is_better(run(1.0, "a"), run(1.2, "a")), is_better(run(1.0, "a"), run(1.2, "b")), is_better(run(2.0, "a"), run(1.0, "b"))
    ('yes', 'not decided', 'no')
    """
    if one is None or other is None or (one.run and one.run == other.run):
        return None
    (least, most), (others_least, others_most) = _spans(one.bar, other.bar)
    ones, others = [one.at(least), one.at(most)], [other.at(others_least), other.at(others_most)]
    if max(ones) < min(others):
        return "yes"
    return "no" if min(ones) >= max(others) else "not decided"


def _spans(one: ErrorBar, other: ErrorBar) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the multiples of the predicted step times that two runs can take beside each other."""
    if one.machine == other.machine:
        most = max(one.ratio_most_fraction, other.ratio_most_fraction)
        return (1.0 / most, most), (1.0, 1.0)
    return (one.least_fraction, one.most_fraction), (other.least_fraction, other.most_fraction)


def undecided_ratios(one: ErrorBar, other: ErrorBar) -> tuple[float, float]:
    """Return the least and the most ratio of the step time of one run to that of another at which the error bars do not tell.

    Examples
    --------
    >>> bar = ErrorBar(least_fraction=0.8, most_fraction=1.25, ratio_most_fraction=1.25, machine="a")
    >>> undecided_ratios(bar, bar)
    (0.8, 1.25)
    """
    (least, most), (others_least, others_most) = _spans(one, other)
    return others_least / most, others_most / least


def bar_of(data: Data) -> ErrorBar | None:
    """Return an error bar from its plain form; None where it is none, such as in the results of an earlier version."""
    if not isinstance(data, dict):
        return None
    least, most, ratio = (data.get(name) for name in ("least_fraction", "most_fraction", "ratio_most_fraction"))
    if not (isinstance(least, int | float) and isinstance(most, int | float) and isinstance(ratio, int | float)):
        return None
    return ErrorBar(
        least_fraction=least,
        most_fraction=most,
        ratio_most_fraction=ratio,
        machine=str(data.get("machine", "")),
    )


def undecided(ranked: Sequence[Judged | None]) -> list[int]:
    """Return the indices of the runs within the error bars of the first, the best."""
    return [place for place, other in enumerate(ranked) if place and is_better(ranked[0], other) == "not decided"]


def undecided_text(names: Sequence[str]) -> str:
    """Return the verdict that the best is within the error bars of some others; empty where there are none.

    Examples
    --------
    >>> undecided_text(["wide", "deep"]), undecided_text([])
    ('within the error bars: not decided against wide and deep', '')
    """
    return f"{UNDECIDED} against {_some(names)}" if names else ""


def standing_text(best: str, near: Sequence[str]) -> str:
    """Return the place of the best case: ahead only, where the error bars do not tell it apart from some others.

    Examples
    --------
    >>> standing_text("wide", []), standing_text("wide", ["deep", "base"])
    ('wide is best', 'wide is ahead of deep and base, not decided')
    """
    return f"{best} is ahead of {_some(near)}, not decided" if near else f"{best} is best"


def _some(names: Sequence[str]) -> str:
    shown = list(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown.append(f"{len(names) - MOST_NAMED:,} more")
    return listed(shown, "and")


def more_is_better(name: str) -> bool:
    """Return whether more of a figure is better, as of rates.

    Examples
    --------
    >>> more_is_better("tokens_per_s"), more_is_better("step_time_s"), more_is_better("slo.goodput_requests_per_s")
    (True, False, True)
    """
    return _MORE_IS_BETTER.fullmatch(name.strip()) is not None


def judged_by(name: str, value: float, bar: ErrorBar | None, *, run: str = "") -> Judged | None:
    """Return a run for a comparison by one figure, given its dependence on the step time; None without an error bar."""
    sign = -1.0 if more_is_better(name) else 1.0
    return None if bar is None else Judged(at=lambda fraction: sign * figures_at({name: value}, fraction)[name], bar=bar, run=run)


def is_shorter(one: Metrics, other: Metrics) -> Decision | None:
    """Return whether the step of one run is shorter than that of another, as far as the error bars tell; None without any."""
    return is_better(*(judged_by("step_time_s", each.step_time_s, each.error_bar) for each in (one, other)))


def figures_at(figures: Mapping[str, float | bool], fraction: float) -> dict[str, float | bool]:
    """Return the figures of a run for a step of a multiple of its time.

    Examples
    --------
    >>> figures_at({"step_time_s": 2.0, "mfu": 0.4, "gpus": 8}, 2.0)
    {'step_time_s': 4.0, 'mfu': 0.2, 'gpus': 8}
    """
    times = {name: value * fraction for name, value in figures.items() if _TIMES.fullmatch(name)}
    rates = {name: value / fraction for name, value in figures.items() if _RATES.fullmatch(name)}
    return {**figures, **times, **rates}
