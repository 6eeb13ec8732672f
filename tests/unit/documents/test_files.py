"""Files of users: read with a limit, written whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.documents import files
from clustersim.documents.files import data_path, read_bytes, read_stdin, read_text, replacing, sweep_stale, write_text
from clustersim.errors import ScenarioError

LIMIT = 100


def refused(path: Path) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read_bytes(path, LIMIT)
    return caught.value


def gone() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * LIMIT)

    assert read_bytes(tmp_path / "x", LIMIT) == b"a" * LIMIT


def test_a_larger_file_is_refused_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 2_000_001)

    with pytest.raises(ScenarioError, match=r"x: is larger than 2 MB; make it short"):
        read_bytes(tmp_path / "x", 2_000_000, "make it short")


def test_a_device_behind_a_link_is_refused_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").symlink_to("/dev/zero")

    assert refused(tmp_path / "x.csv").message == "is a device, not a file"


def test_a_pipe_that_nobody_writes_into_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")

    assert refused(tmp_path / "x").message == "is a pipe, not a file"


def test_a_folder_and_a_name_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path).message == "is a directory, not a file"
    assert refused(tmp_path / ("x" * 5000)).message == "cannot be read: File name too long"
    assert refused(tmp_path / "x\0").message == "cannot be read: embedded null byte"


def test_a_missing_file_is_named_with_one_like_it(tmp_path: Path) -> None:
    (tmp_path / "load.csv").touch()

    assert refused(tmp_path / "laod.csv").hint == f"did you mean '{tmp_path / 'load.csv'}'?"
    (tmp_path / "r.html").touch()
    assert refused(tmp_path / "tt.toml").hint is None
    (tmp_path / "runs").mkdir()
    assert refused(tmp_path / "run").hint is None


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")

    with pytest.raises(ScenarioError, match="is not text in UTF-8"):
        read_text(tmp_path / "x", LIMIT)


def test_a_process_without_stdin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(ScenarioError, match="stdin: is closed"):
        read_stdin(LIMIT)


def test_a_file_that_cannot_be_written_whole_keeps_what_it_held(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("good", encoding="utf-8")

    def fill() -> None:
        with replacing(tmp_path / "x.md") as fresh:
            fresh.write_text("ha", encoding="utf-8")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fill()

    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("x.md", "good")]


def test_a_written_file_has_the_permissions_of_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "x").touch(mode=0o600)

    write_text(tmp_path / "x", "new")

    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert (tmp_path / "x").read_text(encoding="utf-8") == "new"


def test_a_link_stays_and_the_file_behind_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "x")

    write_text(tmp_path / "link", "new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x").read_text(encoding="utf-8") == "new"


def test_what_is_no_file_on_a_disk_is_written_straight_and_stays() -> None:
    write_text(Path("/dev/null"), "new")

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_full_device_and_a_folder_are_one_clear_error(tmp_path: Path) -> None:
    for path, reason in ((Path("/dev/full"), "No space left on device"), (tmp_path, "Is a directory")):
        with pytest.raises(ScenarioError, match=f"cannot write {path}: {reason}; choose another file with --out"):
            write_text(path, "new")


def test_what_a_process_that_is_gone_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    dead = gone()
    for name in (f".x.{dead}.new.md", f".x.{os.getpid()}.new.md", f".y.{dead}.new.md", ".x.new.md"):
        (tmp_path / name).touch()
    (tmp_path / f".0123abcd.{dead}.new").mkdir()

    write_text(tmp_path / "x.md", "new")
    sweep_stale(tmp_path, "[0-9a-f]{8}")

    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.new.md", f".y.{dead}.new.md", "x.md"]


@pytest.mark.parametrize("kind", ["hardware_profiles", "scenarios"])
def test_the_shipped_data_is_found(kind: str) -> None:
    assert data_path(kind).is_dir()
    assert data_path(kind).name == kind


def test_the_data_of_an_installed_wheel_comes_before_that_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "clustersim"
    (tmp_path / "scenarios").mkdir()
    package.mkdir()
    monkeypatch.setattr(files, "_PACKAGE", package)

    in_checkout = data_path("scenarios")
    (package / "_data" / "scenarios").mkdir(parents=True)

    assert in_checkout == tmp_path / "scenarios"
    assert data_path("scenarios") == package / "_data" / "scenarios"
