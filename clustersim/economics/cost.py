"""Cost of time on a cluster: machines, energy, carbon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOUR_S: Final = 3600.0
JOULES_PER_KWH: Final = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of machines and energy."""

    usd_per_gpu_hour: float | None
    """Rent, or depreciation; None where machines have no price."""
    usd_per_kwh: float | None
    """None where energy is in the rent, or has no price."""
    pue: float
    """Energy of the building over that of its machines."""
    carbon_kg_co2e_per_kwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCost:
    """Resources and cost of some work."""

    gpu_hours: float
    energy_kwh: float
    """At the meter of the building."""
    emissions_kg_co2e: float
    machines_usd: float | None
    energy_usd: float | None
    """None where energy is in the rent, or has no price."""
    usd: float | None
    """Sum of machines and energy as far as priced; None where neither is."""


def amount(prices: Prices, *, gpu_s: float, machine_j: float) -> UsageCost:
    """Return what some work costs.

    Parameters
    ----------
    prices
        Of machines, energy and carbon.
    gpu_s
        Seconds of accelerators, summed over them.
    machine_j
        Energy of the machines; the building takes PUE times as much.
    """
    hours, kwh = gpu_s / HOUR_S, prices.pue * machine_j / JOULES_PER_KWH
    machines = None if prices.usd_per_gpu_hour is None else hours * prices.usd_per_gpu_hour
    energy = None if prices.usd_per_kwh is None else kwh * prices.usd_per_kwh
    priced = [part for part in (machines, energy) if part is not None]
    return UsageCost(
        gpu_hours=hours,
        energy_kwh=kwh,
        emissions_kg_co2e=kwh * prices.carbon_kg_co2e_per_kwh,
        machines_usd=machines,
        energy_usd=energy,
        usd=sum(priced) if priced else None,
    )


def depreciation_usd_per_gpu_hour(price_per_accelerator_usd: float, *, life_s: float, in_use_fraction: float) -> float:
    """Return what an hour of an accelerator costs its owner: straight-line, over the hours in which it is used.

    Examples
    --------
    >>> depreciation_usd_per_gpu_hour(35040.0, life_s=4 * 365 * 86400.0, in_use_fraction=0.5)
    2.0
    """
    return price_per_accelerator_usd / (life_s / HOUR_S * in_use_fraction)
