"""Break-even of two cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from clustersim.apps.study import point as module
from clustersim.apps.study.axis import KeyRange, parse_span
from clustersim.apps.study.point import PointOutcome
from clustersim.apps.study.what_if_cases import CLOSE, BreakEven, break_even, check_span
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import ErrorBar
from tests.unit.apps.study.factories import make_what_if

LEFT = "left:strategy.zero_stage=1"
RIGHT = "right:strategy.zero_stage=2"


def found(
    monkeypatch: pytest.MonkeyPatch,
    span: KeyRange,
    step_s: Callable[[str, float], float | None],
    *,
    with_base: bool = False,
    bar: ErrorBar | None = None,
) -> BreakEven:
    """Return the break-even of two cases whose step takes as long as a formula says; None: it cannot run."""

    def evaluate(_: object, values: Mapping[str, Data]) -> PointOutcome:
        name = {None: "base", 1: "left", 2: "right"}[values.get("strategy.zero_stage")]
        if name == "base" and not with_base:
            return PointOutcome(status="infeasible", reason="not asked")
        number = float(str(values[span.key]).split()[0])
        seconds = step_s(name, number)
        if seconds is None:
            return PointOutcome(status="infeasible", reason="cannot run")
        return PointOutcome(status="ok", scenario_hash=name, figures={"step_time_s": seconds}, bar=bar)

    monkeypatch.setattr(module, "evaluate", evaluate)
    return break_even(make_what_if(LEFT, RIGHT, metric="step_time_s"), span)


OVERSUBSCRIPTION = KeyRange(key="cluster.fabric.oversubscription", low=1.0, high=16.0)
BATCH = KeyRange(key="training.global_batch_size", low=1.0, high=1000.0)


@pytest.mark.parametrize("at", [1.7, 4.0, 15.5])
def test_it_is_where_the_curves_meet(monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    even = found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: 2.0 * x if name == "left" else x + at)

    (crossing,) = even.crossings
    assert crossing.below <= at * (1 + 1e-5)
    assert at * (1 - 1e-5) <= crossing.above
    assert crossing.above - crossing.below <= CLOSE * crossing.above
    assert (even.best_at_low, crossing.best_below, crossing.best_above) == ("left", "left", "right")


def test_it_says_between_which_values_the_error_bars_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = ErrorBar(least_fraction=0.9, most_fraction=1.1, ratio_most_fraction=1.2, machine="a")

    even = found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: x if name == "left" else 4.1, bar=bar)

    assert even.undecided is not None
    assert even.crossings[0].undecided == even.undecided
    least, most = even.undecided
    assert 4.1 / 1.2 <= least < 4.1 < most <= 4.1 * 1.2


def test_a_key_of_whole_numbers_is_narrowed_to_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    (crossing,) = found(monkeypatch, BATCH, lambda name, x: 2.0 * x if name == "left" else x + 300.5).crossings

    assert (crossing.below, crossing.above) == (300.0, 301.0)


def test_units_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    span = parse_span("cluster.nics.bandwidth=10..90 GB/s", "--break-even")

    (crossing,) = found(monkeypatch, span, lambda name, x: x if name == "left" else 50.0).crossings

    assert crossing.below == pytest.approx(50.0, rel=2e-3)
    assert span.value(crossing.below) == f"{crossing.below:.6g} GB/s"


def test_there_may_be_none_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: 1.0 if name == "left" else 2.0).crossings == ()

    even = found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: (x - 8.0) ** 2 if name == "left" else 9.0)
    assert [(round(each.below, 1), each.best_above) for each in even.crossings] == [(5.0, "left"), (11.0, "right")]


def test_a_third_case_may_be_the_best_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"left": lambda x: x, "base": lambda x: 2.05 + 0.5 * (x - 2.05), "right": lambda x: 2.15}

    even = found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: lines[name](x), with_base=True)

    assert [(each.best_below, each.best_above) for each in even.crossings] == [("left", "base"), ("base", "right")]
    assert [each.below for each in even.crossings] == pytest.approx([2.05, 2.25], rel=2e-3)


def test_a_case_that_cannot_run_any_more_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    (crossing,) = found(monkeypatch, OVERSUBSCRIPTION, lambda name, x: 5.0 if name == "right" else 1.0 if x < 6.0 else None).crossings

    assert (crossing.best_below, crossing.best_above) == ("left", "right")
    assert crossing.below == pytest.approx(6.0, rel=2e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster.fabric.oversubscription=1", "is not key=low..high"),
        ("cluster.fabric.oversubscription=1..4 step 2", "is not key=low..high"),
        ("cluster.fabric.oversubscription=2..2", "both ends are the same"),
        ("cluster.fabric.oversubscription=4..2", "the range '4..2' ends before it begins"),
        ("x=1..2", None),
        ("cluster.nics.bandwidth=1..2", None),
    ],
)
def test_a_span_that_cannot_be_is_refused(text: str, message: str | None) -> None:
    question = make_what_if(LEFT)

    with pytest.raises(ScenarioError) as caught:
        check_span(question, parse_span(text, "--break-even"), "--break-even")

    assert caught.value.place is not None
    assert caught.value.place.file.startswith("--break-even")
    assert message is None or caught.value.message == message
