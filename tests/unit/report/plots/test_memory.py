"""The picture of memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from clustersim.measure.metrics import Memory
from clustersim.report.palette import MEMORY_COLOURS
from clustersim.report.plots.canvas import size_px, style, title_of
from clustersim.report.plots.memory import memory_by_stage
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def drawn(n_stages: int = 4, capacity_bytes: float = 80e9) -> Axes:
    timeline = reference_timeline(n_stages, 2 * n_stages)
    with style():
        return memory_by_stage(reference_metrics(timeline, capacity_bytes=capacity_bytes), timeline)


def test_bars_are_as_long_as_what_they_hold() -> None:
    lengths = {
        to_hex(np.asarray(artist.get_facecolor())[0]).upper(): [path.get_extents().width for path in artist.get_paths()]
        for artist in drawn().collections
    }

    stages = METRICS.memory.by_stage
    # In gigabytes, a path for each stage.
    assert lengths[MEMORY_COLOURS["activations"]] == pytest.approx([stage.activations_bytes / 2**30 for stage in stages], rel=1e-9)
    assert lengths[MEMORY_COLOURS["parameters"]] == pytest.approx([stage.parameters_bytes / 2**30 for stage in stages], rel=1e-9)
    assert len(lengths) == len(MEMORY_COLOURS)
    ends = [path.get_extents().x1 for path in list(drawn().collections)[-1].get_paths()]
    assert ends == pytest.approx([stage.peak_bytes / 2**30 for stage in stages], rel=1e-9)


def test_the_capacity_is_a_line_and_parts_and_peaks_are_labelled_too() -> None:
    ax = drawn()

    assert any(np.asarray(line.get_xdata()).tolist() == pytest.approx([80e9 / 2**30] * 2) for line in ax.lines)
    assert {"capacity 74.5 GiB", "parameters 16.8", "activations 22.4", "55.4 GiB"} <= {text.get_text() for text in ax.texts}


@pytest.mark.parametrize(
    ("capacity_bytes", "title"),
    [
        (80e9, "reference, 512 GPUs: fits with 55.4 GiB of 74.5 GiB, 19.1 GiB to spare; stage 0 needs most"),
        (50e9, "reference, 512 GPUs: does not fit with 55.4 GiB of 46.6 GiB, 8.8 GiB too much; stage 0 needs most"),
    ],
)
def test_the_title_states_the_finding(capacity_bytes: float, title: str) -> None:
    assert title_of(drawn(capacity_bytes=capacity_bytes)) == title
    # One stage needs most of nothing.
    assert "needs most" not in title_of(drawn(n_stages=1, capacity_bytes=capacity_bytes))


@pytest.mark.parametrize("capacity_bytes", [20e9, 80e9, 400e9])
def test_capacity_and_bars_are_inside_the_axes(capacity_bytes: float) -> None:
    ax = drawn(capacity_bytes=capacity_bytes)

    assert ax.get_xlim()[1] > max(55.4, capacity_bytes / 2**30)


def test_stages_that_do_not_fit_are_bold() -> None:
    weights = {text.get_text(): text.get_fontweight() for text in drawn(capacity_bytes=45e9).texts if text.get_text().endswith(" GiB")}

    assert (weights["55.4 GiB"], weights["46.1 GiB"], weights["40.5 GiB"]) == ("bold", "bold", "normal")


def test_labels_thin_out_over_many_stages() -> None:
    ax = drawn(n_stages=64)

    assert [tick.get_text() for tick in ax.get_yticklabels()] == [f"stage {stage}" for stage in range(0, 64, 2)]
    assert "parameters 16.8" not in [text.get_text() for text in ax.texts]


def test_the_picture_grows_with_the_stages_up_to_a_page() -> None:
    heights = [size_px(drawn(n_stages=n_stages))[1] for n_stages in (1, 4, 16, 64)]

    assert heights == sorted(heights)
    assert heights[-1] <= 960


def test_no_stages_give_an_empty_picture() -> None:
    metrics = replace(METRICS, memory=Memory(fits=True, capacity_bytes=80e9, peak_bytes=0.0, by_stage=()))

    with style():
        ax = memory_by_stage(metrics, TIMELINE)

    assert ax.get_title(loc="left") == "reference, 512 GPUs: fits with 0.0 MiB of 74.5 GiB, 74.5 GiB to spare"
