"""Settings from the keys of files, by the table of their framework; every key gets a line in the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from clustersim.apps.importing.entries import Contents, Entry, flattened
from clustersim.apps.importing.interpolation import is_open, is_output
from clustersim.apps.importing.table import Default, KeyRow, Value, Vocabulary, canonical
from clustersim.apps.importing.transforms import TRANSFORMS, UnreadableError, truth
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import Data, Scalar
from clustersim.errors import Place
from clustersim.units.divisors import shortened

How = Literal["read", "given", "default", "derived", "not_modelled", "no_effect", "unknown"]

_NULL: Final = "null"
"""Key of the values of a row that an empty value has a meaning of its own in."""
_LEFT_OPEN: Final = ("auto", "default", "")
"""Values that leave a choice to the framework."""
_FIRST_FIELDS: Final = ("model", "model.", "training.", "strategy.", "cluster.", "serving.", "requests.", "slo.", "steps", "reliability.")
"""Beginnings of keys that stand in a scenario; others are facts that it is derived from."""
_OTHERS: Final = ("other_command.", "router.")
"""Beginnings of the keys of commands that are not of the job."""
_ALWAYS_SILENT: Final = ("program", "argument", "image", "replicas")
OF_A_POOL: Final = ("tp", "pp", "ep", "dp", "redundant_experts", "replicas")
"""Settings of serving that each pool has its own of."""
_OF_NO_POOL: Final = tuple(f"serving.{name}" for name in OF_A_POOL)
_OF_DECODING: Final = {
    "serving.max_graph_tokens": "graphs of both pools are those of the decode pool",
    "serving.asynchronous": "both pools prepare steps as the decode pool does",
}
"""Settings that both pools have as the decode pool says or leaves them, and the loss where the prefill pool says another value."""


_MOST: Final = 2**53
"""Whole numbers below it are exact as floats."""


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
    """Known settings, and the report."""

    settings: dict[str, Setting] = field(default_factory=dict[str, Setting])
    keys: list[Key] = field(default_factory=list[Key])
    open: dict[str, str] = field(default_factory=dict[str, str])
    """Keys of files whose values depend on variables that no file sets, by the settings that they would be."""

    def get(self, key: str) -> Data:
        """Return the value of a setting; None where unknown."""
        found = self.settings.get(key)
        return None if found is None else found.value

    def whole(self, key: str) -> int | None:
        """Return a count; None where it is unknown or no count that a machine could have."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None

    def derive(self, key: str, value: Data, note: str) -> None:
        """Set what follows from other settings."""
        self.settings[key] = Setting(value=value, how="derived", note=note)

    def drop(self, *keys: str) -> None:
        """Forget settings that do not apply."""
        for key in keys:
            self.settings.pop(key, None)


def read_settings(table: Vocabulary, contents: Sequence[Contents], *, model: str | None = None) -> Draft:
    """Return what files say in the words of scenarios; the last file, and the last line, of several for one key counts.

    Parameters
    ----------
    model
        Model in place of that of the files; defaults of the framework hold for its name.
    """
    draft = Draft()
    of_row: dict[int, dict[str, list[Entry]]] = {}
    for entry in (inner for each in contents for whole in each.entries for inner in _with_inner(table, whole)):
        number = None if entry.name.startswith(_OTHERS) else table.row_of(entry.name)
        if entry.names_read:
            draft.keys.append(_key(entry, "read", note="the keys of that file are read"))
        elif is_output(entry.value) and not entry.name.startswith(_OTHERS):
            draft.keys.append(_key(entry, "unknown", note="is the output of a command, which is not run: name a file"))
        elif number is None:
            draft.keys.append(_without_row(table, entry))
        else:
            of_row.setdefault(number, {}).setdefault(table.pool_of(entry.name), []).append(entry)
    n_own = len(table.file.rows)
    for number in (*range(n_own, len(table.rows)), *range(n_own)):
        # Pools share all but their layout; of two values the decode pool's counts.
        for pool, entries in sorted(of_row.get(number, {}).items(), key=lambda each: ("", *table.file.pools).index(each[0])):
            _read_row(draft, _of_pool(table.rows[number], pool), entries, again=bool(pool))
    names = {name for each in contents for entry in each.entries if entry.value is not None for name in table.names(entry.name)}
    for default in table.defaults:
        if default.to not in draft.settings and _holds(default, names, draft, model):
            draft.settings[default.to] = Setting(value=_data(default.value), how="default", note=default.reason)
    family, flavour = draft.get("job.family"), draft.get("job.flavour")
    named = f"{family}/{flavour}" if flavour is not None else str(draft.get("model") or "").rpartition("/")[2]
    known = next((name for pattern, name in table.models.items() if fnmatchcase(named.lower(), pattern)), None)
    if known is not None or flavour is not None:
        draft.derive("model", known or f"{family}-{flavour}", f"{named} of {table.file.title}")
    draft.keys = sorted((_of_prefills(draft, key) for key in draft.keys), key=lambda key: (key.file or "", key.line or 0))
    return draft


def _with_inner(table: Vocabulary, entry: Entry) -> Iterator[Entry]:
    """Yield an entry, and of a mapping in its text the keys that the table has rows for."""
    yield entry
    if isinstance(entry.value, str) and entry.value.lstrip().startswith("{"):
        try:
            data: Data = json.loads(entry.value)
        except (RecursionError, ValueError):
            return
        for each in flattened(data, None, entry.file, entry.key):
            if table.row_of(each.name) not in (None, table.row_of(entry.name)):
                yield replace(each, line=entry.line)


def _read_row(draft: Draft, row: KeyRow, entries: Sequence[Entry], *, again: bool) -> None:
    """Add the setting of all entries of one row; of several for one key the last with a value counts."""
    alike: dict[str, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.name if row.combine or row.lost else "", []).append(entry)
    for number, each in enumerate(alike.values()):
        last = next((entry for entry in reversed(each) if not is_open(entry.value) and not _left_open(row, entry.value)), each[-1])
        told = _apply(draft, row, last, again=again or number > 0)
        for entry in (entry for entry in each if entry is not last):
            alike_value = entry.value == last.value and entry.key != last.key
            again_note = f"given again in line {last.line}" if last.line else "given again"
            same = replace(told, key=entry.key, file=entry.file, line=entry.line)
            draft.keys.append(same if alike_value else _key(entry, "no_effect", note=again_note))
        draft.keys.append(told)


def _holds(default: Default, names: set[str], draft: Draft, model: str | None) -> bool:
    def has(key: str) -> bool:
        return key in names or ("*" in key and any(fnmatchcase(name, key) for name in names))

    if any(has(canonical(key)) for key in default.absent) or not all(has(canonical(key)) for key in default.present):
        return False
    said = {key: draft.get(key) for key in default.where}
    named = {**said, "model": model} if model is not None and "model" in said else said
    return any(all(_is_one_of(each[key], values) for key, values in default.where.items()) for each in (said, named))


def _is_one_of(value: Data, values: Sequence[Scalar]) -> bool:
    if isinstance(value, str):
        return any(fnmatchcase(value.lower(), each.lower()) for each in values if isinstance(each, str))
    return value in values


def _of_pool(row: KeyRow, pool: str) -> KeyRow:
    """Return a row with the settings of a pool in place of those of a deployment."""
    if not pool:
        return row

    def renamed(key: str) -> str:
        section, _, rest = key.partition(".")
        if section == "serving" and rest in OF_A_POOL:
            return f"serving.disaggregated.{pool}.{rest}"
        return f"job.{pool}.{rest}" if section == "job" or (pool == "prefill" and key in _OF_DECODING) else key

    values = row.values
    if values is not None:
        values = {
            said: {renamed(key): each for key, each in meant.items()} if isinstance(meant, dict) else meant
            for said, meant in values.items()
        }
    return row.model_copy(update={"to": None if row.to is None else renamed(row.to), "values": values})


def _of_prefills(draft: Draft, key: Key) -> Key:
    """Return a line, with the loss where it is of no pool, or the prefill pool has another value than the decode pool, which counts."""
    if key.to in _OF_NO_POOL and any(name.startswith("serving.disaggregated.") for name in draft.settings):
        return replace(
            key, how="not_modelled", note="each pool has its own, and this is of neither: name the file in the command of its pool"
        )
    name = f"serving.{(key.to or '').removeprefix('job.prefill.')}"
    if not (key.to or "").startswith("job.prefill.") or name not in _OF_DECODING or draft.get(str(key.to)) == draft.get(name):
        return key
    return replace(key, how="not_modelled", note=_OF_DECODING[name])


def _without_row(table: Vocabulary, entry: Entry) -> Key:
    silent = entry.name.startswith(("env.", *_OTHERS)) or entry.name.rpartition(".")[2] in _ALWAYS_SILENT
    near = None if silent else table.misspelt(entry.name)
    if near is None and (silent or table.has_no_effect(entry.name)):
        return _key(entry, "no_effect")
    if entry.value is None or entry.value in ("", {}, []):
        return _key(entry, "no_effect", note="is empty")
    option = entry.key.rpartition(".")[2]
    meant = near or next(filter(None, (did_you_mean(entry.name.rpartition(".")[2], names) for names in table.known)), None)
    if meant and option.startswith("--"):
        word = meant.split("'")[1].rpartition(".")[2]
        dashes = table.file.options_with_dashes or "_" not in option
        meant = f"did you mean '--{word.replace('_', '-') if dashes else word}'?"
    return _key(entry, "unknown", note=meant)


def _apply(draft: Draft, row: KeyRow, entry: Entry, *, again: bool = False) -> Key:
    value = entry.value
    if not all(_is_one_of(draft.get(key), values) for key, values in row.where.items()):
        return _key(entry, "no_effect", note="does not count with the other keys")
    if _left_open(row, value):
        return _key(entry, "no_effect", note="is left to the framework" if value else "is not set")
    if is_open(value) and ("/" not in str(value) or _mapped(row, value) is None):
        if row.to is not None and _in_scenario(row.to):
            draft.open[row.to] = f"{entry.key} {shortened(str(value), 40)}"
        hint = f"; give -s {row.to}=..." if _in_scenario(row.to) else ""
        return _key(
            entry, "unknown" if hint else "no_effect", note=f"depends on a variable that no file sets, {shortened(str(value), 40)}{hint}"
        )
    try:
        found = _settings(row, value)
    except UnreadableError as error:
        return _key(entry, "unknown", to=row.to, note=f"is not {error}")
    for key, each in found.items():
        was = draft.get(key)
        if not (row.either and was is True):
            together = _combined(row, was, each) if again else each
            draft.settings[key] = Setting(value=together, how="read", place=entry.place, note=row.note)
    first, shown = next(iter(found.items()), (None, None))
    if row.lost is not None and not _is_neutral(row, value):
        return _key(entry, "not_modelled", to=first, note=row.lost)
    how: How = "no_effect" if first is None and row.to is None else "read"
    return _key(entry, how, to=first, value=shown if len(found) == 1 or _in_scenario(first) else None, note=row.note)


def _left_open(row: KeyRow, value: Data) -> bool:
    if value is None or value in ([], {}):
        return _NULL not in (row.values or {})
    return isinstance(value, str) and value.strip().lower() in _LEFT_OPEN and _mapped(row, value) is None


def _combined(row: KeyRow, was: Data, value: Data) -> Data:
    """Return the value of two keys together; one of -1 leaves the product to the framework."""
    if row.combine is None or not isinstance(was, int) or not isinstance(value, int):
        return value
    return max(was, value) if row.combine == "largest" else -1 if min(was, value) < 0 else was * value


def _settings(row: KeyRow, value: Data) -> dict[str, Data]:
    """Return the meaning of a value.

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
        # A star stands for the text itself.
        (mapped,) = (_text(value),) if found == ("*",) else found
        if isinstance(mapped, dict):
            return {key: str(value).strip() if each == "*" else _data(each) for key, each in mapped.items()}
        return {} if mapped is None or row.to is None else {row.to: _data(mapped)}
    if row.to is None:
        return {}
    read = TRANSFORMS[row.transform](value)
    return {} if read is None else {row.to: read}


def _mapped(row: KeyRow, value: Data) -> tuple[Value | dict[str, Value]] | None:
    """Return our value for theirs, in a tuple; None where the row has none."""
    known = {key.lower(): each for key, each in (row.values or {}).items()}
    said = truth(value)
    for text in (_text(value), *(() if said is None else (str(said).lower(),))):
        if text in known:
            return (known[text],)
    text = _text(value)
    return next(((each,) for key, each in known.items() if "*" in key and fnmatchcase(text, key)), None)


def _text(value: Data) -> str:
    return _NULL if value is None else str(value).strip().lower()


def _is_neutral(row: KeyRow, value: Data) -> bool:
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
