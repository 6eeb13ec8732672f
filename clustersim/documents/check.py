"""Check a document against a pydantic model; errors say in plain words what is wrong and where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, Union, get_args, get_origin

from clustersim.documents.form import Form, fields_of
from clustersim.documents.spots import Data
from clustersim.documents.text import Document
from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_FILLING: Final = ("", "model", "size", "degree")
"""Words of long names that short ones leave out."""
_SLIP: Final = 0.9
"""Least likeness of a word to a choice that is one slip away, where first letters are another choice."""
_LEAST_LETTERS: Final = 3
"""Letters from which on a choice that begins so is the nearest."""

M = TypeVar("M", bound="BaseModel")
Loc = tuple[str | int, ...]

_WRONG_SHAPE: Final[Mapping[str, str]] = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "dataclass_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
}
_BRACKETED: Final[Mapping[str, tuple[type, ...]]] = {"list_type": (str, int), "tuple_type": (str,)}
"""Values that may be the only item of a list; a number in place of a tuple may stand for a pair."""
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_LONGEST_VALUE: Final = 60
_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
_NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._-]"
_MOST_PLACES: Final = 3
"""Places of a field that a hint names."""
_CLOSE: Final = 0.8
"""Least likeness of a name elsewhere to one that was written."""
_DEEPEST: Final = 4
"""Levels of a document in which a field is looked for."""
_UNIONS: Final[tuple[object, ...]] = (Union, UnionType, Annotated)
_LISTS: Final[tuple[object, ...]] = (list, tuple, Sequence)
_MAPPINGS: Final[tuple[object, ...]] = (dict, Mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mistake:
    """One pydantic error, its place in the document, and our words for it."""

    path: Loc
    at_key: bool
    kind: str
    message: str
    hint: str | None
    expected: str | None = None
    """Name of the expected kind, where the value is simply of another kind."""


def did_you_mean(word: str, choices: Iterable[str], alike: float = 0.6) -> str | None:
    """Return ``did you mean 'tensor'?`` for the nearest choice, or None when none is alike to a share of its letters."""
    known = list(choices)
    begun = sorted((choice for choice in known if len(word) >= _LEAST_LETTERS and choice.startswith(word)), key=len)
    likeness = max(alike, _SLIP) if (short := _initials(word, known)) else alike
    close = begun[:1] or difflib.get_close_matches(word, known, n=1, cutoff=likeness) or [short] * bool(short)
    if not close:
        folded = {choice.lower().replace("-", "_"): choice for choice in known}
        close = [folded[match] for match in difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), n=1, cutoff=alike)]
    return f"did you mean '{close[0]}'?" if close else None


def _initials(word: str, choices: Iterable[str]) -> str:
    """Return the choice of the first letters of words, such as tp for tensor_model_parallel_size; empty where there is none."""
    parts = (part for part in re.split(r"[-_ ]", word.lower()) if part not in _FILLING)
    short = "".join(part[:1] for part in parts)
    return short if len(short) > 1 and short in choices else ""


def field_meant(model: type[BaseModel], word: str) -> str | None:
    """Return the dotted path of the field that a word names, whole or by its first letters; None where none or several are."""
    known = _paths_by_name(model)
    paths = known.get(word) or known.get(_initials(word, known), ())
    return paths[0] if len(paths) == 1 else None


def choices_hint(word: str, choices: Iterable[str], longest: int = 12) -> str:
    """Return a hint with the nearest choice if there is one, and else the choices themselves."""
    known = list(choices)
    near = did_you_mean(word, known)
    if near is not None:
        return near
    return f"use one of {', '.join(known[:longest])}" + (", ..." if len(known) > longest else "")


def validate_document(model: type[M], document: Document) -> M:
    """Return the document as a checked model."""
    return validate_part(model, document.data, document, ())


def validate_part(model: type[M], part: object, document: Document, at: Sequence[str | int]) -> M:
    """Return some data as a checked model, with the places of a path in a document.

    For data that is not exactly what the document holds there, such as a mapping without the keys that others read.

    Raises
    ------
    ScenarioError
        As :func:`validate_document`.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(part)
    except ScenarioError as error:
        raise located(error, document, at) from error
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise _first(model, details, document, tuple(at)) from error


def located(error: ScenarioError, document: Document, at: Sequence[str | int] = ()) -> ScenarioError:
    """Return the error with its place found from its dotted field, and the field counted from the top."""
    path = _path_of(error.field, value_at(document.data, at))
    field = ".".join(str(part) for part in (*at, *path)) or error.field
    place = error.place or document.place((*at, *path))
    return ScenarioError(error.message, field=field, hint=error.hint, place=place)


def _first(model: type[BaseModel], details: Sequence[ErrorDetails], document: Document, at: Loc) -> ScenarioError:
    part = value_at(document.data, at)
    mistakes = _without_other_branches([_mistake(detail, part) for detail in details])

    def order(mistake: _Mistake) -> tuple[bool, int, int]:
        place = document.place((*at, *mistake.path), key=mistake.at_key)
        # A field is often missing because its name is misspelt, and the misspelt one tells more.
        return mistake.kind == "missing", place.line or 0, place.column or 0

    first = min(mistakes, key=order)
    field = ".".join(str(part) for part in (*at, *first.path))
    place = document.place((*at, *first.path), key=first.at_key)
    # Only for the one that is shown: looking for the nearest of many names takes its time.
    hint = _field_hint(model, first.path, at) if first.kind in _UNKNOWN else first.hint
    return ScenarioError(first.message, field=field or None, hint=hint, place=place)


def _without_other_branches(mistakes: Sequence[_Mistake]) -> list[_Mistake]:
    """Keep, of the errors that a union reports for each of its branches, the ones that help.

    A branch that got further into the value is the one that was meant; branches that failed at the same place are joined.
    """
    kept: list[_Mistake] = []
    at: dict[Loc, list[_Mistake]] = {}
    for mistake in mistakes:
        at.setdefault(mistake.path, []).append(mistake)
    above = {path[:depth] for path in at for depth in range(len(path))}
    for path, here in at.items():
        deeper = path in above
        wrong_kind = [mistake for mistake in here if mistake.expected is not None]
        # A tuple is also too short without the items that are wrong.
        telling = [mistake for mistake in here if mistake.expected is None and not (deeper and mistake.kind == "too_short")]
        if telling:
            kept.extend(telling)
        elif wrong_kind and not deeper:
            kept.append(_joined(wrong_kind))
    return kept


def _joined(mistakes: Sequence[_Mistake]) -> _Mistake:
    first = mistakes[0]
    expected = list(dict.fromkeys(mistake.expected or "" for mistake in mistakes))
    if len(expected) == 1:
        return first
    shown = first.message.split(" is not ", maxsplit=1)[0]
    # Brackets are for a value that may be an item, and a list beside a number holds something else.
    numbers = any(mistake.kind.startswith(("int_", "float_")) for mistake in mistakes)
    hint = next((mistake.hint for mistake in mistakes if mistake.hint and not (numbers and mistake.kind in _BRACKETED)), None)
    return _Mistake(path=first.path, at_key=False, kind=first.kind, message=f"{shown} is not {' or '.join(expected)}", hint=hint)


def _mistake(detail: ErrorDetails, data: Data) -> _Mistake:
    kind = detail["type"]
    path, at_key = _clean(detail["loc"], data, missing=kind == "missing")
    context: Mapping[str, object] = detail.get("ctx", {})
    value: object = detail["input"]
    message, hint, expected = detail["msg"].replace("Tuple", "List"), None, None
    if kind in _UNKNOWN:
        message, at_key = f"unknown field '{path[-1]}'", True
    elif kind == "missing":
        message, hint = f"'{path[-1]}' is missing", f"add '{path[-1]}: ...'"
    elif kind in {"literal_error", "enum"}:
        choices = [choice.strip("'") for choice in str(context.get("expected", "")).replace(" or ", ", ").split(", ")]
        expected = ", ".join(choices) if len(choices) == 1 else f"one of {', '.join(choices)}"
        message, hint = f"{_show(value)} is not {expected}", did_you_mean(str(value), choices)
    elif kind in _WRONG_SHAPE:
        expected = _WRONG_SHAPE[kind]
        message = f"{_show(value)} is not {expected}"
        hint = _shape_hint(kind, value)
    elif kind in _LIMITS:
        words, limit = _LIMITS[kind]
        message, hint = f"{_show(value)} is out of range", f"write a number that is {words} {context.get(limit)}"
    elif "message" in context:
        message, hint = str(context["message"]), str(context.get("hint") or "") or None
    elif kind == "string_pattern_mismatch":
        message = f"{_show(value)} does not have the form {context.get('pattern')}"
        if str(context.get("pattern")).startswith(_NAME):
            hint = "use letters, digits, dots, hyphens and underscores, a letter or digit first"
    elif kind == "value_error":
        message = str(context.get("error", message))
    else:
        message = f"{_show(value)}: {message[:1].lower()}{message[1:]}"
    return _Mistake(path=path, at_key=at_key, kind=kind, message=message, hint=hint, expected=expected)


def _shape_hint(kind: str, value: object) -> str | None:
    """Return how a value of another kind would be written, where it could have been meant."""
    if isinstance(value, _BRACKETED.get(kind, ())) and not isinstance(value, bool):
        return f"write it in brackets: [{value}]"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        return f"write {value:.0f}"
    if kind.startswith("int_") and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    return None


def _clean(loc: Loc, data: Data, *, missing: bool) -> tuple[Loc, bool]:
    """Return the part of pydantic's location that exists in the document; the rest names branches of unions."""
    path: list[str | int] = []
    at_key = False
    here = data
    for index, part in enumerate(loc):
        if isinstance(here, dict) and part in here:
            here = here[str(part)]
            path.append(part)
        elif isinstance(here, list) and isinstance(part, int) and 0 <= part < len(here):
            here = here[part]
            path.append(part)
        elif part == "[key]":
            at_key = True
        elif missing and index == len(loc) - 1:
            path.append(part)
    return tuple(path), at_key


def value_at(data: Data, at: Sequence[str | int]) -> Data:
    """Return the value at a path of plain data; None where there is nothing."""
    for part in at:
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _path_of(field: str | None, data: Data) -> Loc:
    path: list[str | int] = []
    for part in field.split(".") if field else ():
        step = int(part) if isinstance(data, list) and part.isdigit() else part
        path.append(step)
        data = value_at(data, (step,))
    return tuple(path)


def _show(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return str(value).lower()
    shown = f"'{value}'" if isinstance(value, str) else repr(value)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[: _LONGEST_VALUE - 3]}..."


def _field_names(model: type[BaseModel], path: Loc) -> list[str]:
    annotations: list[object] = [model]
    for part in path:
        annotations = [found for annotation in annotations for found in _below(annotation, part)]
    owners = [found for annotation in annotations for found in _owners_in(annotation)]
    return list(dict.fromkeys(name for owner in owners for names, _ in _fields(owner) for name in names))


def _field_hint(model: type[BaseModel], path: Loc, at: Loc) -> str:
    """Return what was meant by an unknown field: one of that name elsewhere, else the nearest beside it, else the nearest of all."""
    key, known = str(path[-1]), _paths_by_name(model)
    elsewhere = known.get(key, ())
    if not 0 < len(elsewhere) <= _MOST_PLACES:
        beside = _field_names(model, path[:-1])
        nearest = [short] if (short := _initials(key, known)) else difflib.get_close_matches(key, known, n=1, cutoff=_CLOSE)
        close = [] if did_you_mean(key, beside) else nearest
        elsewhere = known[close[0]] if close and len(known[close[0]]) == 1 else ()
        if not elsewhere:
            return choices_hint(key, beside)
    places = (".".join((*map(str, at), each)) for each in elsewhere)
    return f"did you mean {' or '.join(map(repr, places))}{' at the top' if key in elsewhere else ''}?"


@cache
def _paths_by_name(model: type[BaseModel]) -> Mapping[str, Sequence[str]]:
    """Return the dotted paths of fields by their last part: those nearest to the top, and none inside lists."""
    found: dict[str, list[str]] = {}
    waiting: list[tuple[type, tuple[str, ...]]] = [(model, ())]
    while waiting:
        owner, path = waiting.pop(0)
        for names, annotation in _fields(owner):
            for name in names:
                found.setdefault(name, []).append(".".join((*path, name)))
            if len(path) < _DEEPEST:
                waiting += [(below, (*path, names[0])) for below in _owners_in(annotation)]
    return {
        name: [path for path in dict.fromkeys(paths) if path.count(".") == min(each.count(".") for each in paths)]
        for name, paths in found.items()
    }


def _spellings(name: str, info: FieldInfo) -> list[str]:
    from pydantic import AliasChoices

    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        return [choice for choice in alias.choices if isinstance(choice, str)]
    return [alias] if isinstance(alias, str) else [name]


def _below(annotation: object, part: str | int) -> Iterator[object]:
    """Yield what may stand at a key or index below a type."""
    arguments: tuple[object, ...] = get_args(annotation)
    origin = get_origin(annotation)
    if origin in _UNIONS:
        for inner in arguments:
            yield from _below(inner, part)
    elif origin in _LISTS and isinstance(part, int):
        yield from arguments
    elif origin in _MAPPINGS:
        yield arguments[-1]
    else:
        for owner in _owners_in(annotation):
            yield from (below for names, below in _fields(owner) if part in names)


def _owners_in(annotation: object) -> Iterator[type]:
    """Yield the types with named fields that a value may have."""
    if isinstance(annotation, type):
        if _fields(annotation):
            yield annotation
    elif isinstance(annotation, Form):
        yield annotation.owner
    elif get_origin(annotation) in _UNIONS:
        for inner in get_args(annotation):
            yield from _owners_in(inner)


@cache
def _fields(owner: type) -> Sequence[tuple[Sequence[str], object]]:
    """Return the spellings and the type of each field."""
    from pydantic import BaseModel

    described = fields_of(owner)
    if not issubclass(owner, BaseModel):
        return [([key], annotation) for key, annotation in described.items()]
    fields = owner.model_fields.items()
    return [
        (_spellings(name, info), next((each for each in info.metadata if isinstance(each, Form)), info.annotation)) for name, info in fields
    ]
