"""The tornado."""

from __future__ import annotations

from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from clustersim.report.pictures import Sensitivity, Tornado, VariedFigure
from clustersim.report.plots.canvas import style
from clustersim.report.plots.tornado import tornado


def _varied(name: str, low: tuple[str, float | None], high: tuple[str, float | None], best: str = "base") -> VariedFigure:
    return VariedFigure(
        input=name,
        low=low[0],
        high=high[0],
        values_at_low={"base": low[1]},
        values_at_high={"base": high[1]},
        best_at_low=best,
        best_at_high="base",
    )


PICTURE = Tornado(
    scenario="x",
    metric="tokens_per_s",
    sensitivity=Sensitivity(
        case="base",
        value=100.0,
        inputs=[
            _varied("a", ("1", 60.0), ("2", 130.0), best="b"),
            _varied("falls", ("3", 110.0), ("4", 95.0)),
            _varied("both above", ("5", 104.0), ("6", 108.0)),
            _varied("none at low", ("7", None), ("8", 101.0)),
            _varied("nothing", ("9", 100.0), ("10", 100.0)),
        ],
    ),
)


def test_bars_reach_from_what_is_now_to_their_ends() -> None:
    with style():
        ax = tornado(PICTURE)

    rectangles = [box for box in ax.patches if isinstance(box, Rectangle)]
    boxes = [(round(box.get_x(), 6), round(box.get_x() + box.get_width(), 6)) for box in rectangles]
    assert boxes[:2] == [(100.0, 60.0), (100.0, 130.0)]
    assert len(boxes) == 7
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == ["a\nb becomes best", "falls"]
    assert ax.get_title(loc="left") == "tokens/s depends most on a: 70.0 % from end to end"


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
