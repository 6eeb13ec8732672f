"""One look for all pictures, drawn without pyplot and without global state."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from clustersim.documents.files import replacing
from clustersim.report.folded import NO_BREAK, with_tied_units
from clustersim.report.palette import FORWARD, IDLE, IDLE_HATCH, IDLE_HATCH_COLOUR

FloatArray = NDArray[np.float64]

WIDTH_PX: Final = 1200
DPI: Final = 100
HASH_SALT: Final = "clustersim"
INK: Final = "#1A1A1A"
FAINT_INK: Final = "#5A5A5A"

_COLOURS: Final = 96
"""Colours of a small PNG: some for letters, whose edges are grey, and some for what they stand on."""
_TITLE_POINTS: Final = 14.0
_SUBTITLE_POINTS: Final = 10.0
_LETTERS: Final = (94, 160)
"""Letters of a line of the title and of the subtitle, where it is as wide as the picture."""
_KEY_PX: Final = 50
_KEY_LETTER_PX: Final = 7.6
_KEY_LINE_PX: Final = 22
"""Room of an entry of a legend beside its letters, of a letter, and of a line."""
_LINE: Final = 1.3
"""Height of a line over that of its letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Pixels around the axes."""

    left: int
    right: int
    top: int
    bottom: int


@contextmanager
def style() -> Generator[None]:
    """Draw inside with the project's style, independent of a user's matplotlibrc."""
    with mpl.rc_context(), warnings.catch_warnings():
        # A scenario may be named in a script that the font lacks; a box in its place is enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rc("font", family="DejaVu Sans", size=10.0)
        mpl.rc("axes", edgecolor=FAINT_INK, labelcolor=INK)
        mpl.rc("axes.spines", top=False, right=False)
        mpl.rc("xtick", color=FAINT_INK)
        mpl.rc("ytick", color=FAINT_INK)
        mpl.rc("text", color=INK, parse_math=False)
        mpl.rc("hatch", linewidth=0.6)
        yield


class PictureAxes(Axes):
    """Axes that a notebook shows as their picture, without pyplot."""

    def _repr_png_(self) -> bytes:
        figure = self.get_figure(root=True)
        assert figure is not None
        with style():
            return small_png(figure)


def new_figure(height_px: float) -> Figure:
    """Return a white figure, ``WIDTH_PX`` wide."""
    figure = Figure(figsize=(WIDTH_PX / DPI, height_px / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def new_axes(height_px: int, margins: Margins) -> Axes:
    """Return axes on their own figure, ``WIDTH_PX`` wide."""
    return new_figure(height_px).add_axes(
        (
            margins.left / WIDTH_PX,
            margins.bottom / height_px,
            1 - (margins.left + margins.right) / WIDTH_PX,
            1 - (margins.top + margins.bottom) / height_px,
        ),
        axes_class=PictureAxes,
    )


def save(ax: Axes, path: Path) -> None:
    """Write the figure of ``ax`` as PNG, or as SVG where the name ends so, without versions or times in it."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path | BinaryIO, *, svg: bool | None = None) -> None:
    """Write a figure as PNG or SVG, the same bytes each time.

    Parameters
    ----------
    svg
        Whether it is to be an SVG; as the name of the file says when omitted.
    """
    if isinstance(path, Path):
        as_svg = path.suffix.lower() == ".svg" if svg is None else svg
        with replacing(path) as fresh, fresh.open("wb") as stream:
            save_figure(figure, stream, svg=as_svg)
    elif svg:
        # Names in an SVG are hashes; with a salt of our own they are the same every time.
        with mpl.rc_context({"svg.hashsalt": HASH_SALT}):
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    else:
        figure.savefig(path, format="png", dpi=DPI, metadata={"Software": None})


def small_png(figure: Figure) -> bytes:
    """Return a figure as PNG of few colours, a third as large as one of all and the same to the eye."""
    from PIL import Image

    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3])
    file = io.BytesIO()
    pixels.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, format="png")
    return file.getvalue()


def title_of(ax: Axes) -> str:
    """Return the finding that stands above the axes."""
    return ax.get_title(loc="left").replace("\n", " ")


def caption(ax: Axes, title: str, subtitle: str, *, lift_points: float = 0.0) -> None:
    """Write the finding above the axes, and the description below it; ``lift_points`` leaves room for labels under both.

    What is too long for a line is folded, and a picture of its own grows by the further lines.
    """
    figure = ax.get_figure(root=True)
    room = 1.0 if figure is None else (1.0 - ax.get_position().x0) * figure.get_figwidth() * DPI / WIDTH_PX
    texts = (with_tied_units(text) for text in (title, subtitle))
    titles, subtitles = (_folded(text, max(round(n * room), 20)) for text, n in zip(texts, _LETTERS, strict=True))
    lower_points, upper_points = (
        _LINE * size * max(len(lines) - 1, 0) for lines, size in ((subtitles, _SUBTITLE_POINTS), (titles, _TITLE_POINTS))
    )
    pad = 30 + lift_points + lower_points
    ax.set_title("\n".join(titles), loc="left", fontsize=_TITLE_POINTS, fontweight="bold", pad=pad, linespacing=_LINE)
    ax.annotate(
        "\n".join(subtitles),
        (0, 1),
        xytext=(0, 9 + lift_points),
        xycoords="axes fraction",
        textcoords="offset points",
        va="bottom",
        color=FAINT_INK,
        fontsize=_SUBTITLE_POINTS,
        linespacing=_LINE,
    )
    if figure is not None and isinstance(ax, PictureAxes):
        _grow(figure, (lower_points + upper_points) / 72)


def _folded(text: str, most: int) -> list[str]:
    """Return a text in as few lines of at most some letters as hold it, the lines as even as words allow."""
    lines = textwrap.wrap(text, most, break_on_hyphens=False)
    narrower = (textwrap.wrap(text, width, break_on_hyphens=False) for width in range(most - 1, 0, -1))
    even = [lines, *takewhile(lambda folded: len(folded) == len(lines), narrower)][-1]
    return [line.replace(NO_BREAK, " ") for line in even]


def _grow(figure: Figure, inches: float, below_inches: float = 0.0) -> None:
    """Make a picture higher, at its top or below, and leave its axes as large as they are."""
    share = figure.get_figheight() / (figure.get_figheight() + inches)
    for each in figure.axes:
        box = each.get_position()
        each.set_position((box.x0, share * box.y0 + below_inches / (figure.get_figheight() + inches), box.width, share * box.height))
    figure.set_figheight(figure.get_figheight() + inches)


def write(
    ax: Axes,
    text: str,
    at: tuple[float, float],
    aside_points: tuple[float, float],
    *,
    of: str | tuple[str, str] = "data",
    **looks: object,
) -> None:
    """Write a text some points aside of a place, in data coordinates or in those named."""
    written = ax.annotate(text, at, xytext=aside_points, xycoords=of, textcoords="offset points", va="center", fontsize=9.5)
    written.set(**looks)


def paper(pad: float, colour: str = "white") -> dict[str, str | float]:
    """Return the box behind a text that keeps lines out of it."""
    return {"facecolor": colour, "edgecolor": "none", "pad": pad}


def beside(ax: Axes, y: float, text: str, *, away_points: float = 7.0, **looks: object) -> None:
    """Write a remark on a row at the right of the axes."""
    write(ax, text, (1, y), (away_points, 0), of=("axes fraction", "data"), **{"color": FAINT_INK, **looks})


def note(ax: Axes, text: str, below_px: int) -> None:
    """Write a remark on the finding, a number of pixels below the axes; nothing without one."""
    if text:
        write(ax, text, (0, 0), (0, -below_px * 72 / DPI), of="axes fraction", va="top", color=INK, fontsize=10)


def say_empty(ax: Axes, text: str) -> None:
    """Say in the middle of the axes that there is nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=12, color=FAINT_INK)


def name_rows(ax: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Write names beside rows at the left of the axes, which then have neither ticks nor an edge."""
    ax.set_yticks(places, names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def draw_grid(ax: Axes, axis: Literal["x", "y", "both"] = "y", width: float = 0.8) -> None:
    """Draw pale lines at the ticks, below everything else."""
    ax.grid(axis=axis, color=IDLE, linewidth=width)
    ax.set_axisbelow(True)


def legend_aside(ax: Axes) -> None:
    """Write the legend of labelled lines at the right of the axes."""
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def key(ax: Axes, entries: Sequence[tuple[str, str]], below_px: int) -> None:
    """Write the legend a number of pixels below the axes, in as few lines as hold it; the idle grey is hatched as in the picture."""
    figure = ax.get_figure(root=True)
    if figure is None:
        return
    handles = [
        Patch(
            facecolor=colour,
            label=label,
            hatch=IDLE_HATCH if colour == IDLE else None,
            edgecolor=IDLE_HATCH_COLOUR if colour == IDLE else colour,
        )
        for label, colour in entries
    ]
    room_px = figure.get_figwidth() * DPI - ax.get_window_extent().x0
    widths_px = [_KEY_PX + _KEY_LETTER_PX * len(label) for label, _ in entries]
    n_lines = 1
    while sum(widths_px) > n_lines * room_px and n_lines < len(entries):
        n_lines += 1
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -below_px / DPI, figure.dpi_scale_trans),
        ncols=-(-len(handles) // n_lines),
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.2,
        handleheight=1.0,
        columnspacing=1.3,
        fontsize=9.5,
    )
    if isinstance(ax, PictureAxes) and n_lines > 1:
        inches = (n_lines - 1) * _KEY_LINE_PX / DPI
        _grow(figure, inches, inches)


def add_boxes(ax: Axes, boxes: FloatArray, colour: str, *, edge_px: float = 0.0, hatched: bool = False) -> None:
    """Draw many boxes of one colour as one artist.

    Parameters
    ----------
    boxes : ndarray of shape (n, 4)
        Left, right, lower and upper edge of each, in data coordinates.
    edge_px
        Width of a white edge.
    """
    if len(boxes) == 0:
        return
    left, right, lower, upper = boxes.T
    corners = np.stack([np.stack([left, left, right, right], axis=1), np.stack([lower, upper, upper, lower], axis=1)], axis=2)
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=colour,
            edgecolors=IDLE_HATCH_COLOUR if hatched else "white",
            linewidths=0.0 if hatched else edge_px * 72 / DPI,
            hatch=IDLE_HATCH if hatched else None,
        ),
        autolim=False,
    )


def spaced(n: int, most: int, wanted: int) -> list[int]:
    """Return the places of some of ``n`` rows, from the first to the last, one that is wanted among them.

    Examples
    --------
    >>> spaced(16, 4, 6)
    [0, 6, 10, 15]
    """
    places = {round(place) for place in np.linspace(0, n - 1, min(n, most)).tolist()}
    return sorted(places if wanted in places else {*places, wanted} - {min(places, key=lambda place: abs(place - wanted))})


def size_px(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes in pixels."""
    box = ax.get_window_extent()
    return float(box.width), float(box.height)


SCALE: Final = LinearSegmentedColormap.from_list("share", ["#F0F2F4", "#A9CCE3", FORWARD, "#00304D"])
"""One hue, and ever darker: the same order in grey and to every eye."""

_WIDTH_PX: Final = 220
_HEIGHT_PX: Final = 12


def share_colour(share: float) -> str:
    """Return the colour of a share between 0 and 1."""
    red, green, blue, _ = SCALE(min(max(share, 0.0), 1.0))
    return f"#{round(red * 255):02X}{round(green * 255):02X}{round(blue * 255):02X}"


def round_share(share: float) -> float:
    """Return the round share at or above one, where a colour scale ends.

    Examples
    --------
    >>> round_share(0.18), round_share(0.91)
    (0.2, 1.0)
    """
    return next((each for each in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if share <= each), 1.0)


def draw_scale(ax: Axes, highest: float, label: str, below_px: int) -> None:
    """Draw the colour scale from zero to a highest share, a number of pixels below the axes."""
    width_px, height_px = size_px(ax)
    inset = ax.inset_axes((0, -(below_px + _HEIGHT_PX) / height_px, _WIDTH_PX / width_px, _HEIGHT_PX / height_px))
    inset.pcolormesh(np.linspace(0.0, 1.0, 65), [0.0, 1.0], np.linspace(0.0, 1.0, 64)[None, :], cmap=SCALE)
    inset.set_xticks([0.0, 0.5, 1.0], [f"{100 * highest * share:.3g} %" for share in (0.0, 0.5, 1.0)])
    inset.set_yticks([])
    inset.tick_params(labelsize=9.5, length=2, pad=2)
    write(inset, label, (1, 0.5), (20 * 72 / DPI, 0), of="axes fraction")


def set_times(ax: Axes, end_s: float, label: str, *, n_most: int = 10) -> None:
    """Label the axis with times from 0 to an end, in s or in ms."""
    unit, factor = time_unit(end_s)
    values = round_values(0.0, end_s * factor, n_most)
    ax.set_xticks([value / factor for value in values], [f"{value:g}" for value in values])
    ax.set_xlabel(f"{label}, {unit}", loc="right")


def time_unit(end_s: float) -> tuple[str, float]:
    """Return the unit of an axis of times, and how many of it a second has."""
    return ("s", 1.0) if end_s >= 1 else ("ms", 1e3)


def round_values(low: float, high: float, n_most: int) -> list[float]:
    """Return round values between two ends, about as many as asked for."""
    return [float(value) for value in round_locator(n_most).tick_values(low, high) if low <= value <= high]


def round_locator(n_most: int) -> MaxNLocator:
    """Return ticks at steps of 1, 2 or 5 times a power of ten."""
    return MaxNLocator(nbins=n_most, steps=[1, 2, 5, 10])
