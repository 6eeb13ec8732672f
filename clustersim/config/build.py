"""A checked scenario to the objects that are simulated: model, cluster, plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clustersim.config.background_loads import background_of
from clustersim.config.checks import given_by, parse_checks
from clustersim.config.constraints import check_size
from clustersim.config.cost_section import Priced, priced_nodes
from clustersim.config.goodput_section import Maintained, maintained_job
from clustersim.config.job_settings import Planned, PlannedJob, allocate_nodes, jobs_of
from clustersim.config.keys import placed
from clustersim.config.load import Scenario
from clustersim.config.machine import adapter_flags, hardware_of, host_flags, link_changes, routing_flags
from clustersim.config.node_groups import ConstantsFile, with_constants
from clustersim.config.planning import plan_on, server_hosts
from clustersim.config.scenario_schema import ScenarioSpec
from clustersim.config.stragglers import jitter_of, slowdowns_of
from clustersim.engine.uneven_ranks import UnevenRanks
from clustersim.errors import DomainError, ScenarioError
from clustersim.expressions.parse import Condition
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.models import Node
from clustersim.notices import Flag
from clustersim.parallel.contributors import CONTRIBUTORS
from clustersim.parallel.stage import stages_of
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.program.program import Background
from clustersim.topology.cluster_wiring import cluster_of
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model
from clustersim.workloads.reading.model_spec import LoadedModel

STEPS: Final = 50
"""Default number of replayed steps where they differ: the mean is then known to a seventh of the spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """Everything that one run needs, nothing left open."""

    scenario: Scenario
    plan: Plan
    cluster: Cluster
    loaded: LoadedModel
    nodes: tuple[int, ...]
    """Nodes of the plan; all of the cluster where there are no other jobs."""
    jobs: tuple[PlannedJob, ...]
    background: tuple[tuple[Background, ...], ...]
    """For each entry of the scenario, its loads."""
    uneven: UnevenRanks | None
    """Differences between the ranks of the plan; None where there are none, and workers go together."""
    n_steps: int
    checks: tuple[Condition, ...]
    maintained: Maintained | None
    """Handling of failures; None without a reliability section."""
    priced: Priced | None
    """Prices and power; None without the section."""
    flags: tuple[Flag, ...]
    planned_flags: tuple[Flag, ...]
    """Settings of model, training and strategy that the scenario leaves open."""
    constants: ConstantsFile | None = None
    """Measured constants of the user's own; None for the shipped ones."""

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name

    @property
    def tokens(self) -> float | None:
        """Total budget of tokens, if one was given."""
        return self.scenario.spec.training.tokens


def build(scenario: Scenario, *, constants: Mapping[str, Calibration] | None = None, others: bool = True) -> Built:
    """Return model, cluster and plan of a scenario, with every default filled in.

    Parameters
    ----------
    constants
        By generation of accelerators, calibrations to use in place of the shipped ones, for studies that ask what others would predict.
    others
        False where the first mistake is enough.

    Raises
    ------
    ScenarioError
        When values contradict each other, with the place of the one to change.
    """
    try:
        return _build(scenario, constants or {})
    except DomainError as error:
        raise (scenario.located(error) if others else placed(error, scenario.document)) from error


def _build(scenario: Scenario, constants: Mapping[str, Calibration]) -> Built:
    spec = scenario.spec
    checks = _checks(scenario)
    hardware = hardware_of(spec.cluster, scenario.document)
    hardware = replace(hardware, kinds=with_constants(constants, hardware.kinds))
    node, n_nodes = hardware.node, hardware.n_nodes
    check_size(n_nodes, node.n_accelerators)
    allocation = allocate_nodes(spec.jobs, n_nodes)
    nodes = hardware.nodes
    own_nodes = tuple(nodes[place] for place in allocation.own)
    planned = plan_on(scenario, own_nodes, hardware.fabric)
    servers = server_hosts(planned.plan.strategy.data_parallel, node, len(allocation.own))
    cluster = cluster_of(hardware.kinds, hardware.fabric, servers=servers, changes=link_changes(spec.cluster))
    _check_placed(planned.plan.strategy, planned.plan.model, cluster, allocation.own)
    own_pace = planned.plan.strategy.data_parallel.own_pace
    n_steps, steps_flags = _steps(spec, own_pace=own_pace)
    n_expected = planned.plan.n_ranks if n_steps == 1 and not own_pace else None
    uneven = _uneven(spec, nodes, dict(zip(allocation.own, own_nodes, strict=True)), own_pace=own_pace, n_expected=n_expected)

    def plan(inner: Scenario, places: Sequence[int]) -> Planned:
        inside = plan_on(inner, [nodes[place] for place in places], hardware.fabric)
        _check_placed(inside.plan.strategy, inside.plan.model, cluster, places)
        return inside

    jobs = jobs_of(scenario, node, allocation, plan)
    stages = stages_of(planned.plan)
    maintained = maintained_job(spec.reliability, stages[0], own_nodes) if spec.reliability else None
    priced = priced_nodes(spec.cost, own_nodes, scenario.folder) if spec.cost else None
    return Built(
        scenario=scenario,
        plan=planned.plan,
        cluster=cluster,
        loaded=planned.loaded,
        nodes=allocation.own,
        jobs=jobs,
        background=background_of(spec.background, cluster),
        uneven=uneven,
        n_steps=n_steps,
        checks=checks,
        maintained=maintained,
        priced=priced,
        flags=(
            *planned.flags,
            *steps_flags,
            *_expected_flags(uneven, n_expected),
            *host_flags(stages, cluster),
            *routing_flags(cluster),
            *adapter_flags(cluster),
            *_unseen_flags(hardware.unseen),
            *(maintained.flags if maintained else ()),
            *(priced.flags if priced else ()),
            *(flag for job in jobs for flag in job.planned.flags),
        ),
        planned_flags=planned.flags,
        constants=hardware.constants,
    )


def _check_placed(strategy: Strategy, model: Model, cluster: Cluster, nodes: Sequence[int]) -> None:
    """Refuse settings that a technique does not support on some nodes of the cluster."""
    for contributor in CONTRIBUTORS:
        contributor.refuse_placed(strategy, model=model, cluster=cluster, nodes=nodes)


def _uneven(
    spec: ScenarioSpec, nodes: Sequence[Node], own: Mapping[int, Node], *, own_pace: bool, n_expected: int | None
) -> UnevenRanks | None:
    """Return the differences between the ranks of a plan on some of the nodes.

    Parameters
    ----------
    n_expected
        Ranks that wait for each other, where one step is to be the expected one; None where jitter is drawn.
    """
    per_node = nodes[0].n_accelerators
    slowdowns = slowdowns_of(spec.cluster.stragglers, [node.n_accelerators for node in nodes]) if spec.cluster.stragglers else {}
    place_of = {node: place for place, node in enumerate(own)} if slowdowns else {}
    for rank in slowdowns:
        if rank // per_node not in place_of:
            raise ScenarioError(
                f"rank {rank} is on node {rank // per_node}, which belongs to another job",
                field="cluster.stragglers",
                hint="name ranks of the scenario's own job",
            )
    jitter = jitter_of(spec.cluster.jitter)
    expected = jitter is not None and n_expected is not None
    uneven = UnevenRanks(
        slowdowns={place_of[rank // per_node] * per_node + rank % per_node: factor for rank, factor in slowdowns.items()},
        nodes=tuple(own.values()),
        jitter=None if expected else jitter,
        waiting=jitter.largest(n_expected) if jitter is not None and n_expected is not None else 1.0,
    )
    return None if uneven.is_even and not own_pace else uneven


def _steps(spec: ScenarioSpec, *, own_pace: bool) -> tuple[int, tuple[Flag, ...]]:
    """Return the number of replayed steps: one, unless steps differ or more were requested."""
    if spec.steps is not None:
        return spec.steps, ()
    if jitter_of(spec.cluster.jitter) is None and not own_pace:
        return 1, ()
    return STEPS, (Flag(code="assumed_steps", message=f"no number of steps is given: {STEPS} are replayed"),)


def _expected_flags(uneven: UnevenRanks | None, n_expected: int | None) -> tuple[Flag, ...]:
    if uneven is None or uneven.waiting == 1.0:
        return ()
    message = f"one step is the expected one: computation takes {uneven.waiting:.4g} times as long, as the slowest of {n_expected:,} ranks"
    return (Flag(code="expected_jitter", message=message),)


def _unseen_flags(names: tuple[str, ...]) -> tuple[Flag, ...]:
    if not names:
        return ()
    return (Flag(code="unseen_figures", message=f"not seen in a source, only remembered or assumed: {', '.join(names)}"),)


def _checks(scenario: Scenario) -> tuple[Condition, ...]:
    texts = scenario.spec.checks
    places = [scenario.document.place(("checks", index)) for index in range(len(texts))]
    return parse_checks(texts, given_by(scenario.spec), places)
