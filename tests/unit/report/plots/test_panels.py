"""Panels side by side: what is drawn where, and the same bytes every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from clustersim.report.palette import IDLE
from clustersim.report.pictures import Panel, Picture, Points
from clustersim.report.plots.canvas import WIDTH_PX, style
from clustersim.report.plots.charts import draw
from clustersim.report.plots.write import write_picture_as
from tests.unit.report.plots.test_write import png_chunks

LOW = Points(label="low", points=((1.0, 1.0), (2.0, 2.0), (4.0, 3.0)), colour="#44AA99")
HIGH = Points(label="high", points=((1.0, 10.0), (2.0, 30.0)), colour="#999933")
PICTURE = Picture(
    finding="High is higher than low",
    subtitle="what is drawn",
    ticks=((1.0, "one"), (2.0, "two"), (4.0, "four"), (1000.0, "far away")),
    panels=(
        Panel(title="left", groups=(LOW, HIGH), ring=(2.0, 30.0), remark="much"),
        Panel(title="right", groups=(LOW,), ring=(2.0, 2.0), remark="all there is"),
    ),
    band_fraction=0.15,
)


def drawn(picture: Picture = PICTURE) -> Figure:
    with style():
        figure = draw(picture)
        figure.draw_without_rendering()
    return figure


def words(ax: Axes) -> dict[str, tuple[float, float]]:
    """Return the middle of each text in pixels."""
    # The box of an annotation has its arrow in it.
    boxes = {text.get_text(): Text.get_window_extent(text) for text in ax.texts if text.get_text()}
    return {text: ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) for text, box in boxes.items()}


def test_the_finding_stands_above_and_below_it_what_is_drawn() -> None:
    finding, subtitle = drawn().texts

    assert (finding.get_text(), finding.get_fontweight()) == ("High is higher than low", "bold")
    assert subtitle.get_text() == "what is drawn"


def test_a_long_finding_is_folded_and_stays_inside() -> None:
    *lines, subtitle = drawn(replace(PICTURE, finding="word " * 30)).texts

    assert len(lines) == 2
    assert all(line.get_window_extent().x1 <= WIDTH_PX for line in lines)
    assert subtitle.get_window_extent().y1 < lines[-1].get_window_extent().y0


def test_panels_have_titles_and_the_same_logarithmic_axes() -> None:
    left, right = drawn().axes

    assert "left" in words(left)
    assert "right" in words(right)
    assert left.get_xlim() == left.get_ylim() == right.get_xlim() == right.get_ylim()
    assert {ax.get_xscale() for ax in (left, right)} == {ax.get_yscale() for ax in (left, right)} == {"log"}
    assert left.get_xlim()[0] < 1.0
    assert left.get_ylim()[1] > 30.0


def test_only_the_first_panel_names_the_y_axis() -> None:
    left, right = drawn().axes

    assert (left.get_ylabel(), right.get_ylabel()) == ("predicted", "")
    assert (left.get_xlabel(), right.get_xlabel()) == ("measured", "measured")


def test_ticks_beyond_the_points_are_left_out() -> None:
    left = drawn().axes[0]

    assert [tick.get_text() for tick in left.get_xticklabels()] == ["one", "two", "four"]


def test_points_stand_where_they_were_measured_and_one_has_a_ring() -> None:
    _, low, high, ring = drawn().axes[0].lines

    assert [np.asarray(low.get_xdata()).tolist(), np.asarray(low.get_ydata()).tolist()] == [[1.0, 2.0, 4.0], [1.0, 2.0, 3.0]]
    assert np.asarray(high.get_ydata()).tolist() == [10.0, 30.0]
    assert (low.get_color(), high.get_color()) == (LOW.colour, HIGH.colour)
    assert (ring.get_markerfacecolor(), np.asarray(ring.get_xydata()).tolist()) == ("none", [[2.0, 30.0]])


def test_a_remark_stands_in_the_lower_right_corner() -> None:
    right = drawn().axes[1]

    at, box = words(right)["all there is"], right.get_window_extent()
    assert box.x0 + box.width / 2 < at[0] < box.x1
    assert box.y0 < at[1] < box.y0 + box.height / 2


def test_the_diagonal_has_a_band() -> None:
    ax = drawn().axes[0]

    (band,) = [artist for artist in ax.collections if to_hex(np.asarray(artist.get_facecolor())[0]).upper() == IDLE]
    corners = np.asarray(band.get_paths()[0].vertices)
    assert set(np.round(corners[:, 1] / corners[:, 0], 9).tolist()) == {0.85, 1.15}


def test_equal_pictures_give_equal_bytes_of_one_width_without_version_or_time_whatever_a_user_has_set(tmp_path: Path) -> None:
    for suffix in (".png", ".svg"):
        write_picture_as(PICTURE, tmp_path / f"one{suffix}")
        with mpl.rc_context({"font.size": 30, "svg.hashsalt": "other", "svg.fonttype": "none", "savefig.dpi": 300}):
            write_picture_as(PICTURE, tmp_path / f"two{suffix}")

        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    chunks = png_chunks((tmp_path / "one.png").read_bytes())
    assert int.from_bytes(chunks[b"IHDR"][:4], "big") == WIDTH_PX
    assert not {b"tEXt", b"iTXt", b"zTXt", b"tIME"} & chunks.keys()
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    assert mpl.__version__ not in svg
