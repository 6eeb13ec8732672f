"""What the scenario format promises and this version does not do yet: accepted where it asks for nothing, refused otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from clustersim.documents.spots import Data
from clustersim.documents.text import Document
from clustersim.errors import ScenarioError

AVAILABLE: Final[Mapping[str, tuple[Data, ...]]] = MappingProxyType(
    {
        "strategy.schedule": ("naive", "gpipe", "1f1b", "interleaved_1f1b"),
    }
)
"""Values that this version takes, for every key of which it takes only some; nothing listed: the key must be left out."""


def check_availability(document: Document) -> None:
    """Refuse the first value, in the order of the table, that asks for something this version does not do.

    Raises
    ------
    ScenarioError
        Naming the key, the value and the values that are available.
    """
    for field, values in AVAILABLE.items():
        path = field.split(".")
        asked = _at(document.data, path)
        if asked is not None and asked not in values:
            raise ScenarioError(
                f"{_show(asked)} is not available in this version", field=field, hint=_advice(values), place=document.place(path)
            )
    placement = _at(document.data, ["strategy", "placement"])
    if placement == "auto":
        raise ScenarioError(
            "'auto' is not available in this version",
            field="strategy.placement",
            hint="name the order, fastest-varying first: [tp, cp, ep, dp, pp]",
            place=document.place(["strategy", "placement"]),
        )


def _at(data: Data, path: Sequence[str]) -> Data:
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
    return data


def _advice(values: Sequence[Data]) -> str:
    shown = [_show(value) for value in values]
    if not shown:
        return "leave the key out"
    return f"use {', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else f"use {shown[0]}, or leave the key out"


def _show(value: Data) -> str:
    match value:
        case []:
            return "an empty list"
        case list() | dict():
            return "what is asked for"
        case str():
            return f"'{value}'"
        case _:
            return str(value)
