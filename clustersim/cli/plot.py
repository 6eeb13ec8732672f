"""``clustersim plot``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clustersim.apps.plot.plots import FORMATS, draw_plot
from clustersim.cli.terminal import notice, write_json
from clustersim.cli.watching import watched
from clustersim.documents.files import check_folder
from clustersim.errors import EXIT_OK, ScenarioError
from clustersim.progress import phase

if TYPE_CHECKING:
    from clustersim.apps.plot.plots import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotOptions:
    """The options of ``plot``."""

    overrides: tuple[str, ...]
    out: str | None
    seed: int
    jobs: int | None
    """Processes; None for one for each processor."""
    as_json: bool


def plot_command(kind: str, sources: tuple[str, ...], options: PlotOptions) -> int:
    """Draw a picture, write it, and return the exit code."""
    path = _file(kind, options.out)
    with watched():
        with phase("draw"):
            axes = draw_plot(kind, sources, options.overrides, seed=options.seed, jobs=options.jobs)
        with phase("write"):
            title = _write(axes, path)
    if options.as_json:
        write_json({"kind": kind, "file": str(path), "title": title})
    notice(f"wrote {path}")
    return EXIT_OK


def _file(kind: str, out: str | None) -> Path:
    """Return the file to write; before anything is simulated."""
    path = Path(out or f"{kind}.png")
    if path.suffix.lower() not in FORMATS:
        raise ScenarioError(f"'{path}' does not say its format", hint=f"name a file that ends in {' or '.join(FORMATS)}")
    check_folder(path)
    return path


def _write(axes: Axes, path: Path) -> str:
    from clustersim.report.plots.canvas import save, style, title_of

    try:
        with style():
            save(axes, path)
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror or error}", hint="choose another file with --out") from error
    return title_of(axes)
