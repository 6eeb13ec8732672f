from __future__ import annotations

import pytest

from clustersim.documents.csv_text import csv_cell, csv_text


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "-5 +1"])
def test_text_that_begins_a_formula_gets_an_apostrophe(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+3.5 %", "-1e-3", "a=b", "", "x -1"])
def test_a_number_as_text_and_other_text_stay_as_they_are(text: str) -> None:
    assert csv_cell(text) == text


def test_numbers_have_all_their_digits_and_nothing_is_nothing() -> None:
    assert csv_text([[-0.1, 3, True, None, "a,b"]]) == '-0.1,3,true,,"a,b"\n'
