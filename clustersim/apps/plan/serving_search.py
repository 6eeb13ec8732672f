"""The fewest GPUs that meet the SLO of a service: best bound first, until no remaining candidate can do with fewer."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from typing import Final

import numpy as np

from clustersim.apps.plan.asking import no_price_of, priced
from clustersim.apps.plan.serving_bounds import OF_BATCH, Candidate, Values, but_for, least_replicas, refused_beyond, replica_bounds
from clustersim.apps.serve.deployment import BuiltServing, build_serving
from clustersim.apps.serve.deployment_run import resolved_serving, run_serving
from clustersim.apps.serve.scenario_requests import DrawnRequests, asked_requests
from clustersim.config.load import ScenarioText
from clustersim.config.machine import hardware_of
from clustersim.config.overriding import Override, parse_override
from clustersim.config.serving_scenario import ServingScenarioSpec, checked_serving
from clustersim.errors import DomainError, InfeasibleError, ScenarioError
from clustersim.measure.serving_metrics import ServingMetrics, SloCheck
from clustersim.progress import counted, noted, phase
from clustersim.serving.step_model import TermStepModel
from clustersim.units.divisors import count_text

_OF_SERVING: Final = ("engine", "precision", "kv_precision", "tp", "ep", "dp", "max_num_seqs", "max_batched_tokens", "router")
KEYS: Final[Mapping[str, str]] = {"node": "cluster.node"} | {name: f"serving.{name}" for name in _OF_SERVING}
"""Dimensions of the search, each with its key of a scenario."""
DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {"tp": ("1", "2", "4", "8"), "max_batched_tokens": ("2048", "8192")}
"""Values that are searched by default; of all other keys those of the scenario."""
_MAY_CONTRADICT: Final = tuple(f"serving.{name}" for name in ("tp", "ep", "dp", "max_num_seqs", "max_batched_tokens", "replicas"))
"""Keys whose values may be right one by one and contradict each other in a combination."""
MOST_REPLAYS: Final = 200
_FIRST: Final = 8
"""Candidates that are tried with growing numbers of replicas until one meets the SLO."""
_MORE: Final = 4
"""Replicas more that the best deployment is tried with until it meets the SLO at the upper ends of all intervals."""
_OF_OTHERS: Final = ("max_num_seqs", "router")
"""Dimensions that mean nothing to a request by itself."""
_APART_S: Final = 3600.0
"""Time between requests that do not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A deployment that was simulated."""

    candidate: Candidate
    replicas: int
    metrics: ServingMetrics

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.gpus_each

    @property
    def n_nodes(self) -> int:
        """Nodes that have them."""
        return -(-self.gpus // self.candidate.gpus_per_node)

    @property
    def overrides(self) -> tuple[Override, ...]:
        """Changes of the scenario that make it this deployment."""
        texts = (f"{KEYS[name]}={value}" for name, value in self.candidate.values)
        changes = tuple(map(parse_override, (*texts, f"serving.replicas={self.replicas}")))
        return (*changes, Override(path=("cost",), value=self.candidate.cost, text="cost")) if self.candidate.cost is not None else changes

    @property
    def keeps(self) -> bool:
        """Whether every SLO is met, and the queue does not grow without end."""
        slo = self.metrics.slo
        return slo is not None and slo.met and not self.metrics.overloaded

    @property
    def checks(self) -> tuple[SloCheck, ...]:
        """SLOs, and the latencies found."""
        return self.metrics.slo.checks if self.metrics.slo is not None else ()

    @property
    def decided(self) -> bool:
        """Whether the error bars change nothing about any SLO."""
        return all(check.decided for check in self.checks)

    @property
    def excess(self) -> float:
        """Largest found latency over its limit."""
        return max((check.found_s / check.limit_s for check in self.checks if check.found_s is not None), default=inf)

    @property
    def order(self) -> tuple[int, float]:
        """GPUs, and room below the limits: less is better."""
        return self.gpus, self.excess

    @property
    def broken(self) -> tuple[str, ...]:
        """SLOs that are missed."""
        return tuple(check.name for check in self.checks if not check.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """The fewest GPUs that were found, and why nothing else has fewer."""

    best: Replayed | None
    nearest: Replayed | None
    """Deployment least beyond the limits, where none keeps them."""
    own: Replayed | None
    """That of the scenario itself; None where it does not fit in memory."""
    least_gpus: float
    """No candidate that meets the SLO has fewer; infinite where none can meet it."""
    replayed: tuple[Replayed, ...]
    n_candidates: int
    n_pruned: int
    """Candidates that no replay was needed for."""
    rejected: Mapping[str, int]
    """Candidates that cannot run, or cannot meet the SLO with any number of replicas, by reason."""
    most_gpus: int
    assumed: tuple[str, ...]
    """Values that were assumed."""
    cautions: tuple[str, ...]
    """Unknown prices, of which none is counted."""

    @property
    def kinds(self) -> tuple[Replayed, ...]:
        """The deployment of each kind that meets the SLOs with the fewest GPUs, the best first."""
        firsts: dict[Values, Replayed] = {}
        for each in sorted((each for each in self.replayed if each.keeps), key=lambda each: each.order):
            firsts.setdefault(each.candidate.kind, each)
        return tuple(firsts.values())

    @property
    def surely(self) -> Replayed | None:
        """The fewest GPUs that meet the SLOs at the upper ends of all intervals too; None where none that was replayed does."""
        return min((each for each in self.replayed if each.keeps and each.decided), key=lambda each: each.order, default=None)

    @property
    def proven(self) -> bool:
        """Whether nothing that is left can do with fewer."""
        return self.least_gpus >= (self.best.gpus if self.best is not None else inf)

    @property
    def frontier(self) -> tuple[Replayed, ...]:
        """Deployments that meet the SLO and are on the frontier of tokens per GPU and speed per user."""
        kept = sorted(
            (each for each in self.replayed if each.keeps),
            key=lambda each: (each.metrics.tpot_s.mean if each.metrics.tpot_s else inf, -each.metrics.output_tokens_per_s_per_gpu),
        )
        found: list[Replayed] = []
        for each in kept:
            if not found or each.metrics.output_tokens_per_s_per_gpu > found[-1].metrics.output_tokens_per_s_per_gpu:
                found.append(each)
        return tuple(found)


@dataclass(slots=True)
class _ServingSearch:
    source: ScenarioText
    overrides: tuple[Override, ...]
    most_gpus: int
    most_replays: int
    asked: DrawnRequests | None = None
    notes: dict[str, bool] = field(default_factory=dict[str, bool])
    """Notices on prices, and whether one is a caution."""
    rejected: dict[tuple[tuple[str, str], ...], str] = field(default_factory=dict[tuple[tuple[str, str], ...], str])
    """Why deployments cannot run or cannot meet the SLO."""
    done: dict[tuple[Candidate, int], Replayed] = field(default_factory=dict[tuple[Candidate, int], Replayed])
    apart: dict[Values, Replayed] = field(default_factory=dict[Values, Replayed])
    """Requests that never meet, by what a request by itself depends on."""
    models: dict[Values, TermStepModel] = field(default_factory=dict[Values, TermStepModel])
    """Step model of each kind of deployment, which remembers its terms."""

    def built(self, values: Sequence[tuple[str, str]], replicas: int, nodes: int) -> BuiltServing:
        texts = [f"{KEYS[name]}={value}" for name, value in values]
        changes = [*self.overrides, *map(parse_override, (*texts, f"serving.replicas={replicas}", f"cluster.nodes={nodes}"))]
        scenario = checked_serving(self.source, changes)
        cards = [node.accelerator for node, _ in hardware_of(scenario.spec.cluster, scenario.document).kinds]
        base, unlisted, note = priced(scenario.document.data, scenario.spec.cost, cards)
        self.notes.update(dict.fromkeys(filter(None, (note, unlisted and no_price_of(unlisted))), bool(unlisted)))
        if base is not scenario.document.data:
            changes.append(Override(path=("cost",), value=base["cost"], text="cost"))
            scenario = checked_serving(self.source, changes)
        if self.asked is None:
            self.asked = asked_requests(scenario.spec.requests, scenario.folder, 0)
        built = build_serving(scenario, asked=self.asked)
        model = self.models.setdefault(but_for(values, OF_BATCH), built.pools[0].model)
        return replace(built, pools=tuple(replace(pool, model=model) for pool in built.pools))

    def candidate(self, values: Sequence[tuple[str, str]]) -> Candidate | None:
        """Return a candidate with its bound; None, counted by reason, where it cannot run or cannot meet the SLO."""
        try:
            found = self.bounded(values)
        except InfeasibleError:
            return self._reject(values, "memory: weights and one request do not fit")
        except DomainError as error:
            key = error.field if isinstance(error, ScenarioError) else None
            if key not in _MAY_CONTRADICT:
                raise
            return self._reject(values, f"{key}: sizes do not divide, or batch limits contradict each other")
        return self._reject(values, found.binds) if found.least_replicas * found.gpus_each > self.most_gpus else found

    def bounded(self, values: Sequence[tuple[str, str]]) -> Candidate:
        """Return a candidate with its bound, infinite where requests are too long."""
        built = self.built(values, 1, self.most_gpus)
        slo, serving = built.scenario.spec.slo, built.scenario.spec.serving
        assert slo is not None
        least, binds = least_replicas(built, replica_bounds(built), slo)
        if (too_long := refused_beyond(built, slo)) is not None:
            least, binds = inf, too_long
        return Candidate(
            values=tuple(values),
            gpus_each=built.pools[0].layout.n_accelerators,
            gpus_per_node=built.node.n_accelerators,
            machine=built.node.name,
            precision=f"weights in {serving.precision}, KV cache in {serving.kv_precision}",
            least_replicas=least,
            binds=binds,
            cost=built.scenario.document.data.get("cost"),
        )

    def own(self, names: Iterable[str]) -> tuple[tuple[tuple[str, str], ...], int] | None:
        """Return values and replicas of the scenario itself; None where it does not fit in memory."""
        try:
            built = build_serving(checked_serving(self.source, (*self.overrides, parse_override("cost=null"))))
        except InfeasibleError:
            return None
        serving = resolved_serving(built)["serving"]
        assert isinstance(serving, dict)
        values = ((name, built.node.name if name == "node" else str(serving[name])) for name in names)
        return tuple(values), built.pools[0].n_replicas

    def _reject(self, values: Sequence[tuple[str, str]], reason: str) -> None:
        self.rejected[tuple(values)] = reason

    def replay(self, candidate: Candidate, replicas: int) -> Replayed:
        if (key := (candidate, replicas)) not in self.done:
            nodes = -(-replicas * candidate.gpus_each // candidate.gpus_per_node)
            metrics = run_serving(self.built(candidate.values, replicas, nodes)).metrics
            self.done[key] = Replayed(candidate=candidate, replicas=replicas, metrics=metrics)
            counted(f"{len(self.done)} of at most {self.most_replays} runs")
            best = min((each for each in self.done.values() if each.keeps), key=lambda each: each.order, default=None)
            if best is not None:
                name = " ".join(f"{key}={value}" for key, value in best.candidate.values)
                noted(f"best so far: {name} replicas={best.replicas}, {count_text(best.gpus, 'GPU')}, not proven")
        return self.done[key]

    def is_hopeless(self, candidate: Candidate) -> bool:
        """Return whether an SLO is missed even if every request has a replica to itself, so that no number of replicas meets it."""
        if broken := self.alone(candidate).broken:
            self._reject(candidate.values, f"{', '.join(broken)}: a request by itself takes longer")
        return bool(broken)

    def alone(self, candidate: Candidate) -> Replayed:
        """Return the replay in which every request has a replica to itself."""
        if (key := but_for(candidate.values, _OF_OTHERS)) not in self.apart:
            built = self.built(candidate.values, 1, self.most_gpus)
            requests = built.asked.requests
            lone = replace(requests, arrival_s=_APART_S * np.arange(len(requests), dtype=np.float64), concurrency=None)
            metrics = run_serving(replace(built, asked=replace(built.asked, requests=lone))).metrics
            self.apart[key] = Replayed(candidate=candidate, replicas=1, metrics=metrics)
        return self.apart[key]

    def others(self, candidates: Sequence[Candidate], best: Replayed) -> None:
        """Replay the first candidate of each other kind, and the best one with more replicas where the error bars ask for them."""
        firsts: dict[Values, Candidate] = {}
        for candidate in candidates:
            firsts.setdefault(candidate.kind, candidate)
        for candidate in firsts.values():
            replicas = max(int(candidate.least_replicas), best.gpus // candidate.gpus_each)
            if candidate.kind != best.candidate.kind:
                self._until(candidate, range(replicas, replicas + _MORE), lambda found: found.keeps)
        if not best.decided and self.alone(best.candidate).decided:
            self._until(best.candidate, range(best.replicas + 1, best.replicas + 1 + _MORE), lambda found: found.keeps and found.decided)

    def _until(self, candidate: Candidate, replicas: Sequence[int], enough: Callable[[Replayed], bool]) -> Replayed | None:
        for count in replicas:
            if count * candidate.gpus_each > self.most_gpus or len(self.done) >= self.most_replays:
                return None
            found = self.replay(candidate, count)
            if enough(found):
                return found
            if self.is_hopeless(candidate):
                return None
        return None

    def first(self, candidates: Sequence[Candidate]) -> Replayed | None:
        """Return the first deployment that meets the SLO, doubling the replicas."""
        for candidate in candidates[:_FIRST]:
            doubled = [int(candidate.least_replicas) << times for times in range(self.most_gpus.bit_length())]
            if (found := self._until(candidate, doubled, lambda found: found.keeps)) is not None:
                return found
        return None

    def run(self, candidates: Sequence[Candidate]) -> tuple[Replayed | None, float]:
        """Return the best deployment, and the least GPUs of any other candidate that meets the SLO."""
        best = self.first(candidates)
        heap = [(each.least_replicas * each.gpus_each, number, int(each.least_replicas)) for number, each in enumerate(candidates)]
        heapq.heapify(heap)
        while heap and (best is None or heap[0][0] < best.gpus):
            gpus, number, replicas = heap[0]
            if len(self.done) >= self.most_replays:
                return best, gpus
            heapq.heappop(heap)
            candidate = candidates[number]
            found = self.replay(candidate, replicas)
            if found.keeps:
                best = found
                continue
            more = replicas + 1
            if more * candidate.gpus_each <= self.most_gpus and not self.is_hopeless(candidate):
                heapq.heappush(heap, (more * candidate.gpus_each, number, more))
        return best, inf if best is None else best.gpus


def plan_serving(
    source: ScenarioText,
    overrides: Sequence[Override] = (),
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    most_gpus: int = 64,
    most_replays: int = MOST_REPLAYS,
) -> ServingPlan:
    """Return the fewest GPUs with which requests are answered within the SLOs.

    Deployments are bounded first; what has the least bound is replayed, and where it misses an SLO, again with one replica more. The
    search ends when the least bound that is left is not below the best deployment. That more replicas never do worse is not assumed; but
    where requests that never overlap miss an SLO, more replicas are not tried.

    Parameters
    ----------
    source
        A serving scenario with ``slo``.
    only
        Values of ``node``, ``engine``, ``precision``, ``tp`` and others of ``KEYS``.
    """
    _check_open(checked_serving(source, overrides).spec)
    search = _ServingSearch(source=source, overrides=tuple(overrides), most_gpus=most_gpus, most_replays=most_replays)
    with phase("bound deployments"):
        searched = {**DEFAULTS, **(only or {})}
        combinations = list(_combinations(searched))
        own = search.own(searched)
        if own is not None and all(only is None or value in only.get(name, (value,)) for name, value in own[0]):
            combinations = list(dict.fromkeys((*combinations, own[0])))
        bounded = [candidate for values in combinations if (candidate := search.candidate(values)) is not None]
    candidates = sorted(bounded, key=lambda each: (each.least_replicas * each.gpus_each, each.gpus_each))
    with phase("replay deployments"):
        best, least_gpus = search.run(candidates)
        if best is not None:
            search.others(candidates, best)
        yours = None if own is None else search.replay(search.bounded(own[0]), own[1])
    replayed = tuple(each for each in search.done.values() if each.candidate in candidates and each.gpus <= most_gpus)
    best = min((each for each in replayed if each.keeps), key=lambda each: each.order, default=None)
    nearest = min(replayed, key=lambda each: (each.excess, each.gpus)) if best is None and replayed else None
    return ServingPlan(
        best=best,
        nearest=nearest,
        own=yours,
        least_gpus=least_gpus,
        replayed=replayed,
        n_candidates=len(combinations),
        n_pruned=len(combinations) - len({each.candidate for each in replayed}),
        rejected=dict(sorted(Counter(search.rejected.values()).items())),
        most_gpus=most_gpus,
        assumed=tuple(note for note, is_caution in search.notes.items() if not is_caution),
        cautions=tuple(note for note, is_caution in search.notes.items() if is_caution),
    )


def _check_open(spec: ServingScenarioSpec) -> None:
    if spec.slo is None:
        hint = "write the required latencies, such as slo: {ttft_p99: 2 s, tpot_p99: 50 ms}"
        raise ScenarioError("'slo' is missing", field="slo", hint=hint)
    if spec.serving.disaggregated is not None or spec.serving.pp > 1:
        key = "pp" if spec.serving.pp > 1 else "disaggregated"
        raise ScenarioError(f"plans with {key} are not searched", field=f"serving.{key}", hint="delete it, or compare by sweep")


def _combinations(values: Mapping[str, Sequence[str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    for name in values:
        if name not in KEYS:
            raise ScenarioError(f"'{name}' is not searched", field="--only", hint=f"use {', '.join(KEYS)}")
    for combination in product(*values.values()):
        yield tuple(zip(values, combination, strict=True))
