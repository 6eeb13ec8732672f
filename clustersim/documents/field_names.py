"""Names of the fields of a pydantic model, and the one that was meant by a name that is none."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Final, Literal, Union, get_args, get_origin

from clustersim.documents.form import Form, fields_of
from clustersim.documents.near_names import choices_hint, did_you_mean, initials

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Loc = tuple[str | int, ...]

_MOST_PLACES: Final = 3
"""Places of a field that a hint names."""
_CLOSE: Final = 0.8
"""Least likeness of a name elsewhere to one that was written."""
_DEEPEST: Final = 4
"""Levels of a document in which a field is looked for."""
_UNIONS: Final[tuple[object, ...]] = (Union, UnionType, Annotated)
_LISTS: Final[tuple[object, ...]] = (list, tuple, Sequence)
_MAPPINGS: Final[tuple[object, ...]] = (dict, Mapping)


def field_meant(model: type[BaseModel], word: str) -> str | None:
    """Return the dotted path of the field that a word names, whole or by its first letters; None where none or several are."""
    known = _paths_by_name(model)
    paths = known.get(word) or known.get(initials(word, known), ())
    return paths[0] if len(paths) == 1 else None


def missing_hint(model: type[BaseModel], path: Loc, *, in_json: bool) -> str:
    """Return how a missing field is written, with the words that it may have."""
    words = [str(word) for annotation in _types_at(model, path) if get_origin(annotation) is Literal for word in get_args(annotation)]
    return (f'add "{path[-1]}": ...' if in_json else f"add '{path[-1]}: ...'") + (f", one of {', '.join(words)}" if words else "")


def _types_at(model: type[BaseModel], path: Loc) -> list[object]:
    annotations: list[object] = [model]
    for part in path:
        annotations = [found for annotation in annotations for found in _below(annotation, part)]
    return annotations


def field_hint(model: type[BaseModel], path: Loc, at: Loc) -> str:
    """Return what was meant by an unknown field: one of that name elsewhere, else the nearest beside it, else the nearest of all."""
    key, known = str(path[-1]), _paths_by_name(model)
    elsewhere = known.get(key, ())
    if not 0 < len(elsewhere) <= _MOST_PLACES:
        owners = (found for annotation in _types_at(model, path[:-1]) for found in _owners_in(annotation))
        beside = list(dict.fromkeys(name for owner in owners for names, _ in _fields(owner) for name in names))
        nearest = [short] if (short := initials(key, known)) else difflib.get_close_matches(key, known, n=1, cutoff=_CLOSE)
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
