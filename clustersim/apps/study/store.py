"""Findings of a sweep so far: a line for each point in ``points.jsonl``, in the order in which they finish.

A line is written at once and whole. What a crash leaves of one is cut off when the file is opened again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from clustersim import __version__
from clustersim.apps.study.axis import canonical
from clustersim.apps.study.point import STATUSES, Base, PointOutcome, Status
from clustersim.apps.study.pools import KEPT
from clustersim.documents.files import read_bytes, replacing
from clustersim.documents.text import Data, placed_texts
from clustersim.errors import Place, ScenarioError
from clustersim.measure.deciding import bar_of
from clustersim.workloads.reading.model_spec import HUB_PREFIX

POINTS: Final = "points.jsonl"
SCHEMA_VERSION: Final = 1
_FILES: Final = (".yaml", ".yml", ".json", ".csv")
_MOST_BYTES: Final = 2 * 2**30
"""Largest file, in bytes; a hundred thousand points with all figures take a quarter of it."""
_ELSEWHERE: Final = "choose another folder with --out"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(slots=True, kw_only=True)
class Store:
    """Outcomes by the key of their points, on disk and in memory."""

    path: Path
    header: Mapping[str, Data]
    handle: int
    """Handle of the open file, at whose end lines are added."""
    found: dict[str, PointOutcome]

    def keep(self, key: str, outcome: PointOutcome) -> None:
        """Write down what came of a point."""
        _append(self.path, self.handle, _line(key, outcome))
        self.found[key] = outcome

    def arrange(self, keys: Iterable[str]) -> None:
        """Write the file anew with some points first, in order: the last thing that is done with a store.

        Then it does not matter when each point finished, and a sweep that was interrupted leaves the same file as one that was not.
        """
        order = dict.fromkeys(keys)
        rest = sorted(key for key in self.found if key not in order)
        lines = [_header_line(self.header), *(_line(key, self.found[key]) for key in (*order, *rest) if key in self.found)]
        replace_file(self.path, b"".join(lines))


@contextmanager
def opened(folder: Path, base: Base) -> Generator[Store]:
    """Open the store in a folder, with what an earlier sweep of the same scenario has left there.

    Raises
    ------
    ScenarioError
        When another sweep is at work there, the folder cannot be written, or it belongs to another scenario or version.
    """
    path, header = folder / POINTS, header_of(base)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            found = _read(path, header)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                if not os.fstat(handle).st_size:
                    _append(path, handle, _header_line(header))
                yield Store(path=path, header=header, handle=handle, found=found)
            finally:
                os.close(handle)
    except OSError as error:
        raise cannot_write(folder, error) from error


def header_of(base: Base) -> dict[str, Data]:
    """Return what all outcomes in one store have in common: the version, the scenario with the files that it names, and the seed."""
    document = base.source.document
    scenario: Data = {"data": document.data, "changes": [[list(each.path), each.value] for each in base.changes], "seed": base.seed}
    files = {name: text for name in sorted({text for _, text in placed_texts(scenario)}) if (text := _digest(base.source.folder, name))}
    digest = hashlib.sha256(canonical({"scenario": scenario, "files": files}).encode()).hexdigest()
    return {"schema_version": SCHEMA_VERSION, "clustersim": __version__, "scenario": digest}


def _append(path: Path, handle: int, line: bytes) -> None:
    """Write a line at the end of a file, or nothing of it."""
    size = os.fstat(handle).st_size
    try:
        written = 0
        while written < len(line):
            # A disk that is nearly full takes a part, and says why when it is asked to take the rest.
            written += os.write(handle, line[written:])
    except OSError as error:
        os.ftruncate(handle, size)
        raise cannot_write(path, error) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    ScenarioError
        When it cannot be written; the old one is kept then.
    """
    try:
        with replacing(path) as fresh, fresh.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> ScenarioError:
    """Return the error for a file or folder that cannot be written."""
    hint = "make room" if error.errno in _FULL else "choose another folder with --out"
    return ScenarioError(f"cannot write {path}: {error.strerror or error}", hint=f"{hint}; {KEPT}")


def _read(path: Path, header: Mapping[str, Data]) -> dict[str, PointOutcome]:
    """Return what a file holds, with what a crash has left of its last line cut off."""
    if not path.exists():
        return {}
    raw = read_bytes(path, _MOST_BYTES, _ELSEWHERE)
    whole = raw.rfind(b"\n") + 1
    lines = raw[:whole].decode("utf-8", "replace").splitlines()
    if not lines and not _header_line(header).startswith(raw):
        raise ScenarioError("is not the beginning of a sweep", place=Place(file=str(path)), hint=_ELSEWHERE)
    found: dict[str, PointOutcome] = {}
    for number, line in enumerate(lines, 1):
        place = Place(file=str(path), line=number)
        try:
            record: Data = json.loads(line)
        except ValueError as error:
            raise ScenarioError("is not a line of a sweep", place=place, hint=_ELSEWHERE) from error
        if number == 1:
            _check_header(record, header, place)
        else:
            key, found[key] = _outcome(record, place)
    if whole < len(raw):
        # Only now: what is no sweep of ours is left as it is.
        os.truncate(path, whole)
    return found


def _check_header(record: Data, header: Mapping[str, Data], place: Place) -> None:
    if not isinstance(record, dict) or "clustersim" not in record:
        raise ScenarioError("is not the beginning of a sweep", place=place, hint=_ELSEWHERE)
    advice = "choose another folder with --out, or remove this one"
    if (record["clustersim"], record.get("schema_version")) != (header["clustersim"], header["schema_version"]):
        message = f"was written by clustersim {record['clustersim']}, and this is clustersim {header['clustersim']}"
        if record["clustersim"] == header["clustersim"]:
            message = f"is of schema version {record.get('schema_version')}, and this is version {header['schema_version']}"
        raise ScenarioError(f"{message}: their figures do not belong together", place=place, hint=advice)
    if record.get("scenario") != header["scenario"]:
        raise ScenarioError("belongs to another scenario, or to this one before it was changed", place=place, hint=advice)


def _outcome(record: Data, place: Place) -> tuple[str, PointOutcome]:
    if isinstance(record, dict):
        status, figures, reason, digits = (record.get(name) for name in ("status", "figures", "reason", "scenario_hash"))
        known: Status | None = next((each for each in STATUSES if each == status), None)
        if known and isinstance(figures, dict) and isinstance(reason, str) and isinstance(digits, str):
            numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
            bar = bar_of(record.get("error_bar"))
            # Older lines have none.
            software = str(record.get("software", ""))
            kept = PointOutcome(status=known, reason=reason, scenario_hash=digits, figures=numbers, bar=bar, software=software)
            return canonical(record.get("point")), kept
    raise ScenarioError("is not a line of a sweep", place=place, hint=_ELSEWHERE)


def _header_line(header: Mapping[str, Data]) -> bytes:
    return (json.dumps(header) + "\n").encode()


def _line(key: str, outcome: PointOutcome) -> bytes:
    record = {
        "point": json.loads(key),
        "status": outcome.status,
        "reason": outcome.reason,
        "scenario_hash": outcome.scenario_hash,
        "figures": dict(outcome.figures),
        "error_bar": None if outcome.bar is None else asdict(outcome.bar),
        "software": outcome.software,
    }
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _digest(folder: Path, name: str) -> str | None:
    """Return the digest of a file that a scenario names; None where a text is no file."""
    if not name.removeprefix(HUB_PREFIX).endswith(_FILES):
        return None
    try:
        return hashlib.sha256(read_bytes(folder / name.removeprefix(HUB_PREFIX), _MOST_BYTES)).hexdigest()
    except ScenarioError:
        return None


LOCK = "lock"


@contextmanager
def _locked(folder: Path) -> Generator[None]:
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
