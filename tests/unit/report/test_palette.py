"""Colours that can be read and told apart, also in grey."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from clustersim.report import palette
from clustersim.trace.timeline import DIMENSIONS, KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "palette.md").read_text(encoding="utf-8")
ALL = {**palette.KIND_COLOURS, **palette.DIMENSION_COLOURS, **palette.MEMORY_COLOURS, "stall": palette.STALL}


def test_the_promised_colours_are_used() -> None:
    assert dict(palette.KIND_COLOURS) == {
        "forward": "#0072B2",
        "backward": "#009E73",
        "input": "#8DC63F",
        "weight": "#F0E442",
        "recompute": "#56B4E9",
        "optimizer": "#CC79A7",
        "host": "#767676",
        "load": "#767676",
        "exposed": "#D55E00",
        "hidden": "#E69F00",
        "idle": "#E5E5E5",
    }


def test_every_kind_and_dimension_of_a_timeline_has_a_colour() -> None:
    assert set(KINDS) - {"communication"} <= set(palette.KIND_COLOURS)
    assert set(DIMENSIONS) == set(palette.DIMENSION_COLOURS)


@pytest.mark.parametrize(("black", "white"), [("#000000", "#FFFFFF")])
def test_contrast_runs_from_1_to_21(black: str, white: str) -> None:
    assert palette.contrast(black, white) == pytest.approx(21.0, rel=1e-12)
    assert palette.contrast(white, black) == pytest.approx(21.0, rel=1e-12)
    assert palette.contrast(white, white) == 1.0


def test_lightness_runs_from_0_to_100() -> None:
    assert palette.lightness("#000000") == 0.0
    assert palette.lightness("#FFFFFF") == pytest.approx(100.0, abs=1e-9)
    # CIE L* of the middle grey of sRGB, from its definition.
    assert palette.lightness("#777777") == pytest.approx(50.03, abs=0.01)


@pytest.mark.parametrize("name", sorted(ALL))
def test_letters_can_be_read_on_every_colour(name: str) -> None:
    # 4.5 is what the web content guidelines ask of normal text (level AA).
    assert palette.contrast(palette.text_colour(ALL[name]), ALL[name]) >= 4.5


@pytest.mark.parametrize(("one", "other"), list(combinations(palette.KIND_COLOURS, 2)))
def test_kinds_differ_in_letter_or_in_grey(one: str, other: str) -> None:
    letters = {palette.KIND_LETTERS.get(one), palette.KIND_LETTERS.get(other)}

    # A letter on one of two cells tells them apart; two without letters need a step of grey that the eye sees side by side.
    if letters == {None}:
        assert abs(palette.lightness(palette.KIND_COLOURS[one]) - palette.lightness(palette.KIND_COLOURS[other])) >= 12
    else:
        assert len(letters) == 2


def test_neighbours_in_a_memory_bar_differ_in_colour() -> None:
    colours = list(palette.MEMORY_COLOURS.values())

    assert len(set(colours)) == len(colours)


def test_the_page_names_every_colour_and_no_other() -> None:
    assert set(re.findall(r"#[0-9A-F]{6}", PAGE)) == set(ALL.values())


@pytest.mark.parametrize(("kind", "letter"), palette.KIND_LETTERS.items())
def test_the_page_names_every_letter(kind: str, letter: str) -> None:
    assert f"| `{palette.KIND_COLOURS[kind]}` | {letter} |" in PAGE
