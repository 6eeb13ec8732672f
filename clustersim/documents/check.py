"""Check a document against a pydantic model; errors say in plain words what is wrong and where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from clustersim.documents.field_names import field_hint, missing_hint
from clustersim.documents.near_names import did_you_mean
from clustersim.documents.text import IN_BRACES, Data, Document
from clustersim.errors import ScenarioError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


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
_MOST_TOLD: Final = 10
"""Mistakes of a document that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mistake:
    """One pydantic error, its place in the document, and our words for it."""

    loc: Loc
    """Place by pydantic, with the branches of unions in it."""
    path: Loc
    at_key: bool
    kind: str
    message: str
    hint: str | None
    expected: str | None = None
    """Name of the expected kind, where the value is simply of another kind."""


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
        raise _joint(model, error.errors(include_url=False), document, tuple(at)) from error


def located(error: ScenarioError, document: Document, at: Sequence[str | int] = ()) -> ScenarioError:
    """Return the error with its place found from its dotted field, and the field counted from the top."""
    path = _path_of(error.field, value_at(document.data, at))
    field = ".".join(str(part) for part in (*at, *path)) or error.field
    place = error.place or document.place((*at, *path))
    further = [located(each, document, at) for each in error.further]
    return ScenarioError(error.message, field=field, hint=error.hint, place=place).beside(further)


def _joint(model: type[BaseModel], details: Sequence[ErrorDetails], document: Document, at: Loc) -> ScenarioError:
    """Return the first mistake in the document, with those after it."""
    part = value_at(document.data, at)
    mistakes = _without_other_branches([_mistake(detail, part, in_json=document.in_json) for detail in details])
    unknown = [mistake.path for mistake in mistakes if mistake.kind in _UNKNOWN]

    def order(mistake: _Mistake) -> tuple[bool, int, int]:
        place = document.place((*at, *mistake.path), key=mistake.at_key)
        return mistake.kind == "missing", place.line or 0, place.column or 0

    def error(mistake: _Mistake) -> ScenarioError:
        field = ".".join(str(part) for part in (*at, *mistake.path))
        place = document.place((*at, *mistake.path), key=mistake.at_key)
        # Only for those that are shown: looking for the nearest of many names takes its time.
        hint = field_hint(model, mistake.path, at) if mistake.kind in _UNKNOWN else mistake.hint
        hint = missing_hint(model, mistake.path, in_json=document.in_json) if mistake.kind == "missing" else hint
        return ScenarioError(mistake.message, field=field or None, hint=hint, place=place)

    def misspelt(mistake: _Mistake) -> bool:
        return any(did_you_mean(str(path[-1]), [str(mistake.path[-1])]) for path in unknown if path[:-1] == mistake.path[:-1])

    told: list[_Mistake] = []
    for mistake in sorted(mistakes, key=order):
        # A field is often missing because its name is misspelt, and the misspelt one tells more.
        if not (mistake.kind == "missing" and misspelt(mistake)) and not any(_alternatives(mistake, other) for other in told[:_MOST_TOLD]):
            told.append(mistake)
    untold = [ScenarioError(f"{len(told) - _MOST_TOLD} further mistakes are not shown")] if len(told) > _MOST_TOLD else []
    first, *others = [*map(error, told[:_MOST_TOLD]), *untold]
    return first.beside(others)


def _alternatives(one: _Mistake, other: _Mistake) -> bool:
    """Return whether two mistakes are of two branches of one union, of which a value can have one only."""
    parted = next(((mine, theirs) for mine, theirs in zip(one.loc, other.loc, strict=False) if mine != theirs), None)
    return one.loc == other.loc or (parted is not None and parted[0] not in one.path and parted[1] not in other.path)


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
    value = first.message.split(" is not ", maxsplit=1)[0]
    # Brackets are for a value that may be an item, and a list beside a number holds something else.
    numbers = any(mistake.kind.startswith(("int_", "float_")) for mistake in mistakes)
    hint = next((mistake.hint for mistake in mistakes if mistake.hint and not (numbers and mistake.kind in _BRACKETED)), None)
    return replace(first, at_key=False, message=f"{value} is not {' or '.join(expected)}", hint=hint, expected=None)


def _mistake(detail: ErrorDetails, data: Data, *, in_json: bool) -> _Mistake:
    kind = detail["type"]
    path, at_key = _clean(detail["loc"], data, missing=kind == "missing")
    context: Mapping[str, object] = detail.get("ctx", {})
    value: object = detail["input"]
    message, hint, expected = detail["msg"].replace("Tuple", "List"), None, None
    if kind in _UNKNOWN:
        message, at_key = f"unknown field '{path[-1]}'", True
    elif kind == "missing":
        message = f"'{path[-1]}' is missing"
    elif kind in {"literal_error", "enum"}:
        choices = [choice.strip("'") for choice in str(context.get("expected", "")).replace(" or ", ", ").split(", ")]
        expected = ", ".join(choices) if len(choices) == 1 else f"one of {', '.join(choices)}"
        message, hint = f"{shown(value)} is not {expected}", did_you_mean(str(value), choices)
    elif kind in _WRONG_SHAPE:
        expected = _WRONG_SHAPE[kind]
        message = f"{shown(value)} is not {expected}"
        hint = _shape_hint(kind, value, in_json=in_json)
    elif kind in _LIMITS:
        words, limit = _LIMITS[kind]
        message, hint = f"{shown(value)} is out of range", f"write a number that is {words} {context.get(limit)}"
    elif "message" in context:
        message, hint = str(context["message"]), str(context.get("hint") or "") or None
    elif kind == "string_pattern_mismatch":
        message = f"{shown(value)} does not have the form {context.get('pattern')}"
        if str(context.get("pattern")).startswith(_NAME):
            hint = "use letters, digits, dots, hyphens and underscores, a letter or digit first"
    elif kind == "value_error":
        message = str(context.get("error", message))
    else:
        message = f"{shown(value)}: {message[:1].lower()}{message[1:]}"
    return _Mistake(loc=detail["loc"], path=path, at_key=at_key, kind=kind, message=message, hint=hint, expected=expected)


def _shape_hint(kind: str, value: object, *, in_json: bool) -> str | None:
    """Return how a value of another kind would be written, where it could have been meant."""
    if isinstance(value, _BRACKETED.get(kind, ())) and not isinstance(value, bool):
        return f"write it in brackets: [{json.dumps(value) if in_json else value}]"
    if in_json and _WRONG_SHAPE[kind] == "a mapping":
        return IN_BRACES
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


def shown(value: object) -> str:
    """Return a value as messages show it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return str(value).lower()
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
