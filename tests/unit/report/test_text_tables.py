"""A result as tables of a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from clustersim.notices import Flag
from clustersim.report.folded import folded
from clustersim.report.summary import html_summary
from clustersim.report.text_tables import TextTable
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def cells(html: str) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in ET.fromstring(f"<div>{html}</div>").iter("tr")]


def test_the_headline_and_the_parts_of_the_step_are_tables() -> None:
    rows = cells(html_summary(METRICS, TIMELINE))

    assert ["step time", "352 ms"] in rows
    shares = [float(row[1].removesuffix(" %")) for row in rows if len(row) == 3 and row[1].endswith(" %")]
    assert round(sum(shares), 9) == 100.0


def test_what_users_write_is_never_markup() -> None:
    html = html_summary(replace(METRICS, scenario="<b>&", flags=(Flag(code="a", message="<i>"),)), TIMELINE)

    assert "<b>" not in html
    assert "<h4>Assumed, extrapolated or not calibrated</h4><ul><li>a: &lt;i&gt;</li></ul>" in html


def test_a_notebook_shows_sentences_below_their_table_and_verdicts_as_the_summary_does() -> None:
    html = html_summary(METRICS, TIMELINE, [("Checks", ("mfu > 1 is false (20.0 %)",))])

    places = [
        html.index(text) for text in ("step time", "<h4>Memory of one GPU</h4>", "The layout fits", "<h4>Checks</h4>", "mfu &gt; 1 is")
    ]
    assert places == sorted(places)


def test_markdown_is_even_as_plain_text_and_escapes_what_would_be_read_alone() -> None:
    table = TextTable("", ("a", ">size"), (("8->7 < 9 & mfu >= 1", "1"), ("<b>&lt;", "22")))

    assert table.markdown().splitlines() == [
        "| a                   | size |",
        "| ------------------- | ---: |",
        "| 8->7 < 9 & mfu >= 1 |    1 |",
        r"| \<b>\&lt;           |   22 |",
    ]


@pytest.mark.parametrize("width", [0, 1, 2])
def test_a_sentence_is_folded_to_a_word_a_line_where_no_word_has_room(width: int) -> None:
    assert folded("  a step of 5 ms", width) == "  a\n    step\n    of\n    5 ms"
