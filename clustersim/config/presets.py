"""Frameworks' defaults: ``scenarios/presets/<name>.yaml``, each value with reason and source, below the keys of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

from pydantic import Field, model_validator

from clustersim.config.overriding import Override
from clustersim.documents.check import validate_document, value_at
from clustersim.documents.files import data_names, data_path
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data, Document, Scalar, Spot, read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked


class PresetSource(Checked):
    """Document in which a framework states its keys and defaults."""

    title: str
    version: str
    url: str


class PresetSetting(Checked):
    """A scenario key that a preset sets."""

    key: str
    """Dotted, from the top of the scenario."""
    value: Scalar | list[Scalar]
    fixed: bool = False
    """True where another value would be another framework or another preset; else the value of the scenario takes precedence."""
    where: dict[str, list[Scalar]] | None = Field(default=None, min_length=1, max_length=1)
    """Condition: this key has one of these values. Of several settings of one key, the first that applies."""
    reason: str
    source: str

    @property
    def data(self) -> Data:
        """The value as it stands in a scenario."""
        return [*self.value] if isinstance(self.value, list) else self.value


class PresetRefusal(Checked):
    """Values of a scenario key that a preset cannot have: those listed, or all but those listed."""

    key: str
    values: list[Scalar] = Field(default_factory=list[Scalar])
    only: list[Scalar] = Field(default_factory=list[Scalar])
    reason: str

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if bool(self.values) == bool(self.only):
            raise ValueError("give either values, which are refused, or only, which are not")
        return self

    def refuses(self, value: Data) -> bool:
        """Return whether the preset cannot have a value; an absent one is never refused."""
        return value is not None and (value in self.values if self.values else value not in self.only)


class Preset(Checked):
    """Defaults of one framework."""

    title: str
    stands_for: str
    settings: list[PresetSetting]
    refuses: list[PresetRefusal] = Field(default_factory=list[PresetRefusal])
    left_out: list[str] = Field(default_factory=list[str])
    """Behaviour of the framework that is not simulated."""
    sources: dict[str, PresetSource]

    @model_validator(mode="after")
    def _sources_named(self) -> Self:
        named = {setting.source for setting in self.settings}
        if named != set(self.sources):
            raise ValueError(f"settings and sources do not name the same: {', '.join(sorted(named ^ set(self.sources)))}")
        return self


@lru_cache
def preset_names() -> tuple[str, ...]:
    """Return the values of ``strategy.preset``."""
    return data_names("scenarios", "presets")


@lru_cache
def load_preset(name: str) -> Preset:
    """Return a shipped preset.

    Raises
    ------
    ScenarioError
        When there is none of this name, or its file breaks the schema.
    """
    if name not in preset_names():
        raise ScenarioError(f"there is no preset '{name}'", hint=choices_hint(name, preset_names()))
    return validate_document(Preset, read_document(data_path("scenarios", "presets", f"{name}.yaml")))


KEY: Final = ("strategy", "preset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A scenario with the values of its preset in it."""

    document: Document
    brought: tuple[Override, ...] = ()
    """For errors: the values that a preset brought which was itself named by ``--set``."""
    keys: frozenset[str] = frozenset()
    """Dotted keys of all values that a preset brought."""


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
    name = value_at(document.data, KEY)
    if not isinstance(name, str):
        return Merged(document=document)
    if name not in preset_names():
        raise ScenarioError(
            f"there is no preset '{name}'", field=".".join(KEY), hint=choices_hint(name, preset_names()), place=document.place(KEY)
        )
    _check_fixed(document, name)
    settings = tuple(_applying(document, load_preset(name)))
    keys, paths = frozenset(setting.key for setting in settings), [tuple(setting.key.split(".")) for setting in settings]
    merged = document
    for path, setting in zip(paths, settings, strict=True):
        merged = merged.with_value(path, setting.data)
    namer = next((override for override in reversed(overrides) if KEY[: len(override.path)] == override.path), None)
    if namer is not None:
        brought = tuple(Override(path=path, value=value_at(merged.data, path), text=namer.text) for path in paths)
        return Merged(document=merged, brought=brought, keys=keys)
    return Merged(document=_with_places(merged, paths), keys=keys)


def _applying(document: Document, preset: Preset) -> Iterator[PresetSetting]:
    """Yield the settings that the scenario leaves open, of several for one key the first whose condition holds."""
    known = document
    for setting in preset.settings:
        path = setting.key.split(".")
        if value_at(known.data, path) is not None or not _can_hold(known.data, path) or not _holds(known, setting):
            continue
        known = known.with_value(path, setting.data)
        yield setting


def _holds(document: Document, setting: PresetSetting) -> bool:
    return all(value_at(document.data, key.split(".")) in values for key, values in (setting.where or {}).items())


def _can_hold(data: Data, path: Sequence[str]) -> bool:
    """Return whether a value can be set at a path; a later check reports a path through something other than a mapping."""
    for part in path[:-1]:
        if not isinstance(data, dict):
            return False
        data = data.get(part, {})
    return isinstance(data, dict)


def _check_fixed(document: Document, name: str) -> None:
    preset = load_preset(name)
    for setting in preset.settings:
        path = setting.key.split(".")
        given = value_at(document.data, path)
        if setting.fixed and given is not None and given != setting.data:
            raise ScenarioError(
                f"{_show(given)} contradicts preset {name}, for which it is {_show(setting.data)}: {setting.reason}",
                field=setting.key,
                hint=_advice(name, setting, given),
                place=document.place(path),
            )
    for refusal in preset.refuses:
        path = refusal.key.split(".")
        given = value_at(document.data, path)
        if refusal.refuses(given):
            served = [f"use preset {other}" for other in _fixing(refusal.key, given)[:1]]
            raise ScenarioError(
                f"{_show(given)} contradicts preset {name}: {refusal.reason}",
                field=refusal.key,
                hint=", or ".join(["leave the key out", *served]),
                place=document.place(path),
            )


def _fixing(key: str, value: Data) -> list[str]:
    """Return the presets that fix a key to a value."""
    return [
        name
        for name in preset_names()
        if any(setting.fixed and (setting.key, setting.data) == (key, value) for setting in load_preset(name).settings)
    ]


def _advice(name: str, setting: PresetSetting, given: Data) -> str:
    """Return the correction: the fixed value, or a preset, of the same framework if there is one, that fixes the given one."""
    fixing = _fixing(setting.key, given)
    framework = name.partition("_")[0]
    same = [other for other in fixing if other.partition("_")[0] == framework]
    instead = f"preset {(same or fixing)[0]}, or " if fixing else ""
    return f"use {_show(setting.data)}, or {instead}leave the key out"


def _with_places(document: Document, paths: Sequence[tuple[str, ...]]) -> Document:
    """Return the document with the values of a preset placed where the preset is named."""
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
    """Return a spot whose subpaths, without a place of their own, take the place of another spot."""
    if not path:
        return spot
    first, *rest = path
    child = spot.children.get(first, Spot(line=at.line, column=at.column))
    keys = {first: (at.line, at.column), **spot.keys}
    return replace(spot, keys=keys, children={**spot.children, first: _placed(child, rest, at)})


def _show(value: Data) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what is asked for"
