"""Replays of layouts, two at a time where they take long, also on a cluster with a tenth more of one of its resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from types import MappingProxyType, TracebackType
from typing import Final

from clustersim.apps.run.bound import StepBound, run_bound
from clustersim.apps.run.result import Result
from clustersim.apps.run.running import run_built
from clustersim.apps.study.pools import InlineExecutor, LocalPool, usable_cores
from clustersim.config.build import Built, build
from clustersim.config.load import load_scenario
from clustersim.config.machine import link_changes
from clustersim.documents.text import Data
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Node
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import BoundsReport, Metrics
from clustersim.topology.cluster_wiring import cluster_of

MORE: Final = 1.1


def _products(node: Node) -> Node:
    peaks = {precision: MORE * rate for precision, rate in node.accelerator.peak_flops_per_s.items()}
    return replace(node, accelerator=replace(node.accelerator, peak_flops_per_s=MappingProxyType(peaks)))


def _memory(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, memory_bandwidth_bytes_per_s=MORE * card.memory_bandwidth_bytes_per_s))


def _scale_up(node: Node) -> Node:
    card = node.accelerator
    return replace(node, accelerator=replace(card, scale_up_bandwidth_bytes_per_s=MORE * card.scale_up_bandwidth_bytes_per_s))


def _network(node: Node, factor: float = MORE) -> Node:
    return replace(node, nic=replace(node.nic, bandwidth_bytes_per_s=factor * node.nic.bandwidth_bytes_per_s))


NETWORK: Final = "network bandwidth"
HALF_NETWORK: Final = "half the network bandwidth"
RESOURCES: Final[Mapping[str, Callable[[Node], Node]]] = MappingProxyType(
    {"rate of matrix products": _products, "memory bandwidth": _memory, "scale-up bandwidth": _scale_up, NETWORK: _network}
)
"""Parts of the hardware that are made a tenth larger, by their names for people; switches grow with adapters."""
UPLINKS: Final = "uplinks of leaf switches"
"""These too, where they are fewer than what hangs below them."""


def with_more(built: Built, resource: str) -> Built:
    """Return a scenario on a cluster with a tenth more of a resource of ``RESOURCES``, or ``UPLINKS``; or with ``HALF_NETWORK``."""
    kinds, fabric = built.cluster.kinds, built.cluster.fabric
    if resource == UPLINKS:
        fabric = replace(fabric, oversubscription=max(1.0, fabric.oversubscription / MORE))
    elif resource == HALF_NETWORK:
        kinds = tuple((_network(node, 0.5), count) for node, count in kinds)
    else:
        kinds = tuple((RESOURCES[resource](node), count) for node, count in kinds)
    return replace(built, cluster=cluster_of(kinds, fabric, changes=link_changes(built.scenario.spec.cluster)))


def resources(built: Built) -> tuple[str, ...]:
    """Return the resources that a cluster has, and of which more may make a step shorter."""
    several = built.cluster.n_nodes > 1
    found = [name for name, change in RESOURCES.items() if several or change is not _network]
    return (*found, *((UPLINKS,) if several and built.cluster.fabric.oversubscription > 1.0 else ()))


AT_ONCE: Final = 2
"""Replays that are under way before the first of them is looked at, by any number of processes: the search does not depend on that."""
PATIENCE_S: Final = 4.0
"""Time after which replays get their own processes, which take a second to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """Results of a run that a search stores: all but its timeline."""

    metrics: Metrics
    bounds: BoundsReport
    cost: CostReport | None
    goodput: GoodputReport | None
    time_to_train_s: float | None
    lacks_host_memory: bool

    @property
    def step_time_s(self) -> float:
        """As replayed."""
        return self.metrics.step_time_s

    @property
    def training_s(self) -> float | None:
        """Time of the whole training, with failures where they are counted; None without a budget of tokens."""
        failing = self.goodput.time_to_train if self.goodput else None
        return failing.mean_s if failing else self.time_to_train_s


def outcome_of(result: Result) -> ReplayOutcome:
    """Return the stored part of a run."""
    return ReplayOutcome(
        metrics=result.metrics,
        bounds=result.bounds,
        cost=result.cost,
        goodput=result.goodput,
        time_to_train_s=result.time_to_train_s,
        lacks_host_memory=bool(result.host_shortages),
    )


Replayed = ReplayOutcome | StepBound | str
"""Outcome of a replay; a bound that made the replay needless; or the reason why the scenario cannot run."""


def replayed(document: Mapping[str, Data], resource: str | None = None, limit_s: float = inf) -> Replayed:
    """Return the outcome of a scenario, or of it with a tenth more of a resource, unless no step of it is shorter than a limit."""
    try:
        built = build(load_scenario(document))
        built = built if resource is None else with_more(built, resource)
        # Without a limit the bound is the first round of the replay.
        bound = run_bound(built) if limit_s < inf else None
        return bound if bound and bound.bound_s >= limit_s else outcome_of(run_built(built, varies=False, bound=bound))
    except ScenarioError as error:
        return error.message


Asked = tuple[Mapping[str, Data], str | None, float]
"""Arguments of :func:`replayed`."""


def _answers(ended: tuple[Asked, Replayed], asked: Asked) -> bool:
    """Return whether an earlier replay answers a question."""
    of, outcome = ended
    return of[:2] == asked[:2] and not (isinstance(outcome, StepBound) and outcome.bound_s < asked[2])


@dataclass(slots=True)
class Replays:
    """Takes scenarios and gives their outcomes; ends the processes that it has started."""

    _spent_s: float = 0.0
    _pool: LocalPool | None = None
    _asked: dict[int, Asked] = field(default_factory=dict[int, Asked])
    _ended: list[tuple[Asked, Replayed]] = field(default_factory=list[tuple[Asked, Replayed]])

    def __enter__(self) -> Replays:
        """Begin without processes."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """End all processes."""
        if self._pool is not None:
            self._pool.stop()
            self._pool = None

    def begin(self, document: Mapping[str, Data], resource: str | None = None, limit_s: float = inf) -> Future[Replayed]:
        """Begin a replay, as :func:`replayed` does it."""
        asked = document, resource, limit_s
        known = next((ended[1] for ended in self._ended if _answers(ended, asked)), None)
        if known is not None:
            future = Future[Replayed]()
            future.set_result(known)
            return future
        if self._pool is None and self._spent_s > PATIENCE_S and usable_cores() > 1:
            self._pool = LocalPool(AT_ONCE)
        if self._pool is None:
            began_s = perf_counter()
            future = InlineExecutor().submit(replayed, *asked)
            self._spent_s += perf_counter() - began_s
        else:
            try:
                future = self._pool.executor.submit(replayed, *asked)
            except BrokenProcessPool:
                self._pool.renew()
                future = self._pool.executor.submit(replayed, *asked)
        self._asked[id(future)] = asked
        return future

    def end(self, future: Future[Replayed]) -> Replayed:
        """Return what has come of a replay; one whose process has died is done again here."""
        asked = self._asked.pop(id(future), None)
        try:
            outcome = future.result()
        except BrokenProcessPool:
            if asked is None:
                raise
            outcome = replayed(*asked)
        if asked is not None:
            self._ended.append((asked, outcome))
        return outcome
