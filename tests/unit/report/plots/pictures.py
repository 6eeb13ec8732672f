"""Requirements of every picture: all of it is inside the figure, and no label covers another."""

from __future__ import annotations

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOUCHING_PX = 1.5
"""Boxes of letters have some air around them, and may share that much of it."""


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes stand on."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def boxes_of_texts(ax: Axes) -> list[tuple[str, Bbox]]:
    """Return the letters of a picture that can be seen, with the pixels that they take; those that are turned apart."""
    figure = figure_of(ax)
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    texts = [*figure.texts, *(text for axes in _all_axes(figure) for text in _texts_of(axes))]
    seen = [text for text in texts if text.get_text().strip() and text.get_visible() and not text.get_rotation() % 90]
    return [(text.get_text(), Text.get_window_extent(text, canvas.get_renderer())) for text in seen]


def overlapping(ax: Axes) -> list[tuple[str, str]]:
    """Return pairs of texts that lie on each other."""
    return [(one, other) for (one, first), (other, second) in combinations(boxes_of_texts(ax), 2) if _meet(first, second)]


def outside(ax: Axes) -> list[str]:
    """Return texts that reach beyond the figure."""
    figure = figure_of(ax)
    width, height = figure.get_size_inches() * figure.dpi
    return [
        text for text, box in boxes_of_texts(ax) if box.x0 < -1 or box.y0 < -1 or box.x1 > float(width) + 1 or box.y1 > float(height) + 1
    ]


def is_empty(ax: Axes) -> bool:
    """Return whether nothing but labels was drawn."""
    return not any(each.collections or each.lines or each.patches for each in figure_of(ax).axes)


def _all_axes(figure: Figure) -> list[Axes]:
    """Return all axes, those inside others too."""
    return [*figure.axes, *(inner for ax in figure.axes for inner in ax.child_axes if isinstance(inner, Axes))]


def _texts_of(ax: Axes) -> list[Text]:
    """Return what is written in axes: labels, titles, ticks within their ends, and the legend."""
    legend = ax.get_legend()
    titles = [
        each for each in ax.findobj(Text) if isinstance(each, Text) and each.get_text() and each.get_text() == ax.get_title(loc="left")
    ]
    found = [*ax.texts, *titles[:1], *(legend.get_texts() if legend else [])]
    if not ax.axison:
        return found
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(float(end) for end in axis.get_view_interval())
        found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_visible()]
        found.append(axis.label)
    return found


def _meet(one: Bbox, other: Bbox) -> bool:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return wide > _TOUCHING_PX and high > _TOUCHING_PX
