"""Framework presets: ``scenarios/presets/<name>.yaml``, every value with its reason and its source."""

from __future__ import annotations

from functools import lru_cache
from typing import Self

from pydantic import Field, model_validator

from clustersim.documents.check import choices_hint, validate_document
from clustersim.documents.files import data_path
from clustersim.documents.spots import Data, Scalar
from clustersim.documents.text import read_document
from clustersim.errors import ScenarioError
from clustersim.hardware.profile_schema import Checked


class PresetSource(Checked):
    """Document in which a framework states its defaults."""

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
    return tuple(sorted(path.stem for path in (data_path("scenarios") / "presets").glob("*.yaml")))


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
    return validate_document(Preset, read_document(data_path("scenarios") / "presets" / f"{name}.yaml"))
