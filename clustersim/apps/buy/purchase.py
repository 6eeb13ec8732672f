"""Clusters to choose from, the best layout of each, and its time and cost under other conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

from clustersim.apps.plan.asking import PlanRequest, figure_of
from clustersim.apps.plan.drafts import Drafts, Peaks
from clustersim.apps.plan.findings import Tried
from clustersim.apps.plan.goal import Asking, asked_for
from clustersim.apps.plan.nearest import nearest_lines
from clustersim.apps.plan.replays import Replayed, ReplayOutcome, Replays
from clustersim.apps.plan.search import Terms, fastest
from clustersim.apps.plan.space import usual_limits
from clustersim.apps.run.running import whole_training
from clustersim.config.build import build
from clustersim.config.load import load_scenario
from clustersim.documents.near_names import choices_hint
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.catalog import nodes_with, profile_names
from clustersim.notices import Flag
from clustersim.progress import advanced, noted, phase
from clustersim.units.quantity import format_quantity, line_rate

_OPTION: Final = re.compile(r"(?P<count>[1-9]\d*)(\s*[x×]\s*|\s+)(?P<node>\S+)(\s+at\s+(?P<price>.+))?")
_EXAMPLE: Final = "write a number, a node and perhaps a price, such as '64 dgx-h100' or '64 dgx-h100 at 2.10 USD/h'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Nodes of one kind."""

    node: str
    """A shipped one, or a file that ends in ``.yaml``."""
    n_nodes: int
    usd_per_gpu_hour: float | None = None
    """Rent of one accelerator; None takes that of a price list."""

    @property
    def name(self) -> str:
        """Number and node, such as ``64 dgx-h100``."""
        return f"{self.n_nodes} {self.node}"


def read_option(text: str) -> Option:
    """Return an option from its text.

    Raises
    ------
    ScenarioError
        When there is no such node, or a price has no unit.

    Examples
    --------
    >>> read_option("64 dgx-h100 at 2.10 USD/h")
    Option(node='dgx-h100', n_nodes=64, usd_per_gpu_hour=2.1)
    """
    found = _OPTION.fullmatch(text.strip())
    if found is None:
        raise ScenarioError(f"'{text}' is no option", field="--option", hint=_EXAMPLE)
    node = found["node"]
    if node not in profile_names("nodes") and not node.endswith(".yaml"):
        raise ScenarioError(
            f"there is no node '{node}'",
            field="--option",
            hint=nodes_with(node, profile_names("nodes")) or choices_hint(node, profile_names("nodes")),
        )
    price = None if found["price"] is None else figure_of("--option", found["price"], "USD/h")
    return Option(node=node, n_nodes=int(found["count"]), usd_per_gpu_hour=price)


def read_nics(text: str) -> tuple[str, ...]:
    """Return bandwidths of adapters from a list, as text for a scenario.

    Raises
    ------
    ScenarioError
        When one has no unit, or stands twice.
    """
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    rates = [figure_of("--nic", each, "B/s") for each in found]
    if len(set(rates)) < len(rates):
        raise ScenarioError(f"'{text}' names a bandwidth twice", field="--nic", hint="write each once, such as 200Gbit/s,400Gbit/s")
    return found


HALF_NETWORK: Final = "adapters at half of their bandwidth"
HALF_BATCH: Final = "half of the batch"
TWICE_BATCH: Final = "twice the batch"
NO_FAILURES: Final = "no failures"
CONDITIONS: Final = (HALF_NETWORK, HALF_BATCH, TWICE_BATCH, NO_FAILURES)
"""Other conditions of each offer, whose layout stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Training and the clusters to choose from."""

    model: str
    tokens: float
    options: tuple[Option, ...]
    nics: tuple[str, ...] = ()
    """Bandwidths of adapters that each option is tried with; none for those of the node."""
    overrides: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    terms: Terms = field(default_factory=Terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Time and cost of the whole training."""

    time_s: float
    usd: float | None
    """None without a price."""
    gpu_hours: float | None
    usd_per_gpu_hour: float | None

    @property
    def other_usd(self) -> float | None:
        """Energy, which is paid beside the rent."""
        if self.usd is None or self.gpu_hours is None or self.usd_per_gpu_hour is None:
            return None
        return self.usd - self.gpu_hours * self.usd_per_gpu_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The best layout on one cluster."""

    option: Option
    nic: str | None
    asked: PlanRequest
    asked_batch: int
    """The given one, which may have been adapted."""
    winner: Tried
    choice: str
    """Reason for which it is not the fastest; empty where it is."""
    figures: Figures
    """With failures."""
    goodput_fraction: float | None
    """None where failures could not be counted."""
    no_failures: str
    """Why they could not be; empty where they were."""
    others: Mapping[str, Figures]
    """By name of ``CONDITIONS``; missing where the layout does not run, and of slower adapters of an option."""
    flags: tuple[Flag, ...]
    price_lists: tuple[str, ...]
    scenario: Mapping[str, Data]

    @property
    def name(self) -> str:
        """Option and adapters."""
        return _name(self.option, self.nic)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitOption:
    """A cluster on which no layout runs."""

    name: str
    why: str


def offers(request: Request) -> tuple[list[Offer], list[UnfitOption]]:
    """Return the best layout of every option and bandwidth of adapters, in the order in which they were given."""
    found: list[Offer] = []
    missed: list[UnfitOption] = []
    pairs = [(option, nic) for option in request.options for nic in request.nics or (None,)]
    peaks: dict[Option, Peaks] = {option: {} for option in request.options}
    with phase("plan options"), Replays() as replays:
        for place, (option, nic) in enumerate(pairs):
            advanced(place, len(pairs) + len(request.options))
            noted("\n".join([*map(_so_far, found), f"in progress: {_name(option, nic)}"]))
            one = _offer(request, option, nic, replays, peaks[option])
            if isinstance(one, UnfitOption):
                missed.append(one)
            else:
                found.append(one)
        fastest: dict[Option, Offer] = {}
        for each in found:
            if each.figures.time_s < fastest.setdefault(each.option, each).figures.time_s:
                fastest[each.option] = each
        noted("\n".join(map(_so_far, found)))
        # Those with slower adapters decide nothing.
        for place, each in enumerate(fastest.values(), len(pairs)):
            advanced(place, len(pairs) + len(fastest))
            found[found.index(each)] = _under_conditions(each, request, replays)
    return found, missed


def _name(option: Option, nic: str | None) -> str:
    return option.name if nic is None else f"{option.name}, {nic}"


def _so_far(one: Offer) -> str:
    usd = "no price" if one.figures.usd is None else format_quantity(one.figures.usd, "USD")
    return f"so far: {one.name}: {format_quantity(one.figures.time_s, 's')}, {usd}; {one.winner.layout.words()}"


def _offer(request: Request, option: Option, nic: str | None, replays: Replays, peaks: Peaks) -> Offer | UnfitOption:
    asked, asked_batch = _asked(request, option, nic)
    with asked.told():
        drafts = Drafts(asked.base, peaks)
        search = fastest(drafts, asked.space, request.terms, replays=replays)
    winner = search.winner
    if winner is None:
        lines = nearest_lines(asked, usual_limits(request.limits), request.terms.memory_margin_fraction)
        return UnfitOption(name=_name(option, nic), why=" ".join([f"{search.commonest}.", *lines]))
    scenario = {"reliability": {}, **drafts.document(winner.layout)}
    with asked.told():
        failing, why = _with_failures(winner.result, scenario)
    plain = _figures(winner.result, request.tokens)
    cost = winner.result.cost
    return Offer(
        option=option,
        nic=nic,
        asked=asked,
        asked_batch=asked_batch,
        winner=winner,
        choice=search.choice,
        figures=plain if failing is None else _figures(failing, request.tokens),
        goodput_fraction=None if failing is None or failing.goodput is None else failing.goodput.goodput_fraction,
        no_failures=why,
        others={NO_FAILURES: plain},
        flags=tuple(dict.fromkeys((*(failing or winner.result).metrics.flags, *asked.usual))),
        price_lists=cost.price_lists if cost else (),
        scenario=scenario,
    )


def _asked(request: Request, option: Option, nic: str | None) -> tuple[PlanRequest, int]:
    """Return the search of one cluster, and the given batch, in place of which an adapted one may be searched."""
    overrides = [*request.overrides]
    if nic is not None:
        overrides.append(f"cluster.nics.bandwidth={nic}")
    if option.usd_per_gpu_hour is not None:
        overrides.append(f"cost.gpu_hour={option.usd_per_gpu_hour!r} USD/h")
    asking = Asking(overrides=tuple(overrides), limits=request.limits)
    return asked_for(request.model, option.node, option.n_nodes, request.tokens, asking)


def _under_conditions(offer: Offer, request: Request, replays: Replays) -> Offer:
    """Return an offer with its figures under other conditions."""
    bare = {key: value for key, value in offer.scenario.items() if key != "reliability"}
    outcomes = _outcomes(bare, _halves(offer, None if request.nics else bare), replays)
    # Failures take the same share of the time, whatever a step takes.
    longer = offer.figures.time_s / offer.others[NO_FAILURES].time_s
    others = {name: _longer(_figures(outcome, request.tokens), longer) for name, outcome in outcomes.items()}
    return replace(offer, others={**others, **offer.others})


def _halves(offer: Offer, machine: Mapping[str, Data] | None) -> dict[str, tuple[str, str, Data]]:
    """Return the section, key and value that each condition changes; without a machine none of the network."""
    found: dict[str, tuple[str, str, Data]] = {}
    if machine is not None:
        rate = line_rate(build(load_scenario(machine)).cluster.node.nic.bandwidth_bytes_per_s / 2)
        found[HALF_NETWORK] = ("cluster", "nics", {"bandwidth": rate})
    per_pass = offer.winner.layout.family.dp * offer.winner.layout.family.micro_batch_size
    if offer.asked.space.batch % (2 * per_pass) == 0:
        found[HALF_BATCH] = ("training", "global_batch_size", offer.asked.space.batch // 2)
    found[TWICE_BATCH] = ("training", "global_batch_size", 2 * offer.asked.space.batch)
    return found


def _with_failures(outcome: ReplayOutcome, scenario: Mapping[str, Data]) -> tuple[ReplayOutcome | None, str]:
    """Return a replay with the failures of a scenario, which leave its step as it is, or why they cannot be counted."""
    try:
        built = build(load_scenario(scenario))
        time_to_train_s, goodput, cost = whole_training(built, outcome.metrics)
    except ScenarioError as error:
        return None, error.message
    metrics = replace(outcome.metrics, flags=tuple(dict.fromkeys((*outcome.metrics.flags, *built.flags))))
    return replace(outcome, metrics=metrics, time_to_train_s=time_to_train_s, goodput=goodput, cost=cost), ""


def _outcomes(scenario: Mapping[str, Data], changes: Mapping[str, tuple[str, str, Data]], replays: Replays) -> dict[str, ReplayOutcome]:
    """Return the outcomes under other conditions, by name."""
    begun = list[tuple[str, Future[Replayed]]]()
    for name, (section, key, value) in changes.items():
        part = scenario[section]
        assert isinstance(part, dict)
        before = part.get(key)
        # Adapters may say more than their bandwidth.
        changed = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
        begun.append((name, replays.begin({**scenario, section: {**part, key: changed}})))
    ended = [(name, replays.end(future)) for name, future in begun]
    return {name: outcome for name, outcome in ended if isinstance(outcome, ReplayOutcome)}


def _figures(outcome: ReplayOutcome, tokens: float) -> Figures:
    cost = outcome.cost
    training = cost.training if cost else None
    return Figures(
        time_s=outcome.training_s or tokens / outcome.metrics.tokens_per_s,
        usd=training.usd if training and cost and cost.prices.usd_per_gpu_hour is not None else None,
        gpu_hours=training.gpu_hours if training else None,
        usd_per_gpu_hour=cost.prices.usd_per_gpu_hour if cost else None,
    )


def _longer(figures: Figures, times: float) -> Figures:
    scaled = [None if each is None else times * each for each in (figures.usd, figures.gpu_hours)]
    return Figures(time_s=times * figures.time_s, usd=scaled[0], gpu_hours=scaled[1], usd_per_gpu_hour=figures.usd_per_gpu_hour)


def check_options(options: Sequence[Option]) -> None:
    """Refuse fewer than two options, or one twice.

    Raises
    ------
    ScenarioError
        Says which.
    """
    if len(options) < 2:
        hint = "write --option '64 dgx-h100' --option '32 dgx-b200'; `clustersim plan` is for one cluster"
        raise ScenarioError("there is nothing to choose from", field="--option", hint=hint)
    names = [each.name for each in options]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"'{twice}' stands twice", field="--option", hint="delete one of the two")
