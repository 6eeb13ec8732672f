"""One run from end to end: load, build, simulate, measure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Final

from clustersim.apps.run.bound import StepBound, run_bounds
from clustersim.apps.run.intervals import with_error_bar
from clustersim.apps.run.replaying import Conditions, Neighbours
from clustersim.apps.run.result import Result
from clustersim.apps.run.simulation import simulate
from clustersim.apps.serve.deployment import build_serving
from clustersim.apps.serve.deployment_run import run_serving
from clustersim.apps.serve.serving_result import ServingResult
from clustersim.config.build import Built, build
from clustersim.config.checks import CheckResult, evaluate_checks, metric_values
from clustersim.config.cost_section import cost_report
from clustersim.config.goodput_section import goodput_report
from clustersim.config.load import ScenarioText, checked_scenario, read_source
from clustersim.config.overriding import Override, override_texts, parse_override
from clustersim.config.resolve import files_of, resolved_cluster, resolved_scenario, scenario_hash
from clustersim.config.scenario_schema import ClusterSpec
from clustersim.config.serving_scenario import checked_serving, is_serving
from clustersim.documents.check import validate_part
from clustersim.documents.text import Data
from clustersim.engine.passes import ALL_PASSES, Passes, ReplaySettings
from clustersim.errors import DomainError, ScenarioError
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import Metrics
from clustersim.notices import Flag
from clustersim.parallel.training_plan import Strategy
from clustersim.topology.cluster import TIERS
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import Timeline

ENOUGH_STEPS: Final = 20
"""Steps in which a key of the cluster shows what it does: it acts in each of them."""


def run(
    source: str | Path | Mapping[str, object],
    set: str | Sequence[str] | Mapping[str, object] = (),  # noqa: A002 - named like --set
    *,
    seed: int = 0,
    fold: bool = True,
    collapse: bool = True,
    repeat: bool = True,
) -> Result:
    """Simulate one training step, or a serving run.

    Parameters
    ----------
    source
        A path, the name of a shipped example, ``-`` for stdin, or a mapping with the same keys.
    set
        Changes such as ``"strategy.tp=4"``, as on the command line, or ``{"strategy.tp": 4}``.
    seed
        Seed of everything random: how computation varies from step to step.
    fold
        False to replay every rank by itself, as ``--no-fold`` does: the same result, slowly.
    collapse
        False to fire an event for every task, as ``--no-collapse`` does: the same result, slowly.
    repeat
        False to replay every micro-batch and step, as ``--no-repeat`` does: the same result, slowly. Of a serving run: every engine step.

    Returns
    -------
    Result
        Of a serving run a ``ServingResult``, which has figures of its own. Also when the plan does not fit in memory, or an SLO does
        not hold: see ``result.ok``.

    Raises
    ------
    ScenarioError
        When the scenario cannot be used; says what, where, and what would be right.
    InfeasibleError
        When a model that is served does not fit.

    Examples
    --------
    >>> run("llama3-8b-8xh100", set=["training.global_batch_size=64"]).gpus
    8
    """
    passes = Passes(fold=fold, collapse=collapse, repeat=repeat)
    changes = [parse_override(text) for text in override_texts(set)]
    # The kind of a result is known when the scenario is read, and most are of training.
    return run_scenario(read_source(source), changes, seed=seed, passes=passes)  # pyright: ignore[reportReturnType] - see above


def run_scenario(
    source: ScenarioText, changes: Sequence[Override], *, seed: int = 0, passes: Passes = ALL_PASSES
) -> Result | ServingResult:
    """Simulate a scenario as it was written, with changes on top; see ``run``."""
    if is_serving(source):
        return run_serving(build_serving(checked_serving(source, changes), seed=seed), every_step=not passes.repeat)
    return run_built(build(checked_scenario(source, changes)), seed=seed, passes=passes)


def run_built(built: Built, *, seed: int = 0, passes: Passes = ALL_PASSES, varies: bool = True, bound: StepBound | None = None) -> Result:
    """Simulate one training step of a scenario that has been built; see ``run``.

    Parameters
    ----------
    varies
        False where nobody asks for the spread of a contended step, nor for keys of the cluster that do nothing.
    bound
        Lower bound of the step, where it is known.
    """
    built = seeded(built, seed)
    settings = ReplaySettings(passes=passes, varies=varies)
    metrics, spans = _simulated(built, Conditions(uneven=built.uneven, n_steps=built.n_steps, seed=seed, settings=settings))
    metrics = with_error_bar(metrics, built)
    if varies:
        metrics = replace(metrics, flags=(*metrics.flags, *_idle_changes(built, metrics, seed)))
    time_to_train_s, goodput, cost = whole_training(built, metrics, seed)
    bounds = cache(partial(run_bounds, built, seed, metrics, spans, bound))
    checks: tuple[CheckResult, ...] = ()
    if built.checks:
        sections = {"bounds": bounds(), "cost": cost, "goodput": goodput}
        try:
            checks = evaluate_checks(built.checks, metric_values(metrics, time_to_train_s, sections), metrics.error_bar)
        except ScenarioError as error:
            raise built.scenario.located(error) from error
    resolved = resolved_scenario(built)
    return Result(
        metrics=metrics,
        spans=spans,
        checks=checks,
        time_to_train_s=time_to_train_s,
        lower_bound=bounds,
        cost=cost,
        goodput=goodput,
        scenario_hash=scenario_hash(resolved, seed, files_of(built)),
        resolved=resolved,
        built=built,
        seed=seed,
    )


def step_metrics(built: Built, seed: int = 0, *, regard: str = "all", limit_s: float = inf) -> Metrics:
    """Return the metrics of one training step alone: no cost, goodput, checks, use of links, or spread of a contended step.

    Parameters
    ----------
    regard
        Links that may tell ranks apart: those of the run that it is compared with, as ``EngineStats.told_apart``.
    limit_s
        Step time from which on a lower bound is enough.
    """
    built = seeded(built, seed)
    settings = ReplaySettings(varies=False, links=False, limit_s=limit_s, regard=regard)
    conditions = Conditions(uneven=built.uneven, n_steps=built.n_steps, seed=seed, settings=settings)
    return with_error_bar(_simulated(built, conditions)[0], built)


def whole_training(built: Built, metrics: Metrics, seed: int = 0) -> tuple[float | None, GoodputReport | None, CostReport | None]:
    """Return time to train, goodput and cost of a scenario, given the metrics of its step; None for sections that it lacks."""
    time_to_train_s = _time_to_train_s(built, metrics, seed)
    goodput, reliability = None, built.scenario.spec.reliability
    if built.maintained is not None and reliability is not None:
        goodput = goodput_report(built.maintained, work_s=time_to_train_s, replays=reliability.replays, seed=seed)
    return time_to_train_s, goodput, _cost(built, metrics, time_to_train_s, goodput)


def seeded(built: Built, seed: int) -> Built:
    """Return a scenario whose random parts are drawn with a seed."""
    plans = [replace(plan, strategy=_seeded(plan.strategy, seed)) for plan in (built.plan, *(job.planned.plan for job in built.jobs))]
    jobs = tuple(replace(job, planned=replace(job.planned, plan=plan)) for job, plan in zip(built.jobs, plans[1:], strict=True))
    return replace(built, plan=plans[0], jobs=jobs)


def _seeded(strategy: Strategy, seed: int) -> Strategy:
    return strategy.changed(expert_load=replace(strategy.expert_load, seed=seed))


def _time_to_train_s(built: Built, metrics: Metrics, seed: int) -> float | None:
    if built.tokens is None:
        return None
    training, tokens = built.plan.training, built.tokens
    ramp, full = training.batch_ramp, training.global_batch_size
    if ramp is None:
        return tokens / metrics.tokens_per_s
    smaller = replace(built, plan=replace(built.plan, training=training.changed(global_batch_size=ramp.start)))
    first_s = _simulated(smaller, Conditions(uneven=built.uneven, n_steps=built.n_steps, seed=seed))[0].step_time_s
    grown_s = ramp.time_s(full, training.seq_length, first_s, metrics.step_time_s)
    return grown_s + (tokens - ramp.tokens) / metrics.tokens_per_s


def _simulated(built: Built, conditions: Conditions) -> tuple[Metrics, Timeline]:
    neighbours = Neighbours(nodes=built.nodes, jobs=built.jobs, background=built.background)
    try:
        return simulate(built.plan, built.cluster, name=built.name, flags=built.flags, neighbours=neighbours, conditions=conditions)
    except DomainError as error:
        raise built.scenario.located(error) from error


def _cost(built: Built, metrics: Metrics, train_s: float | None, goodput: GoodputReport | None) -> CostReport | None:
    if built.priced is None:
        return None
    spares = (built.maintained.upkeep.recovery.spares or 0) if built.maintained else 0
    return cost_report(built.priced, metrics, tokens=built.tokens, train_s=train_s, goodput=goodput, spares=spares)


def _idle_changes(built: Built, metrics: Metrics, seed: int) -> Iterator[Flag]:
    """Yield the notices on keys of the cluster without which the machine is another, and the run the same.

    A key that sets the bandwidth of links with traffic does something, and needs no replay. Entries of lists (slow ranks, loads) are not
    left out: each would cost a replay, and a large cluster has hundreds. Slower links do nothing where no link of their tier is crossed.
    """
    own, used = cache(partial(_effects, built, seed)), {TIERS.index(use.tier) for use in metrics.links if use.bytes}
    for index, (link, ids) in enumerate(zip(built.scenario.spec.cluster.links, built.cluster.changed_links, strict=True)):
        if link.state == "up" and used.isdisjoint(built.cluster.tier_index[ids].tolist()):
            yield Flag(code="no_effect", message=f"links.{index} does nothing: no traffic crosses {'/'.join(link.between)}")
    bandwidths = _bandwidths(built.cluster, used)
    for path in _paths(built.scenario.document.data["cluster"], ("cluster",)):
        # A scenario that cannot be without a key needs it.
        with suppress(DomainError):
            other = _without(built, path)
            if other is not None and _bandwidths(other.cluster, used) == bandwidths and _effects(other, seed) == own():
                yield Flag(code="no_effect", message=f"{'.'.join(path[1:])} does nothing: the run is the same without it")


def _paths(data: Data, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all values that a cluster may lack, lists of sections apart."""
    for key, value in data.items() if isinstance(data, dict) else ():
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))
        elif not (isinstance(value, list) and any(isinstance(each, dict) for each in value)):
            yield (*above, key)


def _without(built: Built, path: Sequence[str]) -> Built | None:
    """Return a scenario without a key of its cluster; None where that is the same machine, or one of another size."""
    document = built.scenario.document.without(path)
    cluster = validate_part(ClusterSpec, document.data["cluster"], document, ("cluster",))
    spec = built.scenario.spec.model_copy(update={"cluster": cluster})
    other = build(replace(built.scenario, document=document, spec=spec), others=False)
    # A resolved scenario leaves out what its topology does not read.
    same = other.cluster.fabric == built.cluster.fabric and resolved_cluster(other) == resolved_cluster(built)
    return None if same or other.cluster.n_ranks != built.cluster.n_ranks else other


def _bandwidths(cluster: Cluster, used: Collection[int]) -> set[tuple[int, float]]:
    """Return the bandwidths of links of some tiers, in bytes/s, with the tier of each."""
    kinds = zip(cluster.tier_index.values.tolist(), cluster.bandwidth_bytes_per_s.values.tolist(), strict=True)
    return {(tier, bandwidth_bytes_per_s) for tier, bandwidth_bytes_per_s in kinds if tier in used}


def _effects(built: Built, seed: int) -> tuple[object, ...]:
    """Return all that a cluster changes in a run: figures of the step, used links, upkeep and prices; alone without contention."""
    settings = ReplaySettings(contends=bool(built.jobs or built.background), varies=False)
    built = seeded(built, seed)
    n_steps = min(built.n_steps, ENOUGH_STEPS)
    metrics, timeline = _simulated(built, Conditions(uneven=built.uneven, n_steps=n_steps, seed=seed, settings=settings))
    figures = [getattr(metrics, each.name) for each in fields(metrics) if each.name not in ("engine", "flags", "links")]
    return (*figures, [use for use in metrics.links if use.bytes], timeline.links, built.maintained, built.priced)
