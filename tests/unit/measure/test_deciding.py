"""Comparison of two runs within the error bars."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from clustersim.measure.deciding import Judged, bar_of, figures_at, is_better, judged_by, undecided, undecided_text
from clustersim.measure.error_bars import ErrorBar

BAR = ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine="a")
ELSEWHERE = replace(BAR, machine="b")


def timed(time_s: float, bar: ErrorBar = BAR) -> Judged | None:
    return judged_by("step_time_s", time_s, bar)


@pytest.mark.parametrize(
    ("one_s", "other_s", "bar", "expected"),
    [
        (1.0, 1.11, BAR, "yes"),
        (1.0, 1.09, BAR, "not decided"),
        (1.09, 1.0, BAR, "not decided"),
        (1.11, 1.0, BAR, "no"),
        (1.0, 1.11, ELSEWHERE, "not decided"),
        (1.0, 1.32, ELSEWHERE, "not decided"),
        (1.0, 1.34, ELSEWHERE, "yes"),
        (1.34, 1.0, ELSEWHERE, "no"),
    ],
)
def test_runs_on_one_machine_are_told_apart_by_their_ratio_and_others_by_their_intervals(
    one_s: float, other_s: float, bar: ErrorBar, expected: str
) -> None:
    assert is_better(timed(one_s), timed(other_s, bar)) == expected


def test_the_wider_of_two_ratios_counts() -> None:
    assert is_better(timed(1.0), timed(1.15, replace(BAR, ratio_most_fraction=1.2))) == "not decided"


def test_a_rate_is_as_uncertain_as_the_time_behind_it() -> None:
    one, other = (judged_by("tokens_per_s", rate, BAR) for rate in (1000.0, 1.0 / 1.05e-3))

    assert is_better(one, other) == "not decided"
    assert is_better(one, judged_by("tokens_per_s", 900.0, BAR)) == "yes"


@pytest.mark.parametrize("bar", [BAR, ELSEWHERE])
def test_a_figure_that_does_not_depend_on_time_has_no_error_bar(bar: ErrorBar) -> None:
    least, equal, most = (judged_by("memory.peak_bytes", size, each) for size, each in ((1.0, BAR), (1.0, bar), (1.001, bar)))

    assert is_better(least, most) == "yes"
    assert is_better(most, least) == "no"
    assert is_better(least, equal) == "no"


def test_costs_of_a_step_go_with_its_time_and_prices_do_not() -> None:
    figures = {
        "cost.per_million_tokens.usd": 2.0,
        "cost.prices.usd_per_gpu_hour": 2.0,
        "cost.training.tokens": 5.0,
        "breakdown_s.bubble": 1.0,
    }

    assert list(figures_at(figures, 1.5).values()) == [3.0, 2.0, 5.0, 1.5]


def test_all_that_the_best_cannot_be_told_apart_from_are_named() -> None:
    runs = [timed(1.0), timed(1.05), timed(1.2), timed(1.2, ELSEWHERE)]

    assert undecided(runs) == [1, 3]
    assert undecided([]) == []
    assert undecided_text([f"case {place}" for place in range(7)]).endswith("case 4 and 2 more")


def test_an_error_bar_is_read_back_from_its_plain_form_and_one_of_an_earlier_version_is_none() -> None:
    assert bar_of(asdict(BAR)) == BAR
    assert bar_of(None) is None
    assert bar_of({"least_fraction": 0.9}) is None
