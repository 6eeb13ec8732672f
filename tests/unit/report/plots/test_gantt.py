"""The picture of the pipeline."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from clustersim.report import palette
from clustersim.report.plots.canvas import save, style, title_of
from clustersim.report.plots.gantt import LARGEST_LETTERS, pipeline_gantt
from clustersim.trace.timeline import RankClass, Timeline
from tests.golden.reference import OPTIMIZER_S, reference_metrics, reference_timeline


def drawn(timeline: Timeline, *, fits: bool = True) -> Axes:
    metrics = reference_metrics(timeline)
    with style():
        return pipeline_gantt(replace(metrics, memory=replace(metrics.memory, fits=fits)), timeline)


def area(ax: Axes, colour: str) -> float:
    """Return the area of all boxes of a colour, in seconds times rows."""
    total = 0.0
    for artist in ax.collections:
        if isinstance(artist, PolyCollection) and to_hex(np.asarray(artist.get_facecolor())[0]).upper() == colour:
            for path in artist.get_paths():
                size = path.get_extents()
                total += size.width * size.height
    return total


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def test_cells_bear_letter_and_micro_batch() -> None:
    texts = [text.get_text() for text in drawn(reference_timeline()).texts]

    for stage_passes in ([f"F{number}" for number in range(8)], [f"B{number}" for number in range(8)]):
        for text in stage_passes:
            assert texts.count(text) == 4
    assert texts.count("O") == 4


def test_cells_cover_the_time_of_their_spans() -> None:
    timeline = reference_timeline()

    ax = drawn(timeline)

    height = 0.66 - 0.06
    # Optimizer cells have no strip and no recomputation over them: four ranks classes, 6 ms each.
    assert area(ax, palette.OPTIMIZER) == pytest.approx(4 * OPTIMIZER_S * height, rel=1e-9)
    recomputed = sum(span.recompute_s for span in timeline.spans)
    assert area(ax, palette.RECOMPUTE) == pytest.approx(recomputed * height, rel=1e-9)


def test_the_strip_has_the_share_of_exposed_communication() -> None:
    timeline = replace(reference_timeline(), spans=tuple(span for span in reference_timeline().spans if span.kind != "communication"))

    ax = drawn(timeline)

    exposed_s = sum(seconds for span in timeline.spans for _, seconds in span.exposed_s)
    # Without lanes a cell is 0.88 of a row high.
    assert area(ax, palette.EXPOSED) == pytest.approx(exposed_s * 0.88, rel=1e-9)


def test_lanes_divide_communication_into_hidden_and_exposed() -> None:
    timeline = reference_timeline()
    spans = tuple(replace(span, exposed_s=()) for span in timeline.spans)

    ax = drawn(replace(timeline, spans=spans))

    # Two lanes share 0.27 of a row and fill 85 % of it; each rank class has 10 ms of hidden buckets and 6 ms of exposed ones.
    lane = 0.27 / 2 * 0.85
    transfers_s = sum(span.end_s - span.start_s for span in spans if span.dimension == "pp")
    buckets_s = sum(span.end_s - span.start_s for span in spans if span.dimension == "dp")
    drawn_s = (area(ax, palette.HIDDEN) + area(ax, palette.EXPOSED)) / lane
    # The piece of a transfer that is shorter than a pixel is drawn as wide as one.
    widened_s = sum(span.dimension == "pp" for span in spans) * timeline.step_time_s / ax.get_window_extent().width
    assert transfers_s + buckets_s <= drawn_s * (1 + 1e-9)
    assert drawn_s <= transfers_s + buckets_s + widened_s
    assert area(ax, palette.EXPOSED) >= 4 * 6e-3 * lane
    assert area(ax, palette.HIDDEN) >= 4 * 10e-3 * lane


def test_letters_stand_above_the_strip_and_beside_recomputation() -> None:
    timeline = reference_timeline()
    span = next(span for span in timeline.spans if span.kind == "backward" and span.rank_class == 0 and span.micro_batch == 3)
    # Half of the pass is exposed communication and a quarter recomputation.
    length_s = span.end_s - span.start_s
    heavy = replace(span, exposed_s=(("tp", length_s / 2),), recompute_s=length_s / 4)

    ax = drawn(replace(timeline, spans=tuple(heavy if each is span else each for each in timeline.spans)))

    (letter,) = [text for text in ax.texts if text.get_text() == "B3" and text.get_position()[1] < 1]
    x, y = letter.get_position()
    assert x == pytest.approx(span.start_s + length_s * (1 / 4 + 1) / 2, rel=1e-9)
    assert y == pytest.approx(0.06 + (0.66 - 0.06) / 4, rel=1e-9)


def test_the_key_names_only_what_is_there_and_idle_alone_is_hatched() -> None:
    hatched = [artist for artist in drawn(reference_timeline()).collections if artist.get_hatch()]
    assert [to_hex(np.asarray(artist.get_facecolor())[0]).upper() for artist in hatched] == [palette.IDLE]
    assert legend(drawn(reference_timeline())) == [
        "F forward",
        "B backward",
        "recomputation",
        "O optimizer",
        "H host",
        "exposed communication: waited for",
        "hidden communication: beside computation",
        "idle",
    ]
    assert "idle" not in legend(drawn(reference_timeline(1, 8, data_parallel=False, ranks_per_stage=1)))


@pytest.mark.parametrize(
    "name",
    ["stage 3", "stage 10, ranks 144-146, 148-154, 156-162", "stage 10, ranks 1144-1146, 1148-1154, 1156-1162 and 250 more"],
)
def test_names_of_rows_are_inside_the_picture(name: str) -> None:
    timeline = reference_timeline()
    classes = (*timeline.rank_classes[:-1], replace(timeline.rank_classes[-1], name=name))

    labels = drawn(replace(timeline, rank_classes=classes)).get_yticklabels()

    assert name.startswith(labels[-1].get_text().removesuffix("..."))
    assert min(label.get_window_extent().x0 for label in labels) >= 0.0


@pytest.mark.parametrize(("n_stages", "every"), [(4, 1), (64, 2)])
def test_the_first_stage_is_on_top_and_labels_thin_out_over_many(n_stages: int, every: int) -> None:
    ax = drawn(reference_timeline(n_stages, n_stages))

    assert [tick.get_text() for tick in ax.get_yticklabels()] == [f"stage {stage}" for stage in range(0, n_stages, every)]
    assert ax.yaxis_inverted()


def test_the_title_states_the_finding() -> None:
    title = "reference, 512 GPUs: 26.9 % of the step is pipeline bubble"
    assert title_of(drawn(reference_timeline())) == title
    assert title_of(drawn(reference_timeline(), fits=False)) == f"{title}; does not fit in memory"
    alone = reference_timeline(1, 8, data_parallel=False, ranks_per_stage=1)
    assert title_of(drawn(alone)) == "reference, 1 GPU: 81.3 % of the step computes"


@pytest.mark.parametrize(
    ("n_stages", "n_micro_batches", "part"),
    [
        (4, 8, "one step of 352 ms"),
        (8, 256, "only its first 254 ms and last 254 ms are drawn"),
        (8, 256, "7.63 s left out"),
        (64, 64, "passes without a number are too narrow for one"),
    ],
)
def test_the_subtitle_says_what_is_drawn(n_stages: int, n_micro_batches: int, part: str) -> None:
    texts = [text.get_text() for text in drawn(reference_timeline(n_stages, n_micro_batches)).texts]

    assert any(part in text for text in texts)


def test_axis_labels_are_times_of_the_step_on_both_sides_of_the_break() -> None:
    timeline = reference_timeline(8, 256)

    ticks = [float(tick.get_text()) for tick in drawn(timeline).get_xticklabels()]

    assert ticks == sorted(ticks)
    assert ticks[0] == 0.0
    assert timeline.step_time_s - 0.2 < ticks[-1] <= timeline.step_time_s
    assert not any(0.5 < tick < 7.5 for tick in ticks)


def test_later_model_chunks_are_lighter() -> None:
    colours = {
        to_hex(np.asarray(artist.get_facecolor())[0]).upper()
        for artist in drawn(reference_timeline(4, 8, 2)).collections
        if isinstance(artist, PolyCollection)
    }

    lighter = [colour for colour in colours if colour not in palette.KIND_COLOURS.values()]
    assert len(lighter) == 2
    assert {palette.FORWARD, palette.BACKWARD} <= colours
    assert all(palette.luminance(colour) > palette.luminance(palette.FORWARD) for colour in lighter)


def test_a_timeline_without_spans_is_drawn_empty(tmp_path: Path) -> None:
    classes = (RankClass(name="all ranks", stage=0, representative_rank=0, ranks=np.arange(1)),)
    metrics = reference_metrics(reference_timeline())
    empty = Timeline(rank_classes=classes, spans=(), step_time_s=1.0)

    with style():
        save(pipeline_gantt(metrics, empty), tmp_path / "pipeline.png")

    assert (tmp_path / "pipeline.png").stat().st_size > 0


def test_a_long_timeline_is_a_few_artists() -> None:
    few, many = drawn(reference_timeline(16, 32, 2)), drawn(reference_timeline(16, 128, 2))

    assert len(many.collections) == len(few.collections)
    assert len(many.texts) <= LARGEST_LETTERS + 50


def test_every_letter_is_inside_its_cell() -> None:
    ax = drawn(reference_timeline(8, 256))
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.canvas.draw()

    inside = ax.get_window_extent()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()[:1] in "FBOH0123456789" and len(text.get_text()) <= 4]
    assert len(boxes) > 50
    rows: dict[int, list[tuple[float, float]]] = {}
    for box in boxes:
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1
        rows.setdefault(round((box.y0 + box.y1) / 20), []).append((box.x0, box.x1))
    for row in rows.values():
        row.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(row))
