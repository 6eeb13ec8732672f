"""Values of ``--over key=values``."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.apps.study.axis import axis_from_data, parse_axis
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

HERE = Place(file="study.yaml", line=3)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("strategy.tp=1,2,4", [1, 2, 4]),
        ("strategy.tp = 8", [8]),
        ("strategy.tp=1..4", [1, 2, 3, 4]),
        ("strategy.tp=1..64 times 2", [1, 2, 4, 8, 16, 32, 64]),
        ("strategy.tp=1..63 times 2", [1, 2, 4, 8, 16, 32]),
        ("strategy.tp=3..100 times 3", [3, 9, 27, 81]),
        ("cluster.nodes=8..64 step 24", [8, 32, 56]),
        ("cluster.nodes=1..3, 16, 32..64 times 2", [1, 2, 3, 16, 32, 64]),
        ("cluster.fabric.oversubscription=0.1..0.5 step 0.1", [0.1, 0.2, 0.3, 0.4, 0.5]),
        ("training.tokens=1e3..3e3 step 1e3", [1000, 2000, 3000]),
        ("strategy.data_parallel.bucket=25..100 MB times 2", ["25 MB", "50 MB", "100 MB"]),
        ("strategy.data_parallel.bucket=25 MB..100 MB step 25 MB", ["25 MB", "50 MB", "75 MB", "100 MB"]),
        ("cluster.nics.bandwidth=100 Gbit/s..400 Gbit/s times 2", ["100 Gbit/s", "200 Gbit/s", "400 Gbit/s"]),
        ("cluster.nics.bandwidth=100..200 Gbit/s step 100", ["100 Gbit/s", "200 Gbit/s"]),
        ("strategy.schedule=gpipe, 1f1b", ["gpipe", "1f1b"]),
        ("strategy.sequence_parallel=true,false", [True, False]),
        ("strategy.placement=[tp, dp], auto", [["tp", "dp"], "auto"]),
        ("strategy.data_parallel={mode: sync, overlap: true}", [{"mode": "sync", "overlap": True}]),
        ("model=\"a,b.yaml\",'c..d.yaml', ../e.yaml", ["a,b.yaml", "c..d.yaml", "../e.yaml"]),
        ("strategy.recompute=selective", ["selective"]),
    ],
)
def test_values_are_lists_ranges_and_doublings(text: str, values: list[Data]) -> None:
    axis = parse_axis(text)

    assert axis.values() == values
    assert axis.count == len(values)


def test_whole_numbers_stay_whole_and_others_do_not_drift() -> None:
    values = parse_axis("x=0..1 step 0.1").values()

    assert values[0] == 0
    assert isinstance(values[0], int)
    assert values[3] == 0.3
    assert values[10] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strategy.tp", "is not key=values"),
        ("=1,2", "is not key=values"),
        ("strategy.tp=", "is not key=values"),
        ("1tp=1,2", "is not key=values"),
        ("strategy.tp=1,,2", "a value is empty"),
        ("strategy.tp=1,", "a value is empty"),
        ("strategy.tp=8..1", "the range '8..1' ends before it begins"),
        ("strategy.tp=1..8 step 0", "'1..8 step 0' never ends"),
        ("strategy.tp=1..8 step -1", "'1..8 step -1' never ends"),
        ("strategy.tp=0..8 times 2", "'0..8 times 2' never ends"),
        ("strategy.tp=1..8 times 1", "'1..8 times 1' never ends"),
        ("strategy.tp=1..8 by 2", "'1..8 by 2' is not a range"),
        ("strategy.tp=1..", "'1..' is not a range"),
        ("b=1 MB..4 GB", "'1 MB..4 GB' has two units"),
        ("strategy.tp=[1", "is not YAML: "),
    ],
)
def test_what_is_no_list_of_values_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_axis(text)

    assert caught.value.message.startswith(message)
    assert caught.value.place == Place(file=f"--over {text}")


def test_a_value_that_stands_there_twice_is_refused() -> None:
    axis = parse_axis("strategy.tp=1..4, 2")

    with pytest.raises(ScenarioError, match="2 stands there twice"):
        axis.values()


def test_a_range_of_a_thousand_million_is_counted_and_not_written_out() -> None:
    assert parse_axis("training.global_batch_size=1..1000000000").count == 10**9
    assert parse_axis("training.tokens=1..1e300 times 1.0000001").count > 10**9


@given(first=st.integers(1, 50), by=st.integers(2, 5), more=st.integers(0, 10_000))
def test_a_product_range_ends_with_the_last_value_that_is_inside(first: int, by: int, more: int) -> None:
    values = parse_axis(f"x={first}..{first + more} times {by}").values()

    numbers = [value for value in values if isinstance(value, int)]
    assert len(numbers) == len(values)
    assert numbers[-1] <= first + more < numbers[-1] * by
    assert all(later == by * earlier for earlier, later in itertools.pairwise(numbers))


@given(first=st.integers(-50, 50), by=st.sampled_from(["1", "0.5", "0.25", "3"]), more=st.integers(0, 300))
def test_a_step_range_ends_with_the_last_value_that_is_inside(first: int, by: str, more: int) -> None:
    values = parse_axis(f"x={first}..{first + more} step {by}").values()

    last = values[-1]
    assert isinstance(last, int | float)
    assert last <= first + more < last + float(Decimal(by))
    assert len(values) == parse_axis(f"x={first}..{first + more} step {by}").count


def test_a_file_has_lists_texts_and_single_values() -> None:
    assert axis_from_data("strategy.tp", [1, "2..4", "auto"], HERE).values() == [1, 2, 3, 4, "auto"]
    assert axis_from_data("strategy.tp", "1..8 times 2, auto", HERE).values() == [1, 2, 4, 8, "auto"]
    assert axis_from_data("strategy.tp", 8, HERE).values() == [8]
    assert axis_from_data("strategy.placement", [["tp", "dp"]], HERE).values() == [["tp", "dp"]]
    assert axis_from_data("training.tokens", ["1T, 2T"], HERE).values() == ["1T, 2T"]


def test_a_mistake_in_a_file_has_its_place_there() -> None:
    mistakes: tuple[tuple[str, Data], ...] = (("strategy tp", [1]), ("strategy.tp", []), ("strategy.tp", "8..1"))
    for key, data in mistakes:
        with pytest.raises(ScenarioError) as caught:
            axis_from_data(key, data, HERE)
        assert caught.value.place == HERE
