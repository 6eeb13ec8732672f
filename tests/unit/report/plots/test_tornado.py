"""The tornado."""

from __future__ import annotations

from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from clustersim.report.plots.canvas import style
from clustersim.report.plots.tornado import Tornado, TornadoBar, tornado

PICTURE = Tornado(
    finding="it depends on a",
    subtitle="x",
    axis="tokens_per_s",
    base=100.0,
    bars=[
        TornadoBar(name="a", low_text="1", high_text="2", low=60.0, high=130.0, note="b becomes best"),
        TornadoBar(name="falls", low_text="3", high_text="4", low=110.0, high=95.0),
        TornadoBar(name="both above", low_text="5", high_text="6", low=104.0, high=108.0),
        TornadoBar(name="none at low", low_text="7", high_text="8", low=None, high=101.0),
        TornadoBar(name="nothing", low_text="9", high_text="10", low=100.0, high=100.0),
    ],
)


def test_bars_reach_from_what_is_now_to_their_ends() -> None:
    with style():
        ax = tornado(PICTURE)

    rectangles = [box for box in ax.patches if isinstance(box, Rectangle)]
    boxes = [(round(box.get_x(), 6), round(box.get_x() + box.get_width(), 6)) for box in rectangles]
    assert boxes[:2] == [(100.0, 60.0), (100.0, 130.0)]
    assert len(boxes) == 7
    assert [label.get_text().splitlines()[0] for label in ax.get_yticklabels()] == [bar.name for bar in PICTURE.bars]
    assert ax.get_title(loc="left") == "it depends on a"


def test_no_two_texts_of_a_bar_stand_on_one_side() -> None:
    with style():
        ax = tornado(PICTURE)

    sides: dict[float, list[str]] = {}
    for text in ax.texts:
        assert isinstance(text, Annotation)
        place = text.xy[1]
        if text.get_text() in {"1", "2", "3", "4", "5", "6"}:
            sides.setdefault(place, []).append(text.get_horizontalalignment())
    assert all(sorted(each) == ["left", "right"] for each in sides.values())
    assert len(sides) == 3


def test_a_figure_without_effect_has_no_bar_and_says_so() -> None:
    with style():
        ax = tornado(PICTURE)

    assert "9 to 10: no effect" in [text.get_text() for text in ax.texts]
