"""Report of an import: what became of every key of the files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from clustersim.apps.importing.imported_settings import How, Key
from clustersim.apps.importing.importing import Imported
from clustersim.config.yaml_text import flat_text
from clustersim.documents.text import Data
from clustersim.errors import Place

SECTIONS: Final[tuple[tuple[How, str], ...]] = (
    ("read", "Read"),
    ("not_modelled", "Not modelled"),
    ("unknown", "Unknown"),
    ("given", "Given on the command line"),
    ("derived", "Derived"),
    ("default", "Defaults of the framework"),
)
_PROGRAMS: Final = ("program", "-m")
"""Ends of what names a program, and is no key."""
_LONGEST: Final = 60
MOST_SILENT: Final = 20
"""Keys without an effect that are named."""


def document(imported: Imported) -> dict[str, Data]:
    """Return the import as ``--json`` writes it."""
    keys: list[Data] = [
        {"key": key.key, "file": key.file, "line": key.line, "how": key.how, "to": key.to, "value": key.value, "note": key.note}
        for key in imported.keys
    ]
    measured = imported.measured
    found: dict[str, Data] = {"framework": imported.framework, "scenario": imported.data, "keys": keys}
    if measured is not None:
        found["measured"] = {"step_time_s": measured.step_time_s, "steps": measured.n_steps}
    return found


def lines(imported: Imported) -> Iterator[str]:
    """Yield the report, one section for each treatment of keys."""
    yield f"{' and '.join(imported.files)}: {imported.title}"
    for how, title in SECTIONS:
        keys = [key for key in imported.keys if key.how == how]
        if keys:
            yield ""
            # A machine has no framework.
            yield "Assumed:" if how == "default" and imported.scenario is None else f"{title}:"
            yield from _rows(keys, many=len(imported.files) > 1)
    without = [key for key in imported.keys if key.how == "no_effect" and key.key.rpartition(".")[2] not in _PROGRAMS]
    told = {key.key: f" ({key.note})" for key in without if key.note and key.value not in (None, "", [], {})}
    silent = [f"{key}{note}" for key, note in (told | {key.key: "" for key in without if key.key not in told}).items()]
    if silent:
        yield ""
        more = f" and {len(silent) - MOST_SILENT} more (--json)" if len(silent) > MOST_SILENT else ""
        yield f"{len(silent)} {'key has' if len(silent) == 1 else 'keys have'} no effect on the prediction:"
        yield from textwrap.wrap(
            f"{', '.join(silent[:MOST_SILENT])}{more}", 98, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    yield from measured_lines(imported)


def measured_lines(imported: Imported) -> Iterator[str]:
    """Yield the step time that a log reports."""
    if imported.measured is not None:
        median = f"{imported.measured.step_time_s:.4g} s a step, the median of {imported.measured.n_steps} reports after the first"
        yield f"The log says {median}."


def summary(imported: Imported) -> Iterator[str]:
    """Yield a short report, for commands that read a file of a framework in passing."""
    counts = {how: sum(key.how == how for key in imported.keys) for how in ("read", "not_modelled", "unknown")}
    files = " ".join(imported.files)
    yield (
        f"read as {imported.title}: {counts['read']} keys read, {counts['not_modelled']} not modelled, {counts['unknown']} unknown;"
        f" clustersim import {files} tells each"
    )
    yield from (f"not modelled: {key.key}: {key.note}" for key in imported.keys if key.how == "not_modelled")
    yield from measured_lines(imported)


def _rows(keys: Sequence[Key], *, many: bool) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for key in keys:
        where = str(Place(file=key.file, line=key.line)) if many and key.file else str(key.line or "")
        own = key.to is None or key.to == key.key
        rows.append(
            (where, key.key, "" if own or key.to is None or key.to.startswith("job.") else key.to, _short(key.value), key.note or "")
        )
    widths = [min(_LONGEST, max(len(row[column]) for row in rows)) for column in range(4)]
    padded = (zip(row, (*widths, 0), strict=True) for row in rows)
    return ["  " + "  ".join(cell.ljust(width) for cell, width in row if width or cell).rstrip() for row in padded]


def _short(value: Data) -> str:
    text = flat_text(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
