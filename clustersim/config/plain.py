"""Frozen objects to plain data, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeGuard

from clustersim.documents.spots import Data


def plain(value: object) -> Data:
    """Return a dataclass, mapping or sequence as dictionaries, lists and scalars.

    Raises
    ------
    TypeError
        For anything else.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if _is_mapping(value):
        return {str(key): plain(item) for key, item in value.items()}
    if _is_sequence(value):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)
