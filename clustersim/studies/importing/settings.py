"""Settings from the keys of files, by the table of their framework; every key gets a line in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal

from clustersim.documents.check import did_you_mean
from clustersim.documents.spots import Data, Scalar
from clustersim.errors import Place
from clustersim.studies.importing.entries import Contents, Entry
from clustersim.studies.importing.interpolation import is_open
from clustersim.studies.importing.table import Default, Row, Table, Value, canonical
from clustersim.studies.importing.transforms import TRANSFORMS, UnreadableError, truth

How = Literal["read", "given", "default", "derived", "not_modelled", "no_effect", "unknown"]

_LEFT_OPEN: Final = ("auto", "default", "")
"""Values that leave a choice to the framework."""
_FIRST_FIELDS: Final = ("model", "model.", "training.", "strategy.", "cluster.", "steps", "reliability.")
"""Beginnings of keys that stand in a scenario; others are facts that it is derived from."""
_ALWAYS_SILENT: Final = ("env.", "other_command.", "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One line of the report."""

    key: str
    how: How
    file: str | None = None
    line: int | None = None
    to: str | None = None
    value: Data = None
    """Value of the scenario; that of the file where there is none."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of the scenario, or a fact that some follow from."""

    value: Data
    how: How
    place: Place | None = None
    note: str | None = None


@dataclass(slots=True)
class Draft:
    """Settings as far as they are known, and the report."""

    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    keys: list[Key] = field(default_factory=list[Key])

    def get(self, key: str) -> Data:
        """Return the value of a setting; None where it is not known."""
        found = self.settings.get(key)
        return None if found is None else found.value

    def whole(self, key: str) -> int | None:
        """Return a count; None where it is not known, or no count."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def derive(self, key: str, value: Data, note: str) -> None:
        """Set what follows from other settings."""
        self.settings[key] = Setting(value=value, how="derived", note=note)

    def drop(self, *keys: str) -> None:
        """Forget settings that do not apply."""
        for key in keys:
            self.settings.pop(key, None)


def read_settings(table: Table, contents: Sequence[Contents]) -> Draft:
    """Return what files say in the words of scenarios; the last file, and the last line, of several for one key counts."""
    draft = Draft()
    of_row: dict[int, list[Entry]] = {}
    for entry in (entry for each in contents for entry in each.entries):
        number = None if entry.name.startswith(_ALWAYS_SILENT[1:2]) else table.row_of(entry.name)
        if number is None:
            draft.keys.append(_without_row(table, entry))
        else:
            of_row.setdefault(number, []).append(entry)
    n_own = len(table.file.rows)
    for number in (*range(n_own, len(table.rows)), *range(n_own)):
        row, entries = table.rows[number], of_row.get(number, [])
        if entries:
            *earlier, last = entries
            last = next((entry for entry in reversed(entries) if entry.value is not None and not is_open(entry.value)), last)
            for entry in (each for each in (*earlier, entries[-1]) if each is not last):
                draft.keys.append(_key(entry, "no_effect", note=f"given again in line {last.line}" if last.line else "given again"))
            draft.keys.append(_apply(draft, row, last))
    for number, row in enumerate(table.rows):
        if row.default is not None and number not in of_row:
            _apply_default(draft, row)
    family, flavour = draft.get("job.family"), draft.get("job.flavour")
    named = "/".join(str(each) for each in (family, flavour) if each is not None).lower()
    if named in table.file.models:
        draft.derive("model", table.file.models[named], f"{named} of {table.file.title}")
    names = {name for each in contents for entry in each.entries if entry.value is not None for name in table.names(entry.name)}
    for default in table.defaults:
        if default.to not in draft.settings and _holds(default, names, draft):
            draft.settings[default.to] = Setting(value=_data(default.value), how="default", note=default.reason)
    draft.keys.sort(key=lambda key: (key.file or "", key.line or 0))
    return draft


def _holds(default: Default, names: set[str], draft: Draft) -> bool:
    if any(canonical(key) in names for key in default.absent) or not all(canonical(key) in names for key in default.present):
        return False
    return all(draft.get(key) in values for key, values in default.where.items())


def _without_row(table: Table, entry: Entry) -> Key:
    if table.has_no_effect(entry.name) or entry.name.startswith(_ALWAYS_SILENT):
        return _key(entry, "no_effect")
    if entry.value is None or entry.value in ("", {}, []):
        return _key(entry, "no_effect", note="is empty")
    near = did_you_mean(entry.name.rpartition(".")[2], table.known)
    return _key(entry, "unknown", note=near)


def _apply(draft: Draft, row: Row, entry: Entry) -> Key:
    value = entry.value
    if value is None or (isinstance(value, str) and value.strip().lower() in _LEFT_OPEN and _mapped(row, value) is None):
        return _key(entry, "no_effect", note="is left to the framework" if value else "is not set")
    if is_open(value):
        hint = f"; give -s {row.to}=..." if _in_scenario(row.to) else ""
        return _key(entry, "unknown" if hint else "no_effect", note=f"depends on a variable that no file sets{hint}")
    try:
        found = _settings(row, value)
    except UnreadableError as error:
        return _key(entry, "unknown", to=row.to, note=f"is not {error}")
    if row.lost is not None and not _is_neutral(row, value):
        for key, each in found.items():
            draft.settings[key] = Setting(value=each, how="read", place=entry.place, note=row.note)
        return _key(entry, "not_modelled", to=next(iter(found), None), note=row.lost)
    if not found:
        return _key(entry, "no_effect" if row.to is None else "read", note=row.note)
    for key, each in found.items():
        was = draft.settings.get(key)
        keeps = row.either and was is not None and was.value is True
        if not keeps:
            draft.settings[key] = Setting(value=each, how="read", place=entry.place, note=row.note)
    first, shown = next(iter(found.items()))
    return _key(entry, "read", to=first, value=shown, note=row.note)


def _apply_default(draft: Draft, row: Row) -> None:
    for key, value in _settings(row, row.default).items():
        if key not in draft.settings:
            draft.settings[key] = Setting(value=value, how="default", note=row.note or f"{row.keys[-1]} is {_shown(row.default)} there")


def _settings(row: Row, value: Data) -> dict[str, Data]:
    """Return what a value means.

    Raises
    ------
    UnreadableError
        When it is none of those that the row knows.
    """
    if row.values is not None and row.transform != "same":
        value = TRANSFORMS[row.transform](value)
    if row.values is not None and isinstance(value, list) and row.to is not None:
        mapped_items = [item for each in value for item in [_mapped(row, each)] if item is not None]
        if len(mapped_items) < len(value):
            raise UnreadableError(f"a list of {', '.join(row.values)}")
        items: list[Data] = [item for (item,) in mapped_items if isinstance(item, str | int | float)]
        return {row.to: items}
    if row.values is not None:
        found = _mapped(row, value)
        if found is None:
            raise UnreadableError(f"one of {', '.join(row.values)}")
        (mapped,) = found
        if isinstance(mapped, dict):
            return {key: _data(each) for key, each in mapped.items()}
        return {} if mapped is None or row.to is None else {row.to: _data(mapped)}
    if row.to is None:
        return {}
    read = TRANSFORMS[row.transform](value)
    return {} if read is None else {row.to: read}


def _mapped(row: Row, value: Data) -> tuple[Value | dict[str, Value]] | None:
    """Return our value for theirs, in a tuple; None where the row has none."""
    known = {key.lower(): each for key, each in (row.values or {}).items()}
    said = truth(value)
    for text in (str(value).strip().lower(), *(() if said is None else (str(said).lower(),))):
        if text in known:
            return (known[text],)
    text = str(value).strip().lower()
    return next(((each,) for key, each in known.items() if "*" in key and fnmatchcase(text, key)), None)


def _is_neutral(row: Row, value: Data) -> bool:
    texts = {str(each).lower() for each in row.unless}
    return str(value).strip().lower() in texts


def _key(entry: Entry, how: How, *, to: str | None = None, value: Data = None, note: str | None = None) -> Key:
    shown = entry.value if value is None else value
    return Key(key=entry.key, how=how, file=entry.file, line=entry.line, to=to, value=shown, note=note)


def _in_scenario(key: str | None) -> bool:
    return key is not None and key.startswith(_FIRST_FIELDS)


def in_scenario(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the settings that stand in a scenario, without the facts that they follow from."""
    return {key: each for key, each in settings.items() if _in_scenario(key)}


def _data(value: Value) -> Data:
    return [*value] if isinstance(value, list) else value


def _shown(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
