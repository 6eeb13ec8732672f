"""Read and write files: those of users with a limit, whole or not at all; those that ship with the package by their kind."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from clustersim.documents.near_names import did_you_mean
from clustersim.errors import Place, ScenarioError

STDIN: Final = "-"
STDIN_NAME: Final = "stdin"
MB: Final = 1_000_000
_GZIP_LEVEL: Final = 4
_MIB: Final = 2**20
_OTHER_FILE: Final = "choose another file with --out"
_LONGEST: Final = 40
"""Characters of a name that its temporary file begins with; a name may have 255 bytes."""
_STRAIGHT: Final = ("/dev/", "/proc/")
"""Folders of files that are no files on a disk, and cannot be replaced."""


def read_bytes(path: Path, most_bytes: int, hint: str | None = None) -> bytes:
    """Return the content of a file that a user names.

    Parameters
    ----------
    most_bytes
        Larger files are refused, and no more of them is read.
    hint
        What would be right, for most of the errors.

    Raises
    ------
    ScenarioError
        When there is no such file, it is no regular one (a folder, a pipe, a device, also behind a link), it is too large, or it may not
        be read.
    """
    place = Place(file=str(path))
    try:
        # Without O_NONBLOCK a pipe that nobody writes into would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as stream:
            kind = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(kind):
                raise ScenarioError(f"is {_kind(kind)}, not a file", place=place, hint=hint or "name a file")
            raw = stream.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise ScenarioError("no such file", place=place, hint=_nearby(path)) from error
    except IsADirectoryError as error:
        raise ScenarioError("is a directory, not a file", place=place, hint=hint or "name a file") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        meant = "give yourself the right to read it" if isinstance(error, PermissionError) else hint
        raise ScenarioError(f"cannot be read: {reason or error}", place=place, hint=meant) from error
    check_size(raw, most_bytes, place, hint)
    return raw


def read_text(path: Path, most_bytes: int, hint: str | None = None) -> str:
    """Return the text of a file that a user names, without the byte order mark; see :func:`read_bytes`."""
    return text_of(read_bytes(path, most_bytes, hint), str(path), hint)


def read_stdin(most_bytes: int, name: str = STDIN_NAME, hint: str | None = None) -> bytes:
    """Return what comes in on stdin.

    Raises
    ------
    ScenarioError
        When it is closed, cannot be read, or brings too much.
    """
    place = Place(file=name)
    if sys.stdin is None:
        raise ScenarioError("is closed, and was to be read", place=place, hint="name a file, or write into the command with |")
    try:
        raw = sys.stdin.buffer.read(most_bytes + 1)
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror or error}", place=place, hint=hint) from error
    check_size(raw, most_bytes, place, hint)
    return raw


def text_of(raw: bytes, name: str, hint: str | None = None) -> str:
    """Return bytes as text, without the byte order mark.

    Raises
    ------
    ScenarioError
        When they are not UTF-8.
    """
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError("is not text in UTF-8", place=Place(file=name), hint=hint) from error


def check_folder(path: Path, *, hint: str = _OTHER_FILE, field: str | None = None) -> None:
    """Refuse a file whose folder does not exist, before anything is simulated for it.

    Raises
    ------
    ScenarioError
        Says which file.
    """
    if not path.parent.is_dir():
        raise ScenarioError(f"cannot write {path}: its folder does not exist", field=field, hint=hint)


def write_text(path: Path, text: str, *, hint: str = _OTHER_FILE, field: str | None = None) -> None:
    """Write text into a file that a user names, whole or not at all.

    Raises
    ------
    ScenarioError
        When it cannot be written; an earlier file is kept then.
    """
    try:
        with replacing(path) as fresh:
            fresh.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ScenarioError(f"cannot write {path}: {error.strerror or error}", field=field, hint=hint) from error


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yield a new file beside another, of the same suffix, which replaces it at the end, or is removed on an error.

    What is no file on a disk, such as ``/dev/stdout``, is written straight. A link keeps its place, and the file behind it is replaced.

    Raises
    ------
    OSError
        When there is a folder in its place, or it may not be written.
    """
    if str(path).startswith(_STRAIGHT) or (path.exists() and not path.is_file() and not path.is_dir()):
        yield path
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory", str(path))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    fresh = beside(target, "new")
    sweep_stale(target.parent, re.escape(_short(target)), target.suffix)
    try:
        yield fresh
        if target.exists():
            fresh.chmod(stat.S_IMODE(target.stat().st_mode))
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def replacing_bytes(path: Path) -> Generator[BufferedIOBase]:
    """Yield a stream into a new file as :func:`replacing` does, compressed if the name ends in ``.gz``: equal content gives equal bytes."""
    import gzip

    with replacing(path) as fresh, fresh.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # No name and no time in the header.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=_GZIP_LEVEL, mtime=0) as packed:
            yield packed


def beside(target: Path, end: str) -> Path:
    """Return the name of the temporary file or folder of this process beside a target."""
    return target.with_name(f".{_short(target)}.{os.getpid()}.{end}{target.suffix}")


def sweep_stale(folder: Path, name: str, suffix: str = "") -> None:
    """Remove temporary files of ended processes from a folder.

    Parameters
    ----------
    name
        A regular expression of the file or folder that they wrote.
    suffix
        Of its name.
    """
    left = re.compile(rf"\.{name}\.(\d+)\.(?:new|old){re.escape(suffix)}")
    with suppress(OSError):
        for each in sorted(folder.iterdir()):
            match = left.fullmatch(each.name)
            if match is None or _runs(int(match[1])):
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if sys.platform == "win32":
        return True  # where os.kill ends a process that it is to look for
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _short(target: Path) -> str:
    return target.stem[:_LONGEST] if target.suffix else target.name[:_LONGEST]


def check_size(raw: bytes, most_bytes: int, place: Place, hint: str | None = None) -> None:
    """Refuse content above a number of bytes.

    Raises
    ------
    ScenarioError
        With the most that is read.
    """
    if len(raw) > most_bytes:
        size = f"{most_bytes // _MIB} MiB" if most_bytes % _MIB == 0 else f"{most_bytes // MB} MB"
        raise ScenarioError(f"is larger than {size}", place=place, hint=hint)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def named_file(asked: str, folder: Path, *, field: str, otherwise: str) -> Path:
    """Return a file that a scenario names: counted from its folder, or else from the working directory.

    Raises
    ------
    ScenarioError
        When there is none; its hint is the nearest name in the folder, or ``otherwise``.
    """
    found = next((path for path in (folder / asked, Path(asked)) if path.is_file()), None)
    if found is None:
        beside = sorted(path.name for path in (folder / asked).parent.glob("*.*"))
        hint = did_you_mean(Path(asked).name, beside) or otherwise
        raise ScenarioError(f"there is no file '{asked}'", field=field, hint=hint)
    return found


def _nearby(path: Path) -> str | None:
    try:
        files = [item for item in path.parent.iterdir() if item.is_file() or (item / "results.json").is_file()]
        names = sorted(item.name for item in files if item.suffix == path.suffix or item.stem == path.stem)
    except OSError:
        return f"the directory {path.parent} does not exist"
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean '{path.with_name(close[0])}'?" if close else None


_PACKAGE: Final = Path(__file__).resolve().parent.parent


def data_path(kind: str, *parts: str) -> Path:
    """Return a file or folder below ``hardware_profiles`` or ``scenarios``, in an installed wheel or in a checkout."""
    shipped = _PACKAGE / "_data" / kind
    return (shipped if shipped.is_dir() else _PACKAGE.parent / kind).joinpath(*parts)


def data_names(kind: str, folder: str) -> tuple[str, ...]:
    """Return the names of the YAML files that ship in a folder, in alphabetical order."""
    return tuple(sorted(path.stem for path in data_path(kind, folder).glob("*.yaml")))
