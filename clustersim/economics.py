r"""Power of accelerators and nodes by utilisation, and the cost of time on a cluster: machines, energy, carbon.

A server draws :math:`P = P_{idle} + (P_{busy} - P_{idle})\,u` at utilisation :math:`u` [1]_. Here :math:`u` is the share of time in which
an accelerator computes, and what a node draws beside its accelerators does not depend on it. `docs/theory/cost.md` says how well that
holds.

References
----------
.. [1] X. Fan, W.-D. Weber and L. A. Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007, pages 13-23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

IDLE_FRACTION: Final = 0.13
"""Idle power of an accelerator as a share of its rated power, by default: H100 0.10, A100 0.11, V100 0.14, B200 0.14, MI355X 0.17 (their
profiles)."""
REST_OF_RATING: Final = 0.61
"""Share drawn of the power that a node's rating leaves beside its accelerators: an 8-GPU H100 node rated 10.2 kW drew 8.4 kW at most, with
5.6 kW of accelerators (I. Latif et al., IEEE Access 13, 2025, pages 61740-61747)."""
REST_OF_ACCELERATORS: Final = 0.55
"""The same as a share of the rated power of the accelerators, where the node has no rating: 0.50 by the measurement above, and 0.59 by the
256,646 kWh that nodes drew beside 433,196 kWh of A100s when BLOOM was trained (A. S. Luccioni et al., arXiv:2211.02001)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """Power of a node, in watts."""

    n_accelerators: int
    idle_w: float
    """Power of one idle accelerator, in watts."""
    busy_w: float
    """Power of one accelerator that always computes, in watts."""
    rest_w: float
    """Total power of processors, memory, adapters, fans and power supplies, in watts."""

    def accelerator_w(self, utilisation: float) -> float:
        """Return what one accelerator draws at a utilisation between 0 and 1."""
        return self.idle_w + (self.busy_w - self.idle_w) * utilisation

    def node_w(self, utilisation: float) -> float:
        """Return the power of the node with all its accelerators at a utilisation between 0 and 1.

        Examples
        --------
        >>> NodePower(n_accelerators=8, idle_w=70.0, busy_w=700.0, rest_w=2800.0).node_w(1.0)
        8400.0
        """
        return self.n_accelerators * self.accelerator_w(utilisation) + self.rest_w


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
