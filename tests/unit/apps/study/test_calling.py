"""Values of Python as axes of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clustersim.apps.study.axis import Axis
from clustersim.apps.study.calling import axes_of, cases_of, sweep
from clustersim.apps.study.design import MOST_POINTS
from clustersim.apps.study.point import Point
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError


def axis(values: object) -> Axis:
    (found,) = axes_of({"strategy.tp": values})
    assert isinstance(found, Axis)
    return found


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([2, 4, 8], [2, 4, 8]),
        ((2, 4), [2, 4]),
        (2, [2]),
        (0.5, [0.5]),
        (True, [True]),
        ("1f1b", ["1f1b"]),
        ("1..8 times 2", [1, 2, 4, 8]),
        ("100..300 Gbit/s step 100", ["100 Gbit/s", "200 Gbit/s", "300 Gbit/s"]),
        (["100 Gbit/s", "1..2"], ["100 Gbit/s", 1, 2]),
        (range(1, 4), [1, 2, 3]),
        (range(8, 0, -4), [8, 4]),
        ([range(2), 3], [[0, 1], 3]),
        (np.array([1, 2]), [1, 2]),
        (np.linspace(0.5, 1.0, 2), [0.5, 1.0]),
        ([np.int64(2), np.float64(0.5)], [2, 0.5]),
        (pd.Series([1, 2]), [1, 2]),
        ({"a": 1}.values(), [1]),
        ([{"tp": 2}, {"tp": np.int32(4)}], [{"tp": 2}, {"tp": 4}]),
        ([Path("mine.yaml")], ["mine.yaml"]),
    ],
    ids=str,
)
def test_what_a_user_of_python_types_is_read(values: object, read: list[Data]) -> None:
    found = axis(values).values()

    assert found == read
    assert [type(each) for each in found] == [type(each) for each in read]


def test_cases_are_built_of_values_whatever_their_names() -> None:
    odd = {"tp: 8, a=b": {"strategy.tp": np.int64(8)}, "as it is": {}, "dear": {"cost.gpu_hour": Decimal("2.5"), "cost.x": Decimal(2)}}
    *_, placed = found = cases_of({**odd, "placed": {"strategy.placement": ("tp", "dp"), "model": Path("mine.yaml")}})

    assert [case.name for case in found if isinstance(case, Point)] == [*odd, "placed"]
    assert [case.values for case in found[:-1] if isinstance(case, Point)] == [
        {"strategy.tp": 8},
        {},
        {"cost.gpu_hour": 2.5, "cost.x": 2},
    ]
    assert isinstance(placed, Point)
    assert placed.values == {"strategy.placement": ["tp", "dp"], "model": str(Path("mine.yaml").absolute())}


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ({"base": {"strategy.tp": 8}}, "case base: 'base' is the scenario itself"),
        ({"a b": {"strategy.tp": {1}}}, "case a b: strategy.tp: a set is not understood"),
    ],
)
def test_what_is_no_case_is_refused(cases: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        cases_of(cases)

    assert str(caught.value).startswith(message)


def test_a_generator_is_read_and_one_that_never_ends_is_read_as_far_as_can_be_run() -> None:
    assert axis(2**n for n in range(3)).values() == [1, 2, 4]
    assert axis(count()).count == MOST_POINTS + 1


def test_a_long_range_is_not_written_out() -> None:
    with pytest.raises(ScenarioError, match="1,000,000,000 points are more than 100,000"):
        sweep("starter", {"strategy.tp": range(10**9)})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "over: strategy.tp: there is no value"),
        (range(0), "over: strategy.tp: there is no value"),
        ({1, 2}, "over: strategy.tp: a set is not understood"),
        (b"2", "over: strategy.tp: a bytes is not understood"),
        ([1j], "over: strategy.tp.0: a complex is not understood"),
        ([float("nan")], "over: strategy.tp.0: nan is not a finite number"),
    ],
    ids=str,
)
def test_what_no_scenario_can_have_is_refused(values: object, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        axis(values)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "asked",
    [
        lambda: sweep("starter", {"strategy.tp": [2, 4]}, set="training.micro_batch_size=2", where="mfu > 0"),
        lambda: sweep("starter", "strategy.tp=2,4", set=["training.micro_batch_size=2"], where=["mfu > 0"]),
    ],
)
def test_values_and_texts_ask_for_the_same(asked: Callable[[], Any]) -> None:
    result = asked()

    assert [row.point.values for row in result.rows] == [{"strategy.tp": 2}, {"strategy.tp": 4}]
    assert len(result.answers) == 2


def test_a_printed_sweep_is_a_page_as_wide_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    result = sweep("llama3-8b-8xh100", {"strategy.tp": [2, 3, 4]})

    assert repr(result).startswith("<SweepResult: First of 3 points: strategy.tp=2 (")
    lines = str(result).splitlines()
    assert "2 ok, 1 infeasible" in lines
    assert any(line.startswith("point  strategy.tp  step_time_s  tokens_per_s") for line in lines)
    assert "1 point infeasible: strategy.tp: 3 does not divide 32 attention heads" in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 70
