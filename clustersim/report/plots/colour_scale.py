"""One scale of colours for utilisation and other shares: light is little, dark is much, also in grey and for every eye."""

# matplotlib's stubs leave keyword arguments without a type, which taints every method that draws.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from clustersim.report.palette import FORWARD
from clustersim.report.plots.canvas import DPI, size_px

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALE: Final = LinearSegmentedColormap.from_list("share", ["#F0F2F4", "#A9CCE3", FORWARD, "#00304D"])
"""One hue, and ever darker: the same order in grey and to every eye."""

_WIDTH_PX: Final = 220
_HEIGHT_PX: Final = 12


def share_colour(share: float) -> str:
    """Return the colour of a share between 0 and 1."""
    red, green, blue, _ = SCALE(min(max(share, 0.0), 1.0))
    return f"#{round(red * 255):02X}{round(green * 255):02X}{round(blue * 255):02X}"


def draw_scale(ax: Axes, highest: float, label: str, below_px: int) -> None:
    """Draw what the colours from nothing to a highest share mean, so many pixels below the axes."""
    width_px, height_px = size_px(ax)
    inset = ax.inset_axes((0, -(below_px + _HEIGHT_PX) / height_px, _WIDTH_PX / width_px, _HEIGHT_PX / height_px))
    inset.pcolormesh(np.linspace(0.0, 1.0, 65), [0.0, 1.0], np.linspace(0.0, 1.0, 64)[None, :], cmap=SCALE)
    inset.set_xticks([0.0, 0.5, 1.0], [f"{100 * highest * share:.3g} %" for share in (0.0, 0.5, 1.0)])
    inset.set_yticks([])
    inset.tick_params(labelsize=8.5, length=2, pad=2)
    inset.annotate(
        label, (1, 0.5), xytext=(20 * 72 / DPI, 0), xycoords="axes fraction", textcoords="offset points", va="center", fontsize=9
    )
