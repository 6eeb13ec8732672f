"""The page that runs clustersim in a browser, with the package as an archive beside it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "_browser"
PARTS = {"clustersim": "clustersim", "hardware_profiles": "clustersim/_data/hardware_profiles", "scenarios": "clustersim/_data/scenarios"}
"""Folders of the repository, and where the package looks for them when it is installed."""
LEFT_OUT = ("__pycache__", "published")
"""Caches, and the published measurements, which no run reads."""


def write_archive(path: Path) -> None:
    """Write the package with its data; equal sources give equal bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, to in PARTS.items():
            for file in sorted((ROOT / folder).rglob("*")):
                if file.is_file() and not set(file.relative_to(ROOT).parts) & set(LEFT_OUT):
                    archive.writestr(
                        zipfile.ZipInfo(f"{to}/{file.relative_to(ROOT / folder).as_posix()}"), file.read_bytes(), zipfile.ZIP_DEFLATED
                    )


def write_page(app, error) -> None:  # noqa: ANN001 - as Sphinx calls it
    """Copy the page into the documentation that was built."""
    if error is None and app.builder.format == "html":
        target = Path(app.outdir) / "browser"
        shutil.copytree(PAGE, target, dirs_exist_ok=True)
        write_archive(target / "clustersim.zip")


def setup(app) -> dict[str, bool]:  # noqa: ANN001 - as Sphinx calls it
    """Write the page behind the others."""
    app.connect("build-finished", write_page)
    return {"parallel_read_safe": True}
