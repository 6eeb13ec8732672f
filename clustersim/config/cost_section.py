"""The ``cost`` section of a scenario, and the power and cost of a job that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import fsum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, model_validator

from clustersim.documents.files import read_text
from clustersim.documents.text import MOST_BYTES, Data
from clustersim.economics import (
    IDLE_FRACTION,
    REST_OF_ACCELERATORS,
    REST_OF_RATING,
    NodePower,
    Prices,
    amount,
    depreciation_usd_per_gpu_hour,
)
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Node
from clustersim.hardware.prices import PositiveUsd, PositiveUsdPerHour, PriceList, Pue, load_price_list, price_list_names, read_price_list
from clustersim.hardware.profile_schema import Checked, PositivePower
from clustersim.measure.cost_report import CostReport, PowerReport, TrainingCost
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import Metrics
from clustersim.notices import Flag
from clustersim.units.fields import KilogramPerKilowattHour, PositiveRatio, Seconds, UsdPerKilowattHour, Watts, mistake
from clustersim.units.quantity import YEAR_S, format_quantity

LIFE_S: Final = 5 * YEAR_S
"""Amazon writes off servers for machine learning over five years since 2025 (form 10-K of 2024), Microsoft and Alphabet over six."""
WORLD_LIST: Final = "electricity-world-2023"
POWER_LIST: Final = "electricity-us-2023"
"""Default price lists."""
MILLION: Final = 1e6


class OwnedSpec(Checked):
    """Machines that were bought."""

    node_price: PositiveUsd | None = Field(
        default=None, description="Price of one node with its share of network and racks; default: that of a list."
    )
    depreciation: Annotated[Seconds, Field(gt=0)] | None = Field(default=None, description="Time of depreciation; default: 5 years.")
    in_use: Annotated[PositiveRatio, Field(le=1)] = Field(default=1.0, description="Share of that time in which the nodes are in use.")


class DrawSpec(Checked):
    """Measured power of machines, in watts, in place of that of the profiles."""

    idle: Watts | None = Field(default=None, description="Power of an idle accelerator.")
    busy: PositivePower | None = Field(default=None, description="Power of an accelerator that computes all the time.")
    rest: Watts | None = Field(default=None, description="Power of one node without its accelerators.")


class CostSpec(Checked):
    """Costs of machines, energy and carbon."""

    prices: str | list[str] | None = Field(default=None, description="Price lists: shipped ones by name, or .yaml files; the first counts.")
    gpu_hour: PositiveUsdPerHour | dict[str, PositiveUsdPerHour] | None = Field(
        default=None, description="Rent of one accelerator with its share of the node, or of each by name: {h100-sxm5-80g: 2.50 USD}."
    )
    owned: OwnedSpec | None = Field(default=None, description="Instead of rent: machines that were bought.")
    power_price: UsdPerKilowattHour | None = Field(
        default=None, description="Price of energy, beside the rent; left out, rent includes it."
    )
    pue: Pue | None = Field(default=None, description="Power usage effectiveness of the building.")
    carbon_intensity: KilogramPerKilowattHour | None = Field(default=None, description="CO2e of the electricity.")
    power: DrawSpec = DrawSpec()

    @model_validator(mode="after")
    def _check_one_owner(self) -> CostSpec:
        if self.gpu_hour is not None and self.owned is not None:
            raise mistake("machines are rented (gpu_hour) and bought (owned) at once", "keep one of the two")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Prices and power of the nodes of a plan, and what had to be assumed for them."""

    prices: Prices
    price_lists: tuple[str, ...]
    owned: bool
    nodes: tuple[NodePower, ...]
    files: Mapping[str, str]
    """Price lists that are no shipped ones: name of the file, and its text."""
    flags: tuple[Flag, ...]

    def machine_w(self, utilisation: float) -> float:
        """Return what all nodes draw together with accelerators at some utilisation."""
        return fsum(node.node_w(utilisation) for node in self.nodes)

    @property
    def n_accelerators(self) -> int:
        """Accelerators of all nodes."""
        return sum(node.n_accelerators for node in self.nodes)


class _Desk:
    """Looks prices up, first in the scenario and then in lists, and notes what was assumed."""

    def __init__(self, spec: CostSpec, lists: Sequence[PriceList]) -> None:
        self._lists = lists
        self.spec = spec
        self.used: dict[str, None] = {}
        self.flags: list[Flag] = []

    def assume(self, code: str, message: str) -> None:
        self.flags.append(Flag(code=code, message=message))

    def pue(self) -> float:
        given = self.spec.pue if self.spec.pue is not None else self._listed([each.pue for each in self._lists])
        if given is not None:
            return given
        found = load_price_list(WORLD_LIST).pue or 1.0
        self.assume("assumed_pue", f"no PUE is given: {found:g} is assumed, the mean of surveys; large providers report 1.1 to 1.2")
        return found

    def carbon_kg_per_kwh(self) -> float:
        given = self.spec.carbon_intensity
        given = given if given is not None else self._listed([each.carbon_intensity for each in self._lists])
        if given is not None:
            return given
        found = load_price_list(WORLD_LIST).carbon_intensity or 0.0
        self.assume("assumed_carbon_intensity", f"no carbon intensity is given: {found:g} kg/kWh is assumed, the mean of the world in 2023")
        return found

    def usd_per_kwh(self) -> float | None:
        """Return what energy costs; None where it is in the rent."""
        if self.spec.power_price is not None:
            return self.spec.power_price
        listed = self._listed([each.power_price for each in self._lists])
        if listed is not None or self.spec.owned is None:
            return listed
        found = load_price_list(POWER_LIST).power_price
        message = f"no price of energy is given: {found:g} USD/kWh is assumed, what industry paid in the United States in 2023"
        self.assume("assumed_power_price", message)
        return found

    def usd_per_gpu_hour(self, nodes: Sequence[Node]) -> float | None:
        """Return the price of an accelerator hour, the mean over all; None where unknown."""
        given = self.spec.gpu_hour
        if given is not None and not isinstance(given, Mapping):
            return given
        if self.spec.owned is not None:
            return self._depreciation(self.spec.owned, nodes)
        if given is None and not any(each.gpu_hour for each in self._lists):
            self.assume("no_machine_price", "machines have no price: give cost.gpu_hour, cost.owned or a price list with rents")
            return None
        return self._by_accelerator(nodes, [each.gpu_hour for each in self._lists], "rent", given or {})

    def _depreciation(self, owned: OwnedSpec, nodes: Sequence[Node]) -> float:
        if owned.depreciation is None:
            self.assume("assumed_depreciation", "no time of depreciation is given: 5 years are assumed; owners take 5 to 6")
        if owned.node_price is not None:
            mean = _mean_by_accelerator(nodes, [owned.node_price / node.n_accelerators for node in nodes])
        else:
            mean = self._by_accelerator(nodes, [each.accelerator_price for each in self._lists], "price", {})
        life_s = LIFE_S if owned.depreciation is None else owned.depreciation
        return depreciation_usd_per_gpu_hour(mean, life_s=life_s, in_use_fraction=owned.in_use)

    def _by_accelerator(self, nodes: Sequence[Node], tables: Sequence[Mapping[str, float]], what: str, given: Mapping[str, float]) -> float:
        """Return the mean of what the accelerators of nodes cost: what is given counts first, then the lists in their order."""
        found = dict(given)
        for name in dict.fromkeys(node.accelerator.name for node in nodes):
            first = next(((each, table[name]) for each, table in zip(self._lists, tables, strict=True) if name in table), None)
            if name in given or first is None:
                continue
            price_list, found[name] = first
            self.used[price_list.name] = None
            if what == "rent" and price_list.one_source(name):
                self.assume("single_source_price", f"the rent of {name} in {price_list.name} stands under one source alone")
        missing = list(dict.fromkeys(node.accelerator.name for node in nodes if node.accelerator.name not in found))
        if missing:
            raise self._no_price(missing, what, [*given, *(name for table in tables for name in table)])
        return _mean_by_accelerator(nodes, [found[node.accelerator.name] for node in nodes])

    def _no_price(self, missing: Sequence[str], what: str, has: Sequence[str]) -> ScenarioError:
        shipped = [load_price_list(each) for each in price_list_names()]
        tables = {each.name: each.gpu_hour if what == "rent" else each.accelerator_price for each in shipped}
        others = [name for name, table in tables.items() if all(each in table for each in missing)]
        named = ", ".join(each.name for each in self._lists) or "the scenario"
        hint = f"there is one of {', '.join(dict.fromkeys(has))}; " if has else ""
        add = f", or add to cost.prices one of {', '.join(others)}" if others else ""
        instead = "cost.gpu_hour" if what == "rent" else "cost.owned.node_price"
        field = "cost.owned" if what != "rent" else "cost.prices" if self.spec.gpu_hour is None else "cost.gpu_hour"
        message = f"there is no {what} of {', '.join(missing)} in {named}"
        return ScenarioError(message, field=field, hint=f"{hint}write {instead} yourself{add}")

    def _listed(self, values: Sequence[float | None]) -> float | None:
        for price_list, value in zip(self._lists, values, strict=True):
            if value is not None:
                self.used[price_list.name] = None
                return value
        return None


def priced_nodes(spec: CostSpec, nodes: Sequence[Node], folder: Path) -> Priced:
    """Return prices and power of some nodes, with every default filled in.

    Parameters
    ----------
    spec
        What the scenario says.
    nodes
        Of the plan.
    folder
        What paths of price lists are relative to.
    """
    desk = _Desk(spec, _price_lists(spec, folder))
    power = [(_node_power(spec.power, node, desk), len(tuple(run))) for node, run in groupby(nodes)]
    prices = Prices(
        usd_per_gpu_hour=desk.usd_per_gpu_hour(nodes),
        usd_per_kwh=desk.usd_per_kwh(),
        pue=desk.pue(),
        carbon_kg_co2e_per_kwh=desk.carbon_kg_per_kwh(),
    )
    desk.assume("no_network_power", "power of switches and storage is not counted")
    flags = tuple(dict.fromkeys(desk.flags))
    return Priced(
        prices=prices,
        price_lists=tuple(desk.used),
        owned=spec.owned is not None,
        nodes=tuple(each for each, count in power for _ in range(count)),
        files=MappingProxyType({Path(name).name: read_text(folder / name, MOST_BYTES) for name in _named(spec) if _is_file(name)}),
        flags=flags,
    )


def cost_report(
    priced: Priced, metrics: Metrics, *, tokens: float | None, train_s: float | None, goodput: GoodputReport | None, spares: int
) -> CostReport:
    """Return the cost of a step, of a number of tokens and of the whole training.

    Energy of a step is the power of the nodes, by how much of it they compute, times its duration. Over a training with failures nodes draw
    that while they train, also for what is lost, and the power of idle nodes otherwise; spare nodes are paid, and idle.

    Parameters
    ----------
    priced
        Prices and power.
    metrics
        Of the step.
    tokens
        Budget of the whole training; None without one.
    train_s
        Time of the whole training without failures.
    goodput
        With failures; None without them.
    spares
        Nodes that stand by.
    """
    step_s = metrics.step_time_s
    utilisation = min((metrics.breakdown_s.compute + metrics.breakdown_s.optimizer) / step_s, 1.0)
    busy_w, first = priced.machine_w(utilisation), priced.nodes[0]
    rate = priced.n_accelerators / metrics.tokens_per_s
    million = amount(priced.prices, gpu_s=MILLION * rate, machine_j=MILLION * busy_w / metrics.tokens_per_s)
    return CostReport(
        utilisation_fraction=utilisation,
        power=PowerReport(
            accelerator_w=first.accelerator_w(utilisation),
            node_w=first.node_w(utilisation),
            cluster_w=busy_w,
            facility_w=priced.prices.pue * busy_w,
        ),
        prices=priced.prices,
        price_lists=priced.price_lists,
        owned=priced.owned,
        step=amount(priced.prices, gpu_s=priced.n_accelerators * step_s, machine_j=busy_w * step_s),
        per_million_tokens=million,
        per_billion_tokens=amount(priced.prices, gpu_s=1e9 * rate, machine_j=1e9 * busy_w / metrics.tokens_per_s),
        training=None if tokens is None or train_s is None else _training(priced, busy_w, (tokens, train_s), goodput, spares),
    )


def _training(priced: Priced, busy_w: float, whole: tuple[float, float], goodput: GoodputReport | None, spares: int) -> TrainingCost:
    """Return the cost of a whole training: of its tokens, and its time without failures."""
    tokens, ideal_s = whole
    time_s, training_s = ideal_s, ideal_s
    if goodput is not None and goodput.time_to_train is not None:
        parts = goodput.parts_fraction
        time_s = goodput.time_to_train.mean_s
        training_s = time_s * (parts.useful + parts.lost_work)
    idle_w = priced.machine_w(0.0)
    spares_w = spares * idle_w / len(priced.nodes)
    gpus = priced.n_accelerators * (1.0 + spares / len(priced.nodes))
    machine_j = busy_w * training_s + idle_w * (time_s - training_s) + spares_w * time_s
    total = amount(priced.prices, gpu_s=gpus * time_s, machine_j=machine_j)
    return TrainingCost(**asdict(total), tokens=tokens, time_s=time_s, spare_nodes=spares)


def resolved_cost(spec: CostSpec) -> dict[str, Data]:
    """Return the section as in the resolved scenario: files by their names in the run directory."""
    found = {key: part for key, part in spec.model_dump(mode="json", exclude_none=True).items() if part != {} or key == "owned"}
    if spec.prices is not None:
        found["prices"] = [Path(name).name if _is_file(name) else name for name in _named(spec)]
    return found


def _named(spec: CostSpec) -> list[str]:
    return [spec.prices] if isinstance(spec.prices, str) else spec.prices or []


def _is_file(name: str) -> bool:
    return name.endswith(".yaml")


def _price_lists(spec: CostSpec, folder: Path) -> list[PriceList]:
    lists: list[PriceList] = []
    for index, name in enumerate(_named(spec)):
        field = "cost.prices" if isinstance(spec.prices, str) else f"cost.prices.{index}"
        try:
            lists.append(read_price_list(folder / name) if _is_file(name) else load_price_list(name))
        except ScenarioError as error:
            if error.place is not None and error.place.line is not None:
                raise
            message = f"{name}: {error.message}" if error.place is not None else error.message
            raise ScenarioError(message, field=field, hint=error.hint) from error
    return lists


def _node_power(spec: DrawSpec, node: Node, desk: _Desk) -> NodePower:
    accelerator = node.accelerator
    busy_w = spec.busy if spec.busy is not None else accelerator.power_w
    if busy_w is None:
        hint = "write what one draws when it computes, such as 'busy: 700 W'"
        raise ScenarioError(f"nobody says how much power {accelerator.name} draws", field="cost.power", hint=hint)
    idle_w = spec.idle if spec.idle is not None else accelerator.idle_power_w
    if idle_w is None:
        idle_w = IDLE_FRACTION * busy_w
        shown = format_quantity(idle_w, "W")
        desk.assume("assumed_idle_power", f"an idle {accelerator.name} draws {shown}: {100 * IDLE_FRACTION:g} % of its rating is assumed")
    rated_w = node.n_accelerators * (accelerator.power_w if accelerator.power_w is not None else busy_w)
    rest_w = spec.rest
    if rest_w is None and node.power_w is not None:
        rest_w = REST_OF_RATING * max(node.power_w - rated_w, 0.0)
    if rest_w is None:
        rest_w = REST_OF_ACCELERATORS * rated_w
        message = f"{node.name} has no power rating: beside its accelerators {format_quantity(rest_w, 'W')} are assumed"
        desk.assume("assumed_node_power", message)
    return NodePower(n_accelerators=node.n_accelerators, idle_w=min(idle_w, busy_w), busy_w=busy_w, rest_w=rest_w)


def _mean_by_accelerator(nodes: Sequence[Node], values: Sequence[float]) -> float:
    total = fsum(node.n_accelerators * value for node, value in zip(nodes, values, strict=True))
    return total / sum(node.n_accelerators for node in nodes)
