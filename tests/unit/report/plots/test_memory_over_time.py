"""The picture of memory over time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from clustersim.measure.metrics import Metrics
from clustersim.report.palette import MEMORY_COLOURS
from clustersim.report.plots.canvas import save, size_px, style, title_of
from clustersim.report.plots.memory_over_time import MOST_ROWS, STACK, memory_over_time
from clustersim.trace.timeline import Timeline
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def drawn(n_stages: int = 4, capacity_bytes: float = 80e9) -> Axes:
    timeline = reference_timeline(n_stages, 2 * n_stages)
    return picture(reference_metrics(timeline, capacity_bytes=capacity_bytes), timeline)


def picture(metrics: Metrics, timeline: Timeline) -> Axes:
    with style():
        return memory_over_time(metrics, timeline)


def rows(whole: Axes) -> list[Axes]:
    figure = whole.get_figure(root=True)
    assert figure is not None
    return [ax for ax in figure.axes if ax is not whole]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def areas(ax: Axes) -> dict[str, float]:
    """Return the upper edge of each colour in GiB."""
    return {
        to_hex(np.asarray(artist.get_facecolor())[0]).upper(): max(path.get_extents().y1 for path in artist.get_paths())
        for artist in ax.collections
    }


@pytest.mark.parametrize(("n_stages", "n_rows"), [(1, 1), (4, 4), (16, MOST_ROWS)])
def test_a_stage_has_a_row_with_its_name_and_of_many_the_first_and_the_last_have(n_stages: int, n_rows: int) -> None:
    whole = drawn(n_stages)

    found = rows(whole)

    named = [text for row in found for text in texts(row) if text.startswith("stage ")]
    assert len(found) == n_rows
    assert (named[:1], named[-1:]) == (([], []) if n_stages == 1 else (["stage 0"], [f"stage {n_stages - 1}"]))
    assert any(text.endswith(f"; {n_rows} of {n_stages} stages") for text in texts(whole)) is (n_rows < n_stages)
    # The last row alone has times.
    assert [any(label.get_text() for label in row.get_xticklabels()) for row in found] == [False] * (n_rows - 1) + [True]
    assert found[-1].get_xlabel().startswith("time in the step, ")


def test_several_classes_of_a_stage_are_one_row() -> None:
    classes = tuple(replace(rank_class, stage=0, name=f"rank {index}") for index, rank_class in enumerate(TIMELINE.rank_classes))
    metrics = replace(METRICS, parallelism=replace(METRICS.parallelism, pp=1))

    whole = picture(metrics, replace(TIMELINE, rank_classes=classes))

    assert len(rows(whole)) == 1
    assert "a GPU holds" in whole.get_title(loc="left")


def test_areas_are_stacked_up_to_the_peak() -> None:
    stage = METRICS.memory.by_stage[0]
    order = {
        "parameters": stage.parameters_bytes,
        "optimizer": stage.optimizer_bytes,
        "gradients": stage.gradients_bytes,
        "buffers": stage.buffers_bytes,
        "activations": stage.activations_bytes,
    }

    edges = areas(rows(drawn())[0])

    sums = np.cumsum(list(order.values())) / 2**30
    assert tuple(order) == STACK
    assert [edges[MEMORY_COLOURS[name]] for name in order] == pytest.approx(sums.tolist(), rel=1e-9)


def test_the_peak_is_ringed_and_named() -> None:
    row = rows(drawn())[0]
    curve = TIMELINE.memory[0]

    rings = [line for line in row.lines if line.get_marker() == "o"]

    assert [(float(ring.get_xdata()[0]), float(ring.get_ydata()[0])) for ring in rings] == [(curve.peak_at_s, curve.peak_bytes / 2**30)]  # pyright: ignore[reportIndexIssue, reportArgumentType] - the stubs know no arrays here
    assert "55.4 GiB at 40 ms, forward pass of micro-batch 3" in texts(row)


def test_words_of_a_late_peak_stand_to_its_left() -> None:
    late = replace(TIMELINE.memory[0], peak_at_s=0.9 * TIMELINE.step_time_s)

    row = rows(picture(METRICS, replace(TIMELINE, memory=(late,))))[0]

    assert [text.get_horizontalalignment() for text in row.texts if "forward pass" in text.get_text()] == ["right"]


@pytest.mark.parametrize(
    ("capacity_bytes", "finding"),
    [
        (80e9, "stage 0 holds at most 55.4 GiB of 74.5 GiB in the forward pass of micro-batch 3"),
        (50e9, "stage 0 holds 55.4 GiB, which is more than 46.6 GiB, in the forward pass of micro-batch 3"),
    ],
)
def test_the_title_states_the_finding(capacity_bytes: float, finding: str) -> None:
    assert title_of(drawn(capacity_bytes=capacity_bytes)) == f"reference, 512 GPUs: {finding}"


def test_the_capacity_is_a_labelled_line_and_a_peak_above_it_is_bold() -> None:
    weights = [text.get_fontweight() for row in rows(drawn(capacity_bytes=45e9)) for text in row.texts if " at " in text.get_text()]
    assert weights == ["bold", "bold", "normal", "normal"]

    found = rows(drawn())

    assert all(any(np.asarray(line.get_ydata()).tolist() == pytest.approx([80e9 / 2**30] * 2) for line in row.lines) for row in found)
    assert ["capacity\n74.5 GiB" in texts(row) for row in found] == [True, False, False, False]


def test_a_capacity_far_above_is_named_and_leaves_the_picture_to_what_is_held() -> None:
    row = rows(drawn(capacity_bytes=800e9))[0]

    assert row.get_ylim()[1] < 80
    assert any(text.startswith("capacity\n745.1 GiB,") and text.endswith("this height") for text in texts(row))


def test_what_is_high_enough_is_named_inside_with_its_size_at_the_peak() -> None:
    found = texts(rows(drawn())[0])

    assert {"parameters 16.8", "gradients 9.31", "activations 22.4"} <= set(found)
    # Its band is thinner than a letter is high.
    assert not any(text.startswith("buffers") for text in found)


@pytest.mark.parametrize("n_stages", [1, 4])
def test_words_inside_an_area_are_inside_it_all_along(n_stages: int) -> None:
    for row in rows(drawn(n_stages=n_stages)):
        width_px, _ = size_px(row)
        for text in row.texts:
            name, _, size = text.get_text().partition(" ")
            if name not in MEMORY_COLOURS or not size:
                continue
            at_s, at_gb = text.get_position()
            half_s = 3.5 * len(text.get_text()) / width_px * row.get_xlim()[1]
            colour = MEMORY_COLOURS[name]
            (area,) = [one for one in row.collections if to_hex(np.asarray(one.get_facecolor())[0]).upper() == colour]
            assert all(path.contains_point((at, at_gb)) for path in area.get_paths() for at in (at_s - half_s, at_s, at_s + half_s))


def test_several_steps_are_drawn_as_their_first() -> None:
    row = rows(picture(METRICS, replace(TIMELINE, step_time_s=TIMELINE.step_time_s / 2)))[0]

    assert row.get_xlim() == (0.0, TIMELINE.step_time_s / 2)


def test_a_timeline_without_memory_is_drawn_empty(tmp_path: Path) -> None:
    with style():
        save(memory_over_time(METRICS, replace(TIMELINE, memory=())), tmp_path / "empty.png")

    assert (tmp_path / "empty.png").stat().st_size > 0


def test_the_stage_that_the_title_names_is_among_those_that_are_drawn() -> None:
    timeline = reference_timeline(16, 32)
    curve = timeline.memory[5]
    fullest = replace(curve, buffers_bytes=tuple(each + 200e9 for each in curve.buffers_bytes))
    curves = (*timeline.memory[:5], fullest, *timeline.memory[6:])

    whole = picture(reference_metrics(timeline), replace(timeline, memory=curves))

    stage = timeline.rank_classes[fullest.rank_class].stage
    assert f": stage {stage} holds " in title_of(whole)
    assert f"stage {stage}" in [text for row in rows(whole) for text in texts(row)]
