"""Verdict whether one run is better than another within the error bars of their step times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from clustersim.documents.spots import Data
from clustersim.measure.error_bars import ErrorBar
from clustersim.measure.metrics import Metrics
from clustersim.units.divisors import listed

Decision = Literal["yes", "no", "not decided"]

UNDECIDED: Final = "within the error bars: not decided"
MOST_NAMED: Final = 5
"""Verdict on cases within the error bars of the best."""

_TIMES: Final = re.compile(
    r"step_time(_alone)?_s|time_to_train_s|(breakdown|overlapped_communication)_s\..+|steps\.(mean|median|p95)_s"
    r"|cost\.(step|per_million_tokens|per_billion_tokens|training)\.(?!tokens).+|goodput\.time_to_train\.(mean|p5|p95)_s"
)
"""Figures that grow with the step time, in proportion or nearly so."""
_RATES: Final = re.compile(r"(samples|tokens)_per_s(_per_gpu)?|tflops_per_gpu|[mh]fu")
"""Figures in inverse proportion to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run and the figure by which it is judged; a smaller one is better."""

    at: Callable[[float], float]
    """The figure if the step takes a given multiple of the predicted time."""
    bar: ErrorBar


def is_better(one: Judged, other: Judged) -> Decision:
    """Return whether one run is better than another, or that the error bars do not tell.

    Runs on one machine share most of their error: only the ratio of their times can be off, by what was measured of such pairs. Of others
    each can be anywhere in its interval, and where these overlap nothing is decided. A figure that does not depend on the step time has
    no error bar.

    Examples
    --------
    >>> def run(time_s, machine):
    ...     bar = ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine=machine)
    ...     return Judged(at=lambda fraction: fraction * time_s, bar=bar)
    >>> is_better(run(1.0, "a"), run(1.2, "a")), is_better(run(1.0, "a"), run(1.2, "b")), is_better(run(2.0, "a"), run(1.0, "b"))
    ('yes', 'not decided', 'no')
    """
    if one.bar.machine == other.bar.machine:
        most = max(one.bar.ratio_most_fraction, other.bar.ratio_most_fraction)
        ones, others = [one.at(1.0 / most), one.at(most)], [other.at(1.0)]
    else:
        ones, others = ([each.at(each.bar.least_fraction), each.at(each.bar.most_fraction)] for each in (one, other))
    if max(ones) < min(others):
        return "yes"
    return "no" if min(ones) >= max(others) else "not decided"


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


def undecided(ranked: Sequence[Judged]) -> list[int]:
    """Return the indices of the runs within the error bars of the first, the best."""
    return [place for place, other in enumerate(ranked) if place and is_better(ranked[0], other) == "not decided"]


def undecided_text(names: Sequence[str]) -> str:
    """Return the verdict that the best is within the error bars of some others; empty where there are none.

    Examples
    --------
    >>> undecided_text(["wide", "deep"]), undecided_text([])
    ('within the error bars: not decided against wide and deep', '')
    """
    if not names:
        return ""
    shown = list(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown.append(f"{len(names) - MOST_NAMED:,} more")
    return f"{UNDECIDED} against {listed(shown, 'and')}"


def judged_by(name: str, value: float, bar: ErrorBar, *, higher_is_better: bool = False) -> Judged:
    """Return a run for a comparison by one figure, given its dependence on the step time."""
    sign = -1.0 if higher_is_better else 1.0
    return Judged(at=lambda fraction: sign * figures_at({name: value}, fraction)[name], bar=bar)


def is_shorter(one: Metrics, other: Metrics) -> Decision | None:
    """Return whether the step of one run is shorter than that of another, as far as the error bars tell; None without any."""
    judged = [None if each.error_bar is None else judged_by("step_time_s", each.step_time_s, each.error_bar) for each in (one, other)]
    return None if judged[0] is None or judged[1] is None else is_better(judged[0], judged[1])


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
