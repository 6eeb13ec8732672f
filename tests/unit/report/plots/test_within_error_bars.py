"""Pictures that rank runs say what is within the error bars."""

from __future__ import annotations

from dataclasses import replace

import pandas
import pytest
from matplotlib.axes import Axes

from clustersim.errors import ScenarioError
from clustersim.measure.error_bars import BAR_COLUMNS, ErrorBar
from clustersim.report.plots.breakdown import step_breakdowns
from clustersim.report.plots.canvas import style, title_of
from clustersim.report.plots.heatmap import sweep_heatmap, table_bars
from clustersim.report.plots.lines import COLOURS, sweep_lines
from clustersim.report.plots.pareto import pareto
from clustersim.report.subject import Subject
from tests.golden.reference import reference_metrics, reference_timeline

BAR = ErrorBar(least_fraction=0.9, most_fraction=1.2, ratio_most_fraction=1.1, machine="a")


def table(*points: tuple[str, str, float, float]) -> pandas.DataFrame:
    """Return the table of a sweep: values of two keys, time, and cost of each point; the machine is the first value."""
    names = ["node", "tp", "status", "step_time_s", "cost.per_million_tokens.usd", "cost.per_million_tokens.energy_kwh", *BAR_COLUMNS]
    rows = [(node, tp, "ok", time_s, usd, 1.0, node, 0.9, 1.2, 1.1) for node, tp, time_s, usd in points]
    return pandas.DataFrame(rows, columns=names).assign(point=range(1, len(rows) + 1))


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_a_layout_that_is_beaten_within_the_error_bars_only_has_a_ring() -> None:
    with style():
        ax = pareto(table(("a", "1", 1.0, 1.0), ("a", "2", 1.05, 1.05), ("a", "4", 1.2, 1.2), ("b", "1", 1.3, 1.3)))

    assert title_of(ax) == "node a with tp 1 is ahead in time and in cost; not decided against the 2 ringed"
    assert "ringed points are within the error bars: not decided against the best one" in texts(ax)
    assert "area" not in " ".join(texts(ax))
    assert [len(found.get_offsets()) for found in ax.collections] == [3, 1, 2]  # pyright: ignore[reportArgumentType] - matplotlib's stubs


def test_a_label_of_more_than_two_lines_is_shown_as_cut() -> None:
    name = "a cluster " * 12

    with style():
        ax = pareto(table((name, "1", 1.0, 1.0), ("b", "1", 1.3, 1.3)))

    (label,) = (text for text in texts(ax) if text.startswith("node a cluster"))
    assert label.count("\n") == 1
    assert label.endswith(" …")


def test_the_ends_of_the_front_are_compared_too() -> None:
    with style():
        near, far = (pareto(table(("a", "1", 1.0, 2.0), ("a", "2", time_s, 1.0))) for time_s in (1.05, 1.3))

    assert title_of(near).endswith("; within the error bars: not decided")
    assert "error bars" not in title_of(far)


def test_a_point_that_cannot_run_is_not_on_the_front() -> None:
    frame = table(("a", "1", 1.0, 1.0), ("a", "2", 2.0, 2.0))
    frame.loc[0, "status"] = "infeasible"

    with style():
        ax = pareto(frame)

    assert ax.get_title(loc="left").startswith("tp 2 is both the fastest and the cheapest of 1")


def test_cells_that_the_best_cannot_be_told_apart_from_are_marked() -> None:
    frame = table(("a", "1", 1.0, 1.0), ("a", "2", 1.05, 1.0), ("b", "1", 1.3, 1.0), ("b", "2", 1.4, 1.0))

    with style():
        ax = sweep_heatmap(frame)

    assert [text for text in texts(ax) if text.startswith("≈ ") and "best" not in text] == ["≈ 1.3", "≈ 1.05"]
    assert "≈ within the error bars: not decided against the best" in texts(ax)


def test_lines_show_the_interval_of_each_point_and_which_are_as_good_as_the_best() -> None:
    frame = table(("a", "1", 1.0, 1.0), ("a", "2", 1.05, 1.0), ("b", "1", 1.3, 1.0), ("b", "2", 1.4, 1.0))

    with style():
        ax = sweep_lines(frame)

    ends = [segment[:, 1].tolist() for found in ax.collections for segment in found.get_segments()]  # pyright: ignore[reportAttributeAccessIssue]
    assert ends == [pytest.approx([0.9 * time_s, 1.2 * time_s]) for time_s in (1.0, 1.3, 1.05, 1.4)]
    assert title_of(ax) == "node a with tp 1 is ahead of node a with tp 2 and node b with tp 1, not decided: step time 1 s"


def test_a_rate_is_best_where_it_is_highest() -> None:
    frame = table(("a", "1", 1.0, 1.0), ("b", "1", 2.0, 1.0)).assign(tokens_per_s=[200.0, 100.0])

    with style():
        ax = sweep_lines(frame, figure="tokens_per_s")

    assert ax.get_title(loc="left") == "node a is best: tokens/s 200"


def test_more_lines_than_colours_are_refused() -> None:
    frame = table(*(("a", str(tp), 1.0, 1.0) for tp in range(len(COLOURS) + 1)), *(("b", str(tp), 1.0, 1.0) for tp in range(2)))

    with pytest.raises(ScenarioError, match="tp has 11 values, a line each"):
        sweep_lines(frame)


@pytest.mark.parametrize(("step_time_s", "said"), [(1.05, True), (1.3, False)])
def test_bars_of_several_runs_say_what_is_not_decided(step_time_s: float, said: bool) -> None:
    metrics = replace(reference_metrics(reference_timeline()), error_bar=BAR)
    runs = [
        Subject(label=name, metrics=replace(metrics, step_time_s=factor * metrics.step_time_s), timeline=reference_timeline())
        for name, factor in (("one", 1.0), ("two", step_time_s))
    ]

    with style():
        ax = step_breakdowns(runs)

    assert title_of(ax).startswith("one is ahead of two, not decided; two takes 1.05 times") is said


def test_a_table_of_an_earlier_version_has_no_error_bars() -> None:
    frame = table(("a", "1", 1.0, 1.0))

    assert table_bars(frame)[0] == BAR
    assert table_bars(frame.drop(columns="error_bar.machine")) == [None]
    assert table_bars(frame.assign(**{"error_bar.least_fraction": float("nan")})) == [None]


def test_a_heat_map_shows_shares_in_percent() -> None:
    frame = table(("a", "1", 1.0, 1.0), ("a", "2", 2.0, 1.0), ("b", "1", 2.0, 1.0), ("b", "2", 2.0, 1.0)).assign(mfu=[0.4, 0.2, 0.2, 0.2])

    with style():
        ax = sweep_heatmap(frame, figure="mfu")

    assert title_of(ax).startswith("node a with tp 1 is best: MFU 40 %")
    assert texts(ax)[0] == "40"


def test_two_lines_stand_beside_each_other_above_an_axis_that_says_that_it_does_not_begin_at_0() -> None:
    with style():
        ax = sweep_lines(table(("a", "1", 10.0, 1.0), ("a", "2", 10.0, 1.0), ("b", "1", 10.0, 1.0), ("b", "2", 12.0, 1.0)))

    one, other = (line.get_transform().transform(line.get_xydata()) for line in ax.lines)
    assert one[0][1] == pytest.approx(other[0][1])
    assert other[0][0] - one[0][0] == pytest.approx(7.0)
    assert other[1][0] - one[1][0] == pytest.approx(7.0)
    assert ax.get_ylim()[0] > 0.0
    assert any("the axis does not begin at 0" in text for text in texts(ax))
