"""Charts of a few figures: lines with their labels, bars with their values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from clustersim.report.pictures import Chart, ChartPanel, Series
from clustersim.report.plots.canvas import WIDTH_PX, style
from clustersim.report.plots.charts import COLOURS, draw_chart

SERIES = (
    Series(label="one", colour=0, values=(1.0, 2.0, 4.0), texts=("1 s", "2 s", "4 s, does not fit"), doubtful=(False, False, True)),
    Series(label="two", colour=1, values=(None, 1.5, 1.6), texts=("cannot run", "1.5 s", "1.6 s"), doubtful=(True, False, False)),
)
LINES = Chart(
    name="sample",
    finding="one takes longer than two",
    subtitle="three sizes",
    axis="sizes",
    points=("2", "4", "8"),
    places=(2.0, 4.0, 8.0),
    panels=(ChartPanel(label="time", unit="s", series=SERIES), ChartPanel(label="share", unit="%", series=SERIES[1:])),
)
BARS = replace(LINES, points=("small", "middle", "large"), places=None)


def drawn(chart: Chart) -> Figure:
    with style():
        figure = draw_chart(chart)
        figure.canvas.draw()
    return figure


def points(line: Line2D) -> tuple[list[float], list[float]]:
    at, values = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
    return at.tolist(), values.tolist()


def words(figure: Figure | Axes) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_lines_have_points_where_the_numbers_are() -> None:
    ax = drawn(LINES).axes[0]

    assert [at for at, _ in (points(line) for line in ax.lines) if len(at) > 1] == [[2.0, 4.0, 8.0], [4.0, 8.0]]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "4", "8"]
    assert ax.get_ylim()[0] == 0


def test_a_mark_is_hollow_where_a_plan_does_not_fit() -> None:
    ax = drawn(LINES).axes[0]

    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [points(line) for line in hollow] == [([8.0], [4.0])]


def test_a_case_has_one_colour_in_all_panels() -> None:
    first, second = drawn(LINES).axes

    assert first.lines[-1].get_color() == second.lines[-1].get_color() == COLOURS[1]


@pytest.mark.parametrize("chart", [LINES, BARS], ids=["lines", "bars"])
def test_finding_subtitle_panels_and_cases_are_written(chart: Chart) -> None:
    figure = drawn(chart)

    assert {"one takes longer than two", "three sizes", "time", "share", "one", "two"} <= set(words(figure))


def test_axes_have_units() -> None:
    panels = (*LINES.panels, replace(LINES.panels[0], unit="GiB"))

    for ax, panel in zip(drawn(replace(LINES, panels=panels)).axes, panels, strict=True):
        assert any(text.endswith(f" {panel.unit}") for text in words(ax))


def test_bars_have_their_values_and_reasons_beside_them() -> None:
    ax = drawn(BARS).axes[0]

    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert sorted(bar.get_width() for bar in bars) == [1.0, 1.5, 1.6, 2.0, 4.0]
    assert {"4 s, does not fit", "cannot run"} <= set(words(ax))
    assert [bar.get_width() for bar in bars if bar.get_hatch()] == [4.0]


def test_bars_of_a_case_stand_on_the_same_line_in_all_panels() -> None:
    first, second = drawn(BARS).axes

    heights = {bar.get_width(): bar.get_y() for bar in first.patches if isinstance(bar, Rectangle)}
    assert all(heights[bar.get_width()] == bar.get_y() for bar in second.patches if isinstance(bar, Rectangle))


@pytest.mark.parametrize("chart", [LINES, BARS], ids=["lines", "bars"])
def test_no_words_overlap_or_leave_the_picture(chart: Chart) -> None:
    long = replace(chart, finding="a finding of many words " * 9)
    figure = drawn(long)

    boxes = [text.get_window_extent() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert all(box.x0 >= 0 and box.x1 <= WIDTH_PX for box in boxes)
    assert not [
        (one, other) for at, one in enumerate(boxes) for other in boxes[:at] if one.shrunk(0.9, 0.8).overlaps(other.shrunk(0.9, 0.8))
    ]
