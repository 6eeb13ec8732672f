"""Pictures on disk, and what it costs to have them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

from clustersim.apps.run.page import IN_FOLDER
from clustersim.errors import ScenarioError
from clustersim.measure.metrics import Metrics
from clustersim.report.plots.breakdown import step_breakdown
from clustersim.report.plots.canvas import WIDTH_PX
from clustersim.report.plots.kinds import RUN_PLOTS, drawings
from clustersim.report.plots.write import write_drawn, write_plots
from clustersim.report.subject import Subject
from clustersim.trace.timeline import Timeline
from tests.golden.reference import reference_metrics, reference_timeline

TIMELINE = reference_timeline()
METRICS = reference_metrics(TIMELINE)


def written(folder: Path, metrics: Metrics = METRICS, timeline: Timeline = TIMELINE) -> None:
    """Write the pictures of a run directory."""
    write_plots(drawings(RUN_PLOTS, [Subject(label="reference", metrics=metrics, timeline=timeline)]), IN_FOLDER, folder)


def png_chunks(raw: bytes) -> dict[bytes, bytes]:
    """Return the chunks of a PNG by type (the last of each)."""
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "big")
        chunks[raw[at + 4 : at + 8]] = raw[at + 8 : at + 8 + length]
        at += length + 12
    return chunks


@pytest.mark.parametrize("n_stages", [1, 4, pytest.param(64, marks=pytest.mark.slow)])
def test_all_pictures_are_written_in_one_width(tmp_path: Path, n_stages: int) -> None:
    timeline = reference_timeline(n_stages, 2 * n_stages)

    written(tmp_path, reference_metrics(timeline), timeline)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["breakdown.png", "memory.png", "memory_over_time.png", "pipeline.png"]
    for path in tmp_path.iterdir():
        header = png_chunks(path.read_bytes())[b"IHDR"]
        assert int.from_bytes(header[:4], "big") == WIDTH_PX
        assert 200 < int.from_bytes(header[4:8], "big") < 1200


def test_a_users_settings_change_nothing(tmp_path: Path) -> None:
    for name in ("plain", "odd"):
        (tmp_path / name).mkdir()
    written(tmp_path / "plain")

    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.dpi": 300}):
        written(tmp_path / "odd")
        assert mpl.rcParams["font.size"] == 30

    for path in (tmp_path / "plain").iterdir():
        assert path.read_bytes() == (tmp_path / "odd" / path.name).read_bytes()


def test_a_picture_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="name another file"):
        write_drawn(lambda: step_breakdown(METRICS, TIMELINE), tmp_path / "missing" / "a.png", "--plot")


def test_an_odd_name_is_drawn(tmp_path: Path) -> None:
    written(tmp_path, replace(METRICS, scenario="cost $5 or $6_x 大模型 " + "a" * 200))

    assert (tmp_path / "pipeline.png").stat().st_size > 0


@pytest.mark.parametrize(
    "module", ["clustersim.report", "clustersim.report.plots", "clustersim.report.summary", "clustersim.report.chrome"]
)
def test_importing_the_report_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in ('matplotlib', 'pandas', 'rich', 'numpy') if name in sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.split() == []


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.unit.report.plots.test_write import written; "
        f"written(Path({str(tmp_path)!r})); print('matplotlib.pyplot' in sys.modules)"
    )

    root = Path(__file__).parents[4]
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root).stdout

    assert printed.strip() == "False"
