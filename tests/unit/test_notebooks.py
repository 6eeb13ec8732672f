"""The notebooks of the documentation run from top to bottom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
EXECUTE: Final = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def executed(path: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook after they have run in a process of their own, which finds this package."""
    done = folder / path.name
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "JUPYTER_PLATFORM_DIRS": "1"}
    subprocess.run([sys.executable, "-c", EXECUTE, str(path), str(done)], check=True, cwd=folder, env=environment, capture_output=True)
    return [cell for cell in json.loads(done.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_and_says_something(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="nbclient is not installed: notebooks are not executed")

    cells = executed(path, tmp_path)

    assert len(cells) > 4
    assert all(cell["outputs"] for cell in cells)
    shown = {kind for cell in cells for output in cell["outputs"] for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_their_output(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
