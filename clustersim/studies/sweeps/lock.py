"""One sweep at a time in a folder; the lock goes with the process that holds it, however that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from clustersim.errors import Place, ScenarioError

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder inside.

    Raises
    ------
    ScenarioError
        When another process holds it.
    """
    path = folder / LOCK
    if path.is_symlink() or (path.exists() and not path.is_file()):
        hint = "remove it, or choose another folder with --out"
        raise ScenarioError("is no lock but leads elsewhere, and would be written over", place=Place(file=str(path)), hint=hint)
    # O_NOFOLLOW: nor may a link take its place in the meantime.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        if not _take(handle):
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() if sys.platform != "win32" else ""
            who = f" (process {holder})" if holder else ""
            raise ScenarioError(
                f"another sweep{who} writes into {folder} now", hint="wait until it has ended, or choose another folder with --out"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
        # The file stays: removing it would let a third process lock one that nobody sees any more.
    finally:
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _take(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
