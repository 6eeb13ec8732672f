"""Price lists: dated and sourced prices of machines and energy, and carbon intensities."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from clustersim.documents.files import data_names, data_path
from clustersim.documents.near_names import did_you_mean
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import read_spec
from clustersim.hardware.profile_schema import Spec
from clustersim.units.fields import KilogramPerKilowattHour, PositiveRatio, Usd, UsdPerHour, UsdPerKilowattHour

PositiveUsd = Annotated[Usd, Field(gt=0)]
PositiveUsdPerHour = Annotated[UsdPerHour, Field(gt=0)]
Pue = Annotated[PositiveRatio, Field(ge=1)]


class PriceList(Spec):
    """Prices at some time: ``hardware_profiles/prices/<name>.yaml``; a figure that a list does not have is None, or missing."""

    as_of: str = Field(pattern=r"^\d{4}(-\d{2}){0,2}$")
    """Year, month or day of the prices."""
    gpu_hour: dict[str, PositiveUsdPerHour] = Field(default={})
    """Rent of one accelerator with its share of a node, in USD per hour, by the name of the accelerator."""
    accelerator_price: dict[str, PositiveUsd] = Field(default={})
    """Price of a complete node, divided by its accelerators, in USD, by the name of the accelerator."""
    power_price: UsdPerKilowattHour | None = None
    pue: Pue | None = None
    carbon_intensity: KilogramPerKilowattHour | None = None

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
    return read_spec(PriceList, path)[0]
