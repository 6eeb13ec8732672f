"""``strategy.preset``: what a framework does by default, laid under what the scenario says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.documents.check import choices_hint
from clustersim.documents.spots import Data, Spot
from clustersim.documents.text import Document
from clustersim.errors import ScenarioError
from clustersim.scenario.overriding import Override
from clustersim.scenario.preset_sources import Preset, Refusal, Setting
from clustersim.scenario.preset_table import PRESETS

KEY: Final = ("strategy", "preset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A scenario with the values of its preset in it."""

    document: Document
    brought: tuple[Override, ...] = ()
    """For errors: the values that a preset brought which was itself named by ``--set``."""


def apply_preset(document: Document, overrides: Sequence[Override] = ()) -> Merged:
    """Return the document with the values of its preset where it has none; as it is without a preset.

    A value that the scenario has keeps its place. One of the preset stands where the preset is named, so that an error points there.

    Parameters
    ----------
    overrides
        Those that are in the document already.

    Raises
    ------
    ScenarioError
        There is no such preset, or the scenario contradicts what it fixes.
    """
    name = _at(document.data, KEY)
    if not isinstance(name, str):
        return Merged(document=document)
    if name not in PRESETS:
        raise ScenarioError(
            f"there is no preset '{name}'", field=".".join(KEY), hint=choices_hint(name, PRESETS), place=document.place(KEY)
        )
    _check_fixed(document, name)
    merged, paths = document, list[tuple[str, ...]]()
    for setting in _applying(document, PRESETS[name]):
        path = tuple(setting.key.split("."))
        merged = merged.with_value(path, setting.value)
        paths.append(path)
    namer = next((override for override in reversed(overrides) if KEY[: len(override.path)] == override.path), None)
    if namer is not None:
        brought = tuple(Override(path=path, value=_at(merged.data, path), text=namer.text) for path in paths)
        return Merged(document=merged, brought=brought)
    return Merged(document=_with_places(merged, paths))


def _applying(document: Document, preset: Preset) -> Iterator[Setting]:
    """Yield the settings that the scenario leaves open, of several for one key the first whose condition holds."""
    known = document
    for setting in preset.settings:
        path = setting.key.split(".")
        if _at(known.data, path) is not None or not _can_hold(known.data, path) or not _holds(known, setting):
            continue
        known = known.with_value(path, setting.value)
        yield setting


def _holds(document: Document, setting: Setting) -> bool:
    if setting.where is None:
        return True
    key, values = setting.where
    return _at(document.data, key.split(".")) in values


def _can_hold(data: Data, path: Sequence[str]) -> bool:
    """Return whether a value can be put at a path; where something else than a mapping is on the way, checking says so later."""
    for part in path[:-1]:
        if not isinstance(data, dict):
            return False
        data = data.get(part, {})
    return isinstance(data, dict)


def _check_fixed(document: Document, name: str) -> None:
    for setting in PRESETS[name].settings:
        path = setting.key.split(".")
        given = _at(document.data, path)
        if setting.fixed and given is not None and given != setting.value:
            raise ScenarioError(
                f"{_show(given)} contradicts preset {name}, for which it is {_show(setting.value)}: {setting.reason}",
                field=setting.key,
                hint=_advice(name, setting, given),
                place=document.place(path),
            )
    for refusal in PRESETS[name].refuses:
        path = refusal.key.split(".")
        if _at(document.data, path) == refusal.value:
            raise ScenarioError(
                f"{_show(refusal.value)} contradicts preset {name}: {refusal.reason}",
                field=refusal.key,
                hint=", or ".join(["leave the key out", *_served_preset(refusal)]),
                place=document.place(path),
            )


def _served_preset(refusal: Refusal) -> list[str]:
    """Return a preset that fixes what another one refuses, if there is one."""
    fixing = [
        f"use preset {other}"
        for other, preset in PRESETS.items()
        for each in preset.settings
        if each.fixed and (each.key, each.value) == (refusal.key, refusal.value)
    ]
    return fixing[:1]


def _advice(name: str, setting: Setting, given: Data) -> str:
    """Return what would be right: the fixed value, or a preset, of the same framework if there is one, that fixes the given one."""
    fixing = [
        other
        for other, preset in PRESETS.items()
        if any(theirs.fixed and theirs.key == setting.key and theirs.value == given for theirs in preset.settings)
    ]
    framework = name.partition("_")[0]
    same = [other for other in fixing if other.partition("_")[0] == framework]
    instead = f"preset {(same or fixing)[0]}, or " if fixing else ""
    return f"use {_show(setting.value)}, or {instead}leave the key out"


def _with_places(document: Document, paths: Sequence[tuple[str, ...]]) -> Document:
    """Return the document with what a preset brought placed where the preset is named."""
    spot = document.spot
    for part in KEY:
        spot = spot.children.get(part) if spot else None
    if document.spot is None or spot is None:
        return document
    root = document.spot
    for path in paths:
        root = _placed(root, path, spot)
    return replace(document, spot=root)


def _placed(spot: Spot, path: Sequence[str], at: Spot) -> Spot:
    """Return a spot below which a path, as far as it has no place of its own, stands at another spot."""
    if not path:
        return spot
    first, *rest = path
    child = spot.children.get(first, Spot(line=at.line, column=at.column))
    keys = {first: (at.line, at.column), **spot.keys}
    return replace(spot, keys=keys, children={**spot.children, first: _placed(child, rest, at)})


def _at(data: Data, path: Sequence[str]) -> Data:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _show(value: Data) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what is asked for"
