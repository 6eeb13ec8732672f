"""Machines, energy and carbon of some work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.economics import NodePower, Prices, amount, depreciation_usd_per_gpu_hour

PRICES = Prices(usd_per_gpu_hour=2.0, usd_per_kwh=0.1, pue=1.5, carbon_kg_co2e_per_kwh=0.4)
NODE = NodePower(n_accelerators=8, idle_w=70.0, busy_w=700.0, rest_w=2800.0)


def test_machines_cost_by_the_hour_and_energy_by_the_meter_of_the_building() -> None:
    found = amount(PRICES, gpu_s=7200.0, machine_j=3.6e6)

    assert (found.gpu_hours, found.machines_usd) == (2.0, 4.0)
    assert (found.energy_kwh, found.energy_usd, found.emissions_kg_co2e) == pytest.approx((1.5, 0.15, 0.6))
    assert found.usd == pytest.approx(4.15)


def test_what_has_no_price_is_not_in_the_sum() -> None:
    rent = amount(replace(PRICES, usd_per_kwh=None), gpu_s=7200.0, machine_j=3.6e6)
    energy = amount(replace(PRICES, usd_per_gpu_hour=None), gpu_s=7200.0, machine_j=3.6e6)
    nothing = amount(replace(PRICES, usd_per_gpu_hour=None, usd_per_kwh=None), gpu_s=7200.0, machine_j=3.6e6)

    assert (rent.usd, rent.energy_usd) == (4.0, None)
    assert (energy.usd, energy.machines_usd) == (pytest.approx(0.15), None)
    assert nothing.usd is None


def test_machines_that_stand_idle_half_the_time_cost_twice_as_much() -> None:
    always, half = (depreciation_usd_per_gpu_hour(36250.0, life_s=5 * 365 * 86400.0, in_use_fraction=share) for share in (1.0, 0.5))

    assert always == pytest.approx(36250 / (5 * 8760))
    assert half == pytest.approx(2 * always)


def test_power_goes_in_a_straight_line_from_idle_to_busy() -> None:
    assert [NODE.node_w(u) for u in (0.0, 0.5, 1.0)] == [8 * 70 + 2800, 8 * 385 + 2800, 8 * 700 + 2800]


def test_a_node_that_trains_draws_about_what_was_measured() -> None:
    # Training runs of an 8-GPU H100 node drew 76 % of its 10.2 kW (A. Newkirk et al., arXiv:2506.14551); utilisation 0.85 to 0.95.
    assert NODE.node_w(0.85) < 0.76 * 10.2e3 * 1.02
    assert NODE.node_w(0.95) > 0.76 * 10.2e3 * 0.98
