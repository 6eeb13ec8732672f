"""Points of a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.apps.study.axis import parse_axis
from clustersim.apps.study.design import Design, axis_names, design_of, exclusion_of
from clustersim.documents.text import Data
from clustersim.errors import Place, ScenarioError

HERE = Place(file="study.yaml", line=3)


def make_design(*texts: str) -> Design:
    return design_of([[parse_axis(text)] for text in texts])


def values_of(design: Design) -> list[list[Data]]:
    return [list(point.values.values()) for point in design.points()]


def test_the_first_axis_varies_slowest() -> None:
    assert values_of(make_design("a=1,2", "b=x,y")) == [[1, "x"], [1, "y"], [2, "x"], [2, "y"]]
    assert [point.number for point in make_design("a=1..4").points(4)] == [1, 2, 3, 4]
    (one,), (other,) = make_design("a=1", "ab=x").points(), make_design("ab=x", "a=1").points()
    assert one.key == other.key


def test_axes_of_one_block_move_together() -> None:
    design = design_of([[parse_axis("a=1,2"), parse_axis("b=x,y")], [parse_axis("c=5,6")]])

    assert values_of(design) == [[1, "x", 5], [1, "x", 6], [2, "y", 5], [2, "y", 6]]
    assert design.count == 4
    with pytest.raises(ScenarioError, match="'a' has 2 values and 'b' has 3, and they move together"):
        design_of([[parse_axis("a=1,2"), parse_axis("b=1..3")]])


def test_a_condition_leaves_points_out() -> None:
    design = make_design("a=1,2,4", "b=1,2,4", "c=x")

    less = replace(design, exclusions=(exclusion_of("a * b > 4 or b == 4", design, HERE),))

    assert values_of(less) == [[1, 1, "x"], [1, 2, "x"], [2, 1, "x"], [2, 2, "x"], [4, 1, "x"]]
    assert [point.number for point in less.points()] == [1, 2, 3, 4, 5]


def test_a_mapping_leaves_out_points_with_all_of_its_values() -> None:
    design = make_design("a=1,2", "b=x,y,z")

    less = replace(design, exclusions=(exclusion_of({"a": 1, "b": ["x", "z"]}, design, HERE), exclusion_of({"b": "y"}, design, HERE)))

    assert values_of(less) == [[2, "x"], [2, "z"]]


def test_a_thousand_million_points_are_refused_before_one_is_made() -> None:
    design = make_design("a=1..1000", "b=1..1000", "c=1..1000")

    with pytest.raises(ScenarioError) as caught:
        design.points()

    assert caught.value.message == "1,000 x 1,000 x 1,000 = 1,000,000,000 points are more than 100,000"
    assert caught.value.hint == "vary less, or allow more with --max-points"


def test_a_sweep_of_nothing_is_refused() -> None:
    with pytest.raises(ScenarioError, match="nothing is varied"):
        design_of([])

    design = make_design("a=1,2")
    with pytest.raises(ScenarioError, match="every point is excluded"):
        replace(design, exclusions=(exclusion_of("a > 0", design, HERE),)).points()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a.b=1", "c=2", "a.b=3"), "'a.b' is varied twice"),
        (("cluster={node: x}", "cluster.nodes=1,2"), "'cluster.nodes' is a part of 'cluster'"),
    ],
)
def test_axes_that_overwrite_each_other_are_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        make_design(*texts)

    assert caught.value.message == message
    assert caught.value.place is not None


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ("a >", "something is missing at the end", None),
        ("aa > 1", "'aa' is not varied", None),
        ("s == 1", "'s' is not varied", "'s' is no number: write a mapping such as {s: value}"),
        ("a + 1", "'a + 1' compares nothing", None),
        ({"aa": 1}, "'aa' is not varied", None),
        (3, "is no condition and no mapping of values", None),
        ({}, "is no condition and no mapping of values", None),
    ],
)
def test_an_exclusion_that_makes_no_sense_is_refused(data: Data, message: str, hint: str | None) -> None:
    with pytest.raises(ScenarioError) as caught:
        exclusion_of(data, make_design("a=1,2", "s=x,y"), HERE)

    assert caught.value.message == message
    assert caught.value.place == HERE
    assert hint is None or caught.value.hint == hint


def test_conditions_may_name_axes_of_numbers_and_of_truths() -> None:
    design = make_design("a=1,2", "b=0.5..1 step 0.5", "c=x,1", "d=true,false", "e=1..2 GB", "f=1,true")

    assert axis_names(design) == {"a": False, "b": False, "d": True}
