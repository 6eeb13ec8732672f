"""Panels side by side: what is drawn where, and the same bytes every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from clustersim.report.palette import IDLE
from clustersim.report.pictures import Axis, Corner, Curve, Note, Panel, Picture
from clustersim.report.plots.canvas import WIDTH_PX, style
from clustersim.report.plots.panels import draw
from clustersim.report.plots.write import write_pictures
from tests.unit.report.plots.test_write import png_chunks

LOW = Curve(label="low", points=((1.0, 1.0), (2.0, 2.0), (4.0, 3.0)), colour="#44AA99", strong=True)
HIGH = Curve(label="high", points=((1.0, 10.0), (2.0, 30.0)), colour="#999933", line="dashed")
PICTURE = Picture(
    name="some",
    finding="High is higher than low",
    subtitle="what is drawn",
    x=Axis(label="x", ticks=((1.0, "one"), (2.0, "two"), (4.0, "four"), (1000.0, "far away"))),
    y=Axis(label="y", ticks=((1.0, "1 s"), (10.0, "10 s"))),
    panels=(
        Panel(title="left", curves=(LOW, HIGH), notes=(Note(x=2.0, y=2.0, text="here", corner="lower right"),)),
        Panel(title="right", curves=(LOW,), remark="all there is"),
    ),
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


def test_a_long_finding_is_written_smaller_and_stays_inside() -> None:
    finding = drawn(replace(PICTURE, finding="word " * 40)).texts[0]

    assert finding.get_window_extent().x1 <= WIDTH_PX


def test_panels_have_titles_and_the_same_logarithmic_axes() -> None:
    left, right = drawn().axes

    assert "left" in words(left)
    assert "right" in words(right)
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
    assert {ax.get_xscale() for ax in (left, right)} == {ax.get_yscale() for ax in (left, right)} == {"log"}
    assert left.get_xlim()[0] < 1.0
    assert left.get_ylim()[1] > 30.0


def test_only_the_first_panel_names_the_y_axis() -> None:
    left, right = drawn().axes

    assert (left.get_ylabel(), right.get_ylabel()) == ("y", "")
    assert (left.get_xlabel(), right.get_xlabel()) == ("x", "x")


def test_ticks_beyond_the_points_are_left_out() -> None:
    left = drawn().axes[0]

    assert [tick.get_text() for tick in left.get_xticklabels()] == ["one", "two", "four"]


def test_curves_go_through_their_points() -> None:
    lines = drawn().axes[0].lines

    assert np.asarray(lines[0].get_xdata()).tolist() == [1.0, 2.0, 4.0]
    assert np.asarray(lines[0].get_ydata()).tolist() == [1.0, 2.0, 3.0]
    assert lines[0].get_linewidth() > lines[1].get_linewidth()


def test_each_curve_is_labelled_to_the_right_of_its_panel_at_the_height_where_it_ends() -> None:
    left = drawn().axes[0]

    found, box = words(left), left.get_window_extent()
    for label, ends in (("low", 3.0), ("high", 30.0)):
        assert found[label][0] > box.x1
        assert found[label][1] == pytest.approx(left.transData.transform((4.0, ends))[1], abs=3.0)


def test_labels_of_curves_that_end_together_do_not_overlap() -> None:
    curves = tuple(replace(LOW, label=f"curve {index}") for index in range(6))

    left = drawn(replace(PICTURE, panels=(Panel(title="one", curves=curves),))).axes[0]

    heights = sorted(at[1] for text, at in words(left).items() if text.startswith("curve"))
    assert min(np.diff(heights)) >= 14.0


def test_no_label_reaches_into_the_next_panel() -> None:
    longest = replace(HIGH, label="without latency")

    left, right = drawn(replace(PICTURE, panels=(Panel(title="left", curves=(longest,)), PICTURE.panels[1]))).axes

    (label,) = [text for text in left.texts if text.get_text() == "without latency"]
    assert label.get_window_extent().x1 < right.get_window_extent().x0


@pytest.mark.parametrize(
    ("corner", "right_of", "above"),
    [("upper left", False, True), ("upper right", True, True), ("lower left", False, False), ("lower right", True, False)],
)
def test_a_note_stands_in_its_corner_of_a_ring(corner: Corner, right_of: bool, above: bool) -> None:
    note = Note(x=2.0, y=2.0, text="here", corner=corner)

    left = drawn(replace(PICTURE, panels=(Panel(title="one", curves=(LOW,), notes=(note,)),))).axes[0]

    at, point = words(left)["here"], left.transData.transform((2.0, 2.0))
    assert (at[0] > point[0], at[1] > point[1]) == (right_of, above)
    rings = [line for line in left.lines if line.get_markerfacecolor() == "none"]
    assert [(np.asarray(ring.get_xdata()).tolist(), np.asarray(ring.get_ydata()).tolist()) for ring in rings] == [([2.0], [2.0])]


def test_a_remark_stands_in_the_lower_right_corner() -> None:
    right = drawn().axes[1]

    at, box = words(right)["all there is"], right.get_window_extent()
    assert box.x0 + box.width / 2 < at[0] < box.x1
    assert box.y0 < at[1] < box.y0 + box.height / 2


def test_what_ought_to_be_equal_has_a_diagonal_with_a_band_and_equal_axes() -> None:
    points = replace(LOW, line="none")

    ax = drawn(replace(PICTURE, panels=(Panel(title="one", curves=(points,)),), band_fraction=0.15)).axes[0]

    assert ax.get_xlim() == ax.get_ylim()
    (band,) = [artist for artist in ax.collections if to_hex(np.asarray(artist.get_facecolor())[0]).upper() == IDLE]
    corners = np.asarray(band.get_paths()[0].vertices)
    assert set(np.round(corners[:, 1] / corners[:, 0], 9).tolist()) == {0.85, 1.15}
    assert "low" not in words(ax)


def test_pictures_are_written_twice_in_one_width(tmp_path: Path) -> None:
    write_pictures([PICTURE, replace(PICTURE, name="other")], tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.png", "other.svg", "some.png", "some.svg"]
    header = png_chunks((tmp_path / "some.png").read_bytes())[b"IHDR"]
    assert int.from_bytes(header[:4], "big") == WIDTH_PX
    assert int.from_bytes(header[4:8], "big") == PICTURE.height_px


def test_equal_pictures_give_equal_bytes_without_version_or_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_pictures([PICTURE], tmp_path / name)

    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert not {b"tEXt", b"iTXt", b"zTXt", b"tIME"} & png_chunks((tmp_path / "one" / "some.png").read_bytes()).keys()
    svg = (tmp_path / "one" / "some.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    assert mpl.__version__ not in svg


def test_a_users_settings_change_nothing(tmp_path: Path) -> None:
    for name in ("plain", "odd"):
        (tmp_path / name).mkdir()
    write_pictures([PICTURE], tmp_path / "plain")

    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "other", "svg.fonttype": "none", "savefig.dpi": 300}):
        write_pictures([PICTURE], tmp_path / "odd")

    for path in (tmp_path / "plain").iterdir():
        assert path.read_bytes() == (tmp_path / "odd" / path.name).read_bytes()
