"""Colours that can be read and told apart, also in grey."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersim.report import palette
from clustersim.trace.timeline import DIMENSIONS, KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "palette.md").read_text(encoding="utf-8")
ALL = {**palette.KIND_COLOURS, **palette.DIMENSION_COLOURS, **palette.MEMORY_COLOURS, "stall": palette.STALL}


def lightness_of(colour: str) -> float:
    """Return CIE L*: how light a colour looks in a grey-scale print, from 0 to 100."""
    level = palette.luminance(colour)
    return 903.3 * level if level <= 0.008856 else 116.0 * level ** (1 / 3) - 16.0


def test_every_kind_and_dimension_of_a_timeline_has_a_colour() -> None:
    assert set(KINDS) - {"communication"} <= set(palette.KIND_COLOURS)
    assert set(DIMENSIONS) == set(palette.DIMENSION_COLOURS)


def test_contrast_runs_from_1_to_21_whichever_is_darker() -> None:
    assert [palette.contrast("#FFFFFF", other) for other in ("#000000", "#FFFFFF")] == pytest.approx([21.0, 1.0], rel=1e-12)


def test_letters_can_be_read_on_every_colour() -> None:
    for name in sorted(ALL):
        # 4.5 is what the web content guidelines ask of normal text (level AA).
        assert palette.contrast(palette.text_colour(ALL[name]), ALL[name]) >= 4.5, name


def test_kinds_differ_in_letter_or_in_grey() -> None:
    # A letter on one of two cells tells them apart; two without letters need a step of grey that the eye sees side by side.
    assert len(set(palette.KIND_LETTERS.values())) == len(palette.KIND_LETTERS)
    for one, other in combinations(LETTERLESS.values(), 2):
        assert abs(lightness_of(one) - lightness_of(other)) >= 12, (one, other)


EYES = {
    "usual": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}
"""Linear RGB seen with deficiency: G. M. Machado et al., "A Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE
TVCG 15(6), 2009, severity 1."""
TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
LETTERLESS = {name: colour for name, colour in palette.KIND_COLOURS.items() if name not in palette.KIND_LETTERS}


def seen(colour: str, eyes: str) -> NDArray[np.float64]:
    """Return CIE L*a*b* of a colour as some eyes see it."""
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(EYES[eyes] @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("colours", [palette.DIMENSION_COLOURS, palette.MEMORY_COLOURS, LETTERLESS], ids=["dimension", "memory", "kind"])
def test_colours_of_one_picture_differ_to_every_eye(colours: Mapping[str, str], eyes: str) -> None:
    nearest = min(float(np.linalg.norm(seen(one, eyes) - seen(other, eyes))) for one, other in combinations(colours.values(), 2))

    # 2.3 is just noticeable side by side (Mahy et al. 1994); four times that is told apart across a picture.
    assert nearest > 4 * 2.3


def test_a_scale_of_shares_grows_darker_to_every_eye() -> None:
    from clustersim.report.plots.canvas import share_colour

    for eyes in EYES:
        lightness = [float(seen(share_colour(share), eyes)[0]) for share in np.linspace(0, 1, 21)]
        assert all(before - after > 1.0 for before, after in pairwise(lightness))


def test_dimensions_that_look_alike_in_grey_are_never_without_their_name() -> None:
    grey = sorted((lightness_of(colour), name) for name, colour in palette.DIMENSION_COLOURS.items())

    # These two exclude each other for gradients; all the same, pictures write the dimension beside its colour.
    close = {frozenset((one[1], other[1])) for one, other in pairwise(grey) if other[0] - one[0] < 5}
    assert close == {frozenset({"ps", "dp"})}


def test_the_page_names_every_colour_and_no_other() -> None:
    assert set(re.findall(r"#[0-9A-F]{6}", PAGE)) == set(ALL.values())


@pytest.mark.parametrize(("kind", "letter"), palette.KIND_LETTERS.items())
def test_the_page_names_every_letter(kind: str, letter: str) -> None:
    assert f"| `{palette.KIND_COLOURS[kind]}` | {letter} |" in PAGE


def test_neighbours_in_a_memory_bar_differ_in_colour() -> None:
    colours = list(palette.MEMORY_COLOURS.values())

    assert len(set(colours)) == len(colours)
