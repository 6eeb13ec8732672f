from __future__ import annotations

import pytest

from clustersim.config.stragglers import StragglerSpec, slowdowns_of
from clustersim.documents.check import validate_document
from clustersim.documents.text import Data, plain_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked


class Setting(Checked):
    stragglers: list[StragglerSpec]


def read(*entries: Data) -> list[StragglerSpec]:
    return validate_document(Setting, plain_document({"stragglers": list(entries)}, "test.yaml")).stragglers


def refusal(*entries: Data, sizes: tuple[int, ...] = (4, 4)) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        slowdowns_of(read(*entries), sizes)
    return caught.value


@pytest.mark.parametrize(
    ("ranks", "expected"), [(3, [3]), ([0, "4-6"], [0, 4, 5, 6]), ("1,5-6", [1, 5, 6]), ([7], [7])], ids=["one", "list", "text", "lone"]
)
def test_ranks_are_a_number_or_a_list_with_ranges(ranks: Data, expected: list[int]) -> None:
    assert slowdowns_of(read({"ranks": ranks, "slowdown": 1.3}), (4, 4)) == dict.fromkeys(expected, 1.3)


def test_a_node_stands_for_all_its_ranks_however_many_it_has() -> None:
    found = slowdowns_of(read({"nodes": [1, 3], "slowdown": 2}), (2, 4, 2, 1))

    assert found == dict.fromkeys((2, 3, 4, 5, 8), 2.0)


def test_entries_for_different_ranks_stand_beside_each_other_in_order_of_the_ranks() -> None:
    found = slowdowns_of(read({"ranks": 5, "slowdown": 1.5}, {"ranks": "0-1", "slowdown": 1.1}), (4, 4))

    assert list(found.items()) == [(0, 1.1), (1, 1.1), (5, 1.5)]


def test_a_rank_may_be_faster_than_it_should_be() -> None:
    assert slowdowns_of(read({"ranks": 0, "slowdown": 0.8}), (1,)) == {0: 0.8}


def test_a_slowdown_of_one_is_none() -> None:
    assert slowdowns_of(read({"ranks": 0, "slowdown": 1}), (1,)) == {}


def test_a_repeated_rank_is_refused() -> None:
    error = refusal({"ranks": "0-3", "slowdown": 1.3}, {"nodes": 1, "slowdown": 1.1}, {"ranks": [6, 7], "slowdown": 2})

    assert error.message == "rank 6 is slowed down by cluster.stragglers.1 and by cluster.stragglers.2"
    assert error.field == "cluster.stragglers.2.ranks"
    assert error.hint == "name each rank once, with all that slows it down in one number"


@pytest.mark.parametrize(("key", "last"), [("rank", 7), ("node", 1)])
def test_somebody_who_is_not_there_is_refused(key: str, last: int) -> None:
    error = refusal({"ranks": 0, "slowdown": 1.3}, {f"{key}s": last + 1, "slowdown": 1.3})

    assert error.message == f"there is no {key} {last + 1}"
    assert error.field == f"cluster.stragglers.1.{key}s"
    assert error.hint == f"{key}s are 0 to {last}"


@pytest.mark.parametrize(
    ("entry", "field", "message", "hint"),
    [
        ({"ranks": 3, "slowdown": 0}, "stragglers.0.slowdown", "0 is out of range", "at least 1e-06"),
        ({"ranks": 3, "slowdown": -1.5}, "stragglers.0.slowdown", "-1.5 is out of range", "at least 1e-06"),
        ({"ranks": 3, "slowdown": "30 %"}, "stragglers.0.slowdown", "'30 %' is not a number", None),
        ({"ranks": 3}, "stragglers.0.slowdown", "'slowdown' is missing", "add"),
        ({"ranks": 3, "slowdwn": 1.3}, "stragglers.0.slowdwn", "unknown field 'slowdwn'", "did you mean 'slowdown'"),
        ({"slowdown": 1.3}, "stragglers.0", "nobody is named", "write ranks"),
        ({"ranks": 3, "nodes": 0, "slowdown": 1.3}, "stragglers.0", "ranks and nodes both say who is meant", "write ranks"),
        ({"ranks": True, "slowdown": 1.3}, "stragglers.0.ranks", "not a list of numbers", "write such as"),
        ({"ranks": -1, "slowdown": 1.3}, "stragglers.0.ranks", "not a number or a range", "write such as"),
        ({"ranks": [1, "1-2"], "slowdown": 1.3}, "stragglers.0.ranks", "1 stands there twice", "name each number once"),
    ],
)
def test_a_mistake_is_named_at_its_place(entry: Data, field: str, message: str, hint: str | None) -> None:
    error = refusal(entry)

    assert error.field == field
    assert message in error.message
    assert (hint is None and error.hint is None) or (hint is not None and hint in str(error.hint))


def test_an_editor_is_told_of_numbers_text_and_lists() -> None:
    shapes = StragglerSpec.model_json_schema()["properties"]["ranks"]["anyOf"]

    assert [shape.get("type") for shape in shapes] == ["integer", "string", "array", "null"]


def test_what_was_read_can_be_written_and_read_again() -> None:
    first = read({"ranks": "0-2", "slowdown": 1.3}, {"nodes": 1, "slowdown": 2})

    assert read(*(entry.model_dump(mode="json", exclude_none=True) for entry in first)) == first
