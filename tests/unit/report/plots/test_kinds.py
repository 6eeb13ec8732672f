"""Every picture that can be asked for by name, drawn from a step made by hand."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch
from PIL import Image

from clustersim.apps.plot.plots import draw_plot
from clustersim.errors import ScenarioError
from clustersim.measure.step_breakdown import PipelineShape
from clustersim.report.palette import FORWARD, HIDDEN
from clustersim.report.plots.canvas import WIDTH_PX, Margins, key, new_axes, save, small_png, style, title_of
from clustersim.report.plots.kinds import ANSWER_PLOTS, KINDS, RUN_PLOTS, SERVED_PLOTS, TABLE_PLOTS
from clustersim.report.plots.validation import COLUMNS
from clustersim.report.subject import DataSheetPeaks, FabricLevel, KernelGroup, NodeWire, PicturedMachine, Subject
from tests.golden.reference import reference_metrics, reference_timeline
from tests.unit.report.plots.pictures import figure_of, is_empty, outside, overlapping

TIMELINE = reference_timeline()
SUBJECT = Subject(
    label="reference",
    metrics=reference_metrics(TIMELINE),
    timeline=TIMELINE,
    pipeline=PipelineShape(schedule="1f1b", n_stages=4, n_micro_batches=8, virtual_stages=1),
    global_batch_size=64,
    kernels=(
        KernelGroup(name="product", flops=4e12, traffic_bytes=4e9, seconds=6e-3),
        KernelGroup(name="norm", flops=1e9, traffic_bytes=1e9, seconds=5e-4),
        KernelGroup(name="silent", flops=0.0, traffic_bytes=1e9, seconds=4e-4),
    ),
    ceilings=DataSheetPeaks(
        accelerator="card", peak_flops_per_s=1e15, memory_bytes_per_s=3e12, scale_up_bytes_per_s=450e9, nic_bytes_per_s=50e9
    ),
)
GPUS = range(4)
SUBJECT = replace(
    SUBJECT,
    machine=PicturedMachine(
        levels=(
            FabricLevel(name="8 x box", tier="nic", n_links=32, capacity_bytes_per_s=32 * 50e9),
            FabricLevel(name="2 leaves (switch)", tier="leaf", n_links=16, capacity_bytes_per_s=16 * 50e9),
            FabricLevel(name="1 spine at least (switch)", tier=""),
        ),
        node="box",
        n_nodes=8,
        wires=tuple(
            NodeWire(name=f"node0/{name}", tier=tier, tail=tail, head=head, bandwidth_bytes_per_s=speed)
            for gpu in GPUS
            for name, tier, tail, head, speed in (
                (f"gpu{gpu}/nvlink/up", "nvlink", f"gpu{gpu}", "domain0/nvswitch", 450e9),
                (f"gpu{gpu}/pcie/up", "pcie", f"gpu{gpu}", f"pcie{gpu}", 63e9),
                (f"pcie{gpu}/up", "pcie", f"pcie{gpu}", f"socket{gpu // 2}", 63e9),
                (f"nic{gpu}/tx", "nic", f"pcie{gpu}", "leaf0", 50e9),
            )
        ),
        oversubscription=2.0,
    ),
)
OF_ONE = sorted(name for name, plot in RUN_PLOTS.items() if plot.n_least == 1 and name not in {"cost", "goodput"})


def test_a_picture_of_one_name_is_of_runs_of_a_table_of_both_or_of_an_answer() -> None:
    assert set(KINDS) == set(RUN_PLOTS) | set(SERVED_PLOTS) | set(TABLE_PLOTS) | set(ANSWER_PLOTS)
    assert not set(ANSWER_PLOTS) & (set(RUN_PLOTS) | set(TABLE_PLOTS))
    assert all(name.replace("_", "").isalpha() and name == name.lower() for name in KINDS)


@pytest.mark.parametrize("kind", OF_ONE)
def test_a_picture_says_what_it_found_and_shows_something_without_labels_on_each_other_or_outside(kind: str) -> None:
    with style():
        ax = RUN_PLOTS[kind].draw([SUBJECT], None)

        assert len(title_of(ax)) > 20
        assert not is_empty(ax)
        assert figure_of(ax).get_figwidth() * figure_of(ax).dpi == WIDTH_PX
        assert overlapping(ax) == []
        assert outside(ax) == []


@pytest.mark.parametrize(("kind", "suffix"), [("roofline", "png"), ("pipeline", "svg")])
def test_equal_runs_give_equal_bytes(kind: str, suffix: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with style():
            save(RUN_PLOTS[kind].draw([SUBJECT], None), tmp_path / f"{name}.{suffix}")

    first = (tmp_path / f"one.{suffix}").read_bytes()
    assert first == (tmp_path / f"two.{suffix}").read_bytes()
    assert first.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


@pytest.mark.parametrize("kind", OF_ONE)
def test_a_picture_can_be_drawn_on_axes_of_ones_own(kind: str) -> None:
    from clustersim.report.plots.canvas import Margins, new_axes

    with style():
        own = new_axes(500, Margins(left=150, right=150, top=80, bottom=90))

        assert RUN_PLOTS[kind].draw([SUBJECT], own) is own


def test_the_pipeline_holds_the_closed_form_beside_what_was_simulated() -> None:
    with style():
        title = title_of(RUN_PLOTS["pipeline"].draw([SUBJECT], None))

    # Four stages and eight micro-batches: 3 / 11.
    assert "of the step is pipeline bubble (closed form 27.3 %)" in title


def test_the_roofline_shows_the_kernels_that_its_title_counts_as_bound_by_memory() -> None:
    with style():
        ax = RUN_PLOTS["roofline"].draw([SUBJECT], None)

    shown = [(to_hex(np.asarray(points.get_facecolor())[0]).upper(), *np.asarray(points.get_offsets())[0]) for points in ax.collections]
    # The first is bound by arithmetic; the last has no products, stands left of 1 FLOP for each byte, and moves 1 GB in 0.4 ms.
    assert [colour for colour, _, _ in shown] == [FORWARD, HIDDEN, HIDDEN]
    assert shown[2][1:] == pytest.approx((1 / 1.6, 2.5e12))
    assert "13.0 % of the computing time is bound by memory" in title_of(ax)


def test_a_band_of_the_topology_is_as_wide_as_its_capacity() -> None:
    with style():
        ax = RUN_PLOTS["topology"].draw([SUBJECT], None)

    widths = [float(band.get_paths()[0].get_extents().width) for band in ax.collections]
    said = "\n".join(text.get_text() for text in ax.texts)
    assert widths[0] == pytest.approx(widths[1] / 2)
    assert "2 leaves (switch)" in said
    assert "oversubscription of leaves 2 : 1" in said


@pytest.mark.parametrize("kind", ["breakdown", "pareto"])
def test_runs_of_unlike_work_are_not_compared(kind: str) -> None:
    other = replace(SUBJECT, label="twice", metrics=replace(SUBJECT.metrics, model_flops_per_step=2 * SUBJECT.metrics.model_flops_per_step))

    with style(), pytest.raises(ScenarioError, match="a step of twice has 2 times the model FLOPs of reference"):
        RUN_PLOTS[kind].draw([SUBJECT, other], None)


def test_the_rank_with_the_longest_passes_is_among_those_that_are_shown() -> None:
    classes = tuple(replace(TIMELINE.rank_classes[0], name=f"rank {index}") for index in range(9))
    passes = [span for span in TIMELINE.spans if span.rank_class == 0 and span.kind == "forward"]
    spans = tuple(
        replace(span, rank_class=index, end_s=span.start_s + (1.5 if index == 4 else 1.0) * (span.end_s - span.start_s))
        for index in range(9)
        for span in passes
    )

    with style():
        ax = RUN_PLOTS["timeline"].draw([replace(SUBJECT, timeline=replace(TIMELINE, rank_classes=classes, spans=spans))], None)

    shown = [text.get_text() for text in ax.texts if text.get_text().startswith("rank ")]
    assert shown == ["rank 0", "rank 4", "rank 5", "rank 8"]


def test_a_strip_of_validation_has_a_point_for_each_run_at_its_error() -> None:
    rows = [("a", "one", 2.0, 2.1), ("a", "two", 1.0, 0.8), ("b", "three", 4.0, 4.0)]

    with style():
        ax = TABLE_PLOTS["validation"].draw(pandas.DataFrame(rows, columns=list(COLUMNS)), None)

    points = {float(x): round(float(y)) for line in ax.lines if line.get_marker() == "o" for x, y in np.asarray(line.get_xydata())}
    assert {round(error): row for error, row in points.items()} == {0: 0, 5: 1, -20: 1}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b (1)", "a (2)"]


def test_a_long_caption_is_folded_and_the_picture_grows_by_its_lines() -> None:
    short = RUN_PLOTS["breakdown"].draw([SUBJECT], None)
    named = replace(SUBJECT, metrics=replace(SUBJECT.metrics, scenario="many words " * 20))
    ax = RUN_PLOTS["breakdown"].draw([named], None)

    more = ax.get_title(loc="left").count("\n") - short.get_title(loc="left").count("\n")

    assert more == 2
    assert (figure_of(ax).get_figheight() - figure_of(short).get_figheight()) * 72 == pytest.approx(more * 14.0 * 1.3)
    assert outside(ax) == []


def test_a_small_picture_keeps_the_colours_of_the_palette() -> None:
    pixels = np.asarray(Image.open(BytesIO(small_png(figure_of(RUN_PLOTS["roofline"].draw([SUBJECT], None))))).convert("RGB")).astype(int)

    for colour in (HIDDEN, FORWARD):
        nearest = np.abs(pixels - [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).sum(axis=2).min()
        # A point is drawn over white at 85 %; the box of the legend has the colour itself.
        assert nearest <= 9


def test_a_legend_that_is_wider_than_the_picture_has_more_lines_and_room_for_them() -> None:
    with style():
        ax = new_axes(400, Margins(left=200, right=40, top=80, bottom=60))
        key(ax, [(f"a long word of entry {number}", FORWARD) for number in range(9)], below_px=30)
        legend = ax.get_legend()
        assert legend is not None
        box = legend.get_window_extent()

    assert box.x1 <= WIDTH_PX
    assert box.y0 >= 0
    assert ax.get_window_extent().height == pytest.approx(260)


def test_a_wire_between_two_accelerators_is_as_wide_as_its_bandwidth_beside_any_other() -> None:
    assert SUBJECT.machine is not None
    joined = NodeWire(name="node0/gpu0/nvlink/up", tier="nvlink", tail="gpu0", head="gpu1", bandwidth_bytes_per_s=126e9)
    wires = (joined, *(wire for wire in SUBJECT.machine.wires if wire.tier == "pcie"))
    with style():
        ax = RUN_PLOTS["topology"].draw([replace(SUBJECT, machine=replace(SUBJECT.machine, wires=wires))], None)

    arcs = [patch.get_linewidth() for patch in ax.patches if isinstance(patch, PathPatch)]
    straight = max(float(line.get_linewidth()) for line in ax.lines)
    assert arcs == [pytest.approx(2 * straight)]


def test_all_pictures_of_a_run_have_one_share_of_computing() -> None:
    paid = ("cost.gpu_hour=2.50 USD",)
    titles = [title_of(draw_plot(name, ["llama3-8b-8xh100"], paid)) for name in ("pipeline", "breakdown", "cost")]

    assert len({title.partition("8 GPUs: ")[2][:6] for title in titles}) == 1, titles
