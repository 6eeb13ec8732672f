"""Facts about a model that follow from a Hugging Face ``model_type``: ``scenarios/families/hugging-face.yaml``, and spellings of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from pydantic import Field, JsonValue

from clustersim.documents.check import validate_document
from clustersim.documents.files import data_path
from clustersim.documents.text import Data, read_document
from clustersim.hardware.profile_schema import Checked
from clustersim.workloads.reading import model_adapters


class ModelFamily(Checked):
    """Types of one family: what they imply, and how their configuration spells the rest."""

    types: tuple[str, ...] = Field(min_length=1)
    like: str | None = None
    """Type of another family, whose defaults hold where they are not changed."""
    defaults: dict[str, JsonValue] = Field(default={})
    """Fields of the model specification that differ from Llama's."""
    keys: dict[str, tuple[str, ...]] = Field(default={})
    """Configuration keys of these types, and the fields that each one sets."""
    adapt: str | None = None
    """Name of the function for fields that follow from several keys, which no table can say."""
    has_states: bool = False
    """Whether its configuration has keys of layers with a state, and they are read."""

    def adapted(self, config: Mapping[str, Data]) -> dict[str, Data]:
        """Return the fields that follow from several keys."""
        if self.adapt is None:
            return {}
        function: Callable[[Mapping[str, Data]], dict[str, Data]] = getattr(model_adapters, self.adapt)
        return {name: value for name, value in function(config).items() if value is not None}


class HubModels(Checked):
    """Families of models on the Hub, the reasons why others are refused, and spellings of fields."""

    families: tuple[ModelFamily, ...]
    refused: dict[str, tuple[str, ...]]
    sizes: dict[str, tuple[str, ...]]
    """By size its other spellings."""
    traits: dict[str, tuple[str, ...]]
    """The same of traits, which our own files have."""
    opposites: dict[str, tuple[str, ...]]
    """Spellings that say the opposite of a trait."""
    joint: dict[str, tuple[str, ...]]
    """Keys that set several fields."""


@lru_cache
def hub_models() -> HubModels:
    """Return the table of the Hub's models."""
    return validate_document(HubModels, read_document(data_path("scenarios", "families", "hugging-face.yaml")))


@lru_cache
def model_families() -> Mapping[str, ModelFamily]:
    """Return families by ``model_type``."""
    found: dict[str, ModelFamily] = {}
    for family in hub_models().families:
        base = found[family.like].defaults if family.like else {}
        found |= dict.fromkeys(family.types, family.model_copy(update={"defaults": base | family.defaults}))
    return MappingProxyType(found)


@lru_cache
def refused_types() -> Mapping[str, str]:
    """Return the reason why each of some types cannot be described as a transformer here."""
    return MappingProxyType({kind: reason for reason, kinds in hub_models().refused.items() for kind in kinds})


@lru_cache
def size_aliases() -> Mapping[str, str]:
    """Return the field of each other spelling of a size."""
    return _by_spelling(hub_models().sizes)


@lru_cache
def trait_aliases() -> Mapping[str, str]:
    """Return the field of each other spelling of a trait in our own files, those that say the opposite included."""
    return _by_spelling(hub_models().traits | hub_models().opposites)


def _by_spelling(spellings: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    return MappingProxyType({spelling: name for name, given in spellings.items() for spelling in given})
