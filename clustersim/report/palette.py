"""One colour for one thing in every picture, safe for colour-blind readers; `docs/reference/palette.md` shows them.

The colours of the passes are from Okabe and Ito [1]_, but for that of input gradients, which lies between those of backward passes and
weight gradients; those of the communication dimensions are from Tol [2]_.

References
----------
.. [1] M. Okabe and K. Ito, *Color Universal Design*, 2008, https://jfly.uni-koeln.de/color/.
.. [2] P. Tol, *Colour schemes*, SRON/EPS/TN/09-002, issue 3.2, 2021, qualitative scheme "muted".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FORWARD: Final = "#0072B2"
BACKWARD: Final = "#009E73"
INPUT_GRADIENT: Final = "#8DC63F"
WEIGHT_GRADIENT: Final = "#F0E442"
RECOMPUTE: Final = "#56B4E9"
OPTIMIZER: Final = "#CC79A7"
EXPOSED: Final = "#D55E00"
HIDDEN: Final = "#E69F00"
IDLE: Final = "#E5E5E5"
HOST: Final = "#767676"
STALL: Final = "#A6A6A6"

IDLE_HATCH: Final = "////"
IDLE_HATCH_COLOUR: Final = "#C4C4C4"
"""Idle time is hatched, to distinguish it from a white gap or a light cell."""

KIND_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "forward": FORWARD,
        "backward": BACKWARD,
        "input": INPUT_GRADIENT,
        "weight": WEIGHT_GRADIENT,
        "recompute": RECOMPUTE,
        "optimizer": OPTIMIZER,
        "host": HOST,
        "load": HOST,
        "exposed": EXPOSED,
        "hidden": HIDDEN,
        "idle": IDLE,
    }
)
"""Colour of a kind of span; ``exposed`` and ``hidden`` are the two faces of communication."""

KIND_LETTERS: Final[Mapping[str, str]] = MappingProxyType(
    {"forward": "F", "backward": "B", "input": "I", "weight": "W", "recompute": "R", "optimizer": "O", "host": "H", "load": "L"}
)
"""Letter in a cell of that kind, for readers without colour."""

DIMENSION_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"tp": "#882255", "cp": "#DDCC77", "ep": "#CC6677", "pp": "#332288", "dp": "#44AA99", "ps": "#999933", "offload": "#AA4499"}
)
"""Colour of communication by parallel dimension; always drawn with the dimension's name."""

MEMORY_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"parameters": FORWARD, "gradients": BACKWARD, "optimizer": OPTIMIZER, "activations": RECOMPUTE, "buffers": HOST}
)
"""Colour of what memory holds."""


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#RRGGBB``: 0 for black, 1 for white.

    References
    ----------
    .. [1] W3C, *Web Content Accessibility Guidelines 2.2*, definition of relative luminance.
    """
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours: 1 for equal ones, 21 for black on white.

    References
    ----------
    .. [1] W3C, *Web Content Accessibility Guidelines 2.2*, definition of contrast ratio.

    Examples
    --------
    >>> round(contrast("#000000", "#FFFFFF"), 6)
    21.0
    """
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def text_colour(background: str) -> str:
    """Return black or white, whichever reads better on ``background``.

    Examples
    --------
    >>> text_colour(FORWARD), text_colour(WEIGHT_GRADIENT)
    ('#FFFFFF', '#000000')
    """
    return max("#FFFFFF", "#000000", key=lambda candidate: contrast(candidate, background))
