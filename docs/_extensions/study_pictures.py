"""Draw the pictures of the studies when the documentation is built."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

from clustersim.apps.study.claims import answered_question, question_titles, read_question
from clustersim.apps.study.claims_report import chart_of
from clustersim.report.plots.write import write_charts

FOLDER: Final = "_studies"


def draw_studies(app: Sphinx) -> None:
    """Draw the picture of every question that is not there yet."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name in question_titles():
        if not (folder / f"{name}.png").is_file():
            write_charts([chart_of(answered_question(read_question(name)))], folder)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Draw before pages are read."""
    app.connect("builder-inited", draw_studies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
