"""Lists of numbers as people write them."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from clustersim.config.number_list import numbers_of


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("3", (3,)),
        ("1,3,5,7", (1, 3, 5, 7)),
        (" 1, 3 - 5 ", (1, 3, 4, 5)),
        (["8-15"], (8, 9, 10, 11, 12, 13, 14, 15)),
        ([0, 2, "4-6"], (0, 2, 4, 5, 6)),
        (["0,2", 4], (0, 2, 4)),
        ([7, 1], (7, 1)),
        ((2, 3), (2, 3)),
    ],
)
def test_numbers_and_ranges_come_in_the_order_in_which_they_stand(written: object, numbers: tuple[int, ...]) -> None:
    assert numbers_of(written) == numbers


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "'' is not a number or a range"),
        ("1,,2", "'' is not a number or a range"),
        ([], "the list is empty"),
        ("one", "'one' is not a number or a range"),
        ([-1], "'-1' is not a number or a range"),
        ([1.5], "'1.5' is not a number or a range"),
        ([True], "'True' is not a number or a range"),
        ([[1]], "that is not a number or a range"),
        ("7-3", "the range '7-3' ends before it begins"),
        ("0-99999999", "'0-99999999' names more than 1000000 numbers"),
        (["0-600000", "600001-1200000"], "'600001-1200000' names more than 1000000 numbers"),
        ([1, "0-2"], "1 stands there twice"),
        (5, "that is not a list of numbers"),
        (None, "that is not a list of numbers"),
        ({"a": 1}, "that is not a list of numbers"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(written: object, message: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        numbers_of(written)

    assert caught.value.message() == message
    assert (caught.value.context or {})["hint"]
