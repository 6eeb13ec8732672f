"""Price lists: dated and sourced prices of machines and energy, and carbon intensities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from clustersim.documents.files import data_names, data_path
from clustersim.documents.near_names import did_you_mean
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import read_spec
from clustersim.hardware.profile_schema import Spec
from clustersim.hardware.source import Source
from clustersim.units.fields import KilogramPerKilowattHour, PositiveRatio, Usd, UsdPerHour, UsdPerKilowattHour

PositiveUsd = Annotated[Usd, Field(gt=0)]
PositiveUsdPerHour = Annotated[UsdPerHour, Field(gt=0)]
Pue = Annotated[PositiveRatio, Field(ge=1)]


class PriceListSpec(Spec):
    """``hardware_profiles/prices/<name>.yaml``."""

    as_of: str = Field(pattern=r"^\d{4}(-\d{2}){0,2}$")
    """Year, month or day of the prices."""
    gpu_hour: dict[str, PositiveUsdPerHour] = Field(default={})
    """Rent of one accelerator with its share of a node, by the name of the accelerator."""
    accelerator_price: dict[str, PositiveUsd] = Field(default={})
    """Price of a complete node, divided by its accelerators, by the name of the accelerator."""
    power_price: UsdPerKilowattHour | None = None
    pue: Pue | None = None
    carbon_intensity: KilogramPerKilowattHour | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices at some time; figures that a list does not have are None, or missing."""

    name: str
    title: str
    as_of: str
    usd_per_gpu_hour: Mapping[str, float]
    """By the name of the accelerator."""
    accelerator_price_usd: Mapping[str, float]
    usd_per_kwh: float | None
    pue: float | None
    carbon_kg_per_kwh: float | None
    sources: tuple[Source, ...]

    def one_source(self, accelerator: str) -> bool:
        """Return whether the rent of an accelerator has one source only."""
        return sum(not {"gpu_hour", f"gpu_hour.{accelerator}"}.isdisjoint(source.covers) for source in self.sources) < 2

    def age_months(self, today: date) -> int:
        """Return how many whole months ago the prices were, at least; a year without a month counts from its end."""
        year, *rest = (int(part) for part in self.as_of.split("-"))
        return max(0, 12 * (today.year - year) + today.month - (rest[0] if rest else 12))


def price_list_names() -> tuple[str, ...]:
    """Return the names of the shipped price lists."""
    return data_names("hardware_profiles", "prices")


@lru_cache
def load_price_list(name: str) -> PriceList:
    """Return a shipped price list; raise ``ScenarioError`` for an unknown name."""
    known = price_list_names()
    if name not in known:
        raise ScenarioError(f"unknown price list '{name}'", hint=did_you_mean(name, known) or f"one of {', '.join(known)}, or a .yaml file")
    return read_price_list(data_path("hardware_profiles", "prices", f"{name}.yaml"))


def read_price_list(path: Path) -> PriceList:
    """Return the price list in a file."""
    spec, _ = read_spec(PriceListSpec, path)
    return PriceList(
        name=spec.name,
        title=spec.title,
        as_of=spec.as_of,
        usd_per_gpu_hour=MappingProxyType(spec.gpu_hour),
        accelerator_price_usd=MappingProxyType(spec.accelerator_price),
        usd_per_kwh=spec.power_price,
        pue=spec.pue,
        carbon_kg_per_kwh=spec.carbon_intensity,
        sources=spec.sources,
    )
