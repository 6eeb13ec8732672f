"""Cost of a step, of tokens and of a whole training, as a result and as lines of text."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.economics import Prices, UsageCost
from clustersim.measure.error_bars import ErrorBar, with_ends
from clustersim.units.quantity import format_quantity

_TONNE_KG = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """Power drawn while the job trains, in watts."""

    accelerator_w: float
    node_w: float
    cluster_w: float
    """All nodes of the job."""
    facility_w: float
    """The same at the meter of the building."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost(UsageCost):
    """Resources and cost of the whole training."""

    tokens: float
    time_s: float
    """With failures, where the scenario has ``reliability``."""
    spare_nodes: int
    """Counted in GPU hours, cost and energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Power and cost of the job."""

    utilisation_fraction: float
    """Share of the step in which accelerators compute."""
    power: PowerReport
    prices: Prices
    price_lists: tuple[str, ...]
    """Lists that prices were taken from."""
    owned: bool
    step: UsageCost
    per_million_tokens: UsageCost
    per_billion_tokens: UsageCost
    training: TrainingCost | None
    """None without a budget of tokens."""


def cost_lines(report: CostReport | None, *, unit: str = "tokens", bar: ErrorBar | None = None) -> tuple[str, ...]:
    """Return power and cost as sentences; none where the scenario has no cost section.

    Parameters
    ----------
    report
        What to tell.
    unit
        What the model is trained on: tokens, or samples where a sample is one.
    bar
        Interval of the step time, with which the whole training scales.
    """
    if report is None:
        return ()
    power = report.power
    watts = [format_quantity(value, "W") for value in (power.accelerator_w, power.node_w, power.facility_w)]
    return (
        f"an accelerator draws {watts[0]}, a node {watts[1]}, the building {watts[2]} (PUE {report.prices.pue:g}), computing"
        f" {100 * report.utilisation_fraction:.1f} % of the time",
        _prices_line(report),
        f"a step: {_amount(report.step)}",
        f"a million {unit}: {_amount(report.per_million_tokens)}",
        *_training_lines(report.training, unit, bar),
    )


def _prices_line(report: CostReport) -> str:
    prices = report.prices
    kind = "depreciation" if report.owned else "rent"
    hour = "machines have no price" if prices.usd_per_gpu_hour is None else f"{kind} {prices.usd_per_gpu_hour:.3g} USD per GPU hour"
    if prices.usd_per_kwh is not None:
        energy = f"energy {prices.usd_per_kwh:.3g} USD/kWh"
    else:
        energy = "energy has no price" if prices.usd_per_gpu_hour is None else "energy included"
    lists = f" ({', '.join(report.price_lists)})" if report.price_lists else ""
    return f"{hour}, {energy}, {prices.carbon_kg_co2e_per_kwh:.3g} kg CO2e/kWh{lists}"


def _training_lines(training: TrainingCost | None, unit: str, bar: ErrorBar | None) -> tuple[str, ...]:
    if training is None:
        return ()
    tokens, time = format_quantity(training.tokens, "count"), with_ends(training.time_s, "s", bar)
    spares = training.spare_nodes
    counted = f", {spares:,} spare node{'s' if spares > 1 else ''} included" if spares else ""
    return (f"the whole training, {tokens} {unit} in {time}: {_amount(training, bar)}{counted}",)


def _amount(amount: UsageCost, bar: ErrorBar | None = None) -> str:
    money = "" if amount.usd is None else f"{with_ends(amount.usd, 'USD', bar)}, "
    mass = amount.emissions_kg_co2e
    carbon = f"{_figure(mass / _TONNE_KG)} t" if mass >= _TONNE_KG else f"{mass:.3g} kg"
    return f"{money}{with_ends(amount.gpu_hours, 'count', bar)} GPU hours, {format_quantity(amount.energy_kwh, 'kWh')}, {carbon} CO2e"


def _figure(value: float) -> str:
    """Return a number with three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"
