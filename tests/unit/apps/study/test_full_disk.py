"""A sweep on a disk that is really full: a small file system in memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clustersim.cli.app import main

SWEEP = ["sweep", "gpt2-dp-8xv100", "--over", "training.global_batch_size=64..1024 step 64", "--workers", "1", "--out"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a folder on a disk of a few pages, which needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)], check=False, capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_a_sweep_which_goes_on_when_there_is_room(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, elsewhere = small_disk / "sweep", tmp_path / "whole"

    assert main([*SWEEP, str(out)]) == 2
    assert "No space left on device; make room; what is finished is kept" in capsys.readouterr().err
    kept = (out / "points.jsonl").read_bytes()
    assert kept.endswith(b"}\n")
    assert kept.count(b"\n") > 1

    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert main([*SWEEP, str(out)]) == 0
    assert main([*SWEEP, str(elsewhere)]) == 0
    assert (out / "points.jsonl").read_bytes().startswith(kept)
    for name in ("points.jsonl", "results.csv"):
        assert (out / name).read_bytes() == (elsewhere / name).read_bytes()
