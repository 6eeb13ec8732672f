"""A plan, and all that shares its cluster, to a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

import numpy as np

from clustersim.apps.run.repeating import replay_in_part
from clustersim.config.constraints import MAX_PASSES
from clustersim.config.job_settings import PlannedJob
from clustersim.engine.critical_path import CriticalPath, critical_path
from clustersim.engine.folding import Folding
from clustersim.engine.jobs import Repeated
from clustersim.engine.pace import Drawn, Slowest, Timing
from clustersim.engine.passes import USUAL, ReplaySettings
from clustersim.engine.policies import PacePolicy, Synchronous
from clustersim.engine.simulate import Machine, replay
from clustersim.engine.steps import replay_steps
from clustersim.engine.uneven_ranks import UnevenRanks, class_of_ranks, division_of, jitter_of, own_parts, paces_of, policy_of, worker_ranks
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.hardware.models import Node
from clustersim.kernels.kernel_model import KernelModel
from clustersim.measure.metrics import JobReport
from clustersim.measure.steps_report import in_own_time
from clustersim.parallel.lower import lower
from clustersim.parallel.pass_costs import kernels_of
from clustersim.parallel.stage import stage_of
from clustersim.parallel.step_settings import Training
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Background, Program
from clustersim.progress import phase
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import Timeline

MAX_TASKS: Final = 2_000_000
"""Tasks of all steps that a replay takes on: about a minute of computing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Other jobs and background load on a cluster."""

    nodes: tuple[int, ...] = ()
    """Nodes of the plan itself."""
    jobs: tuple[PlannedJob, ...] = ()
    background: tuple[tuple[Background, ...], ...] = ()
    """For each entry of the scenario, its loads."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.jobs or self.background)


NOBODY: Final = Neighbours()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPlan:
    """Result of a replay."""

    timeline: Timeline
    uneven: tuple[str, ...]
    """Groups that lie unevenly in their domains."""
    alone_s: float | None = None
    """Step time without the neighbours; None where there are none."""
    jobs: tuple[JobReport, ...] = ()


def in_turn(strategy: Strategy, timeline: Timeline) -> bool:
    """Return whether a timeline is one step of a plan whose stages begin and end steps in turn."""
    return strategy.optimizer_post_validation and strategy.pp > 1 and timeline.steps is None


def in_own_time_of(strategy: Strategy, timeline: Timeline) -> Timeline:
    """Return the timeline of a plan with the time of each stage by itself, where its stages begin and end steps in turn."""
    return in_own_time(timeline) if in_turn(strategy, timeline) else timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions of a replay: number of steps, and differences between the plan's ranks."""

    uneven: UnevenRanks | None = None
    """None where every rank is like every other."""
    n_steps: int = 1
    seed: int = 0
    """Random seed of the variation from step to step."""
    settings: ReplaySettings = USUAL


ONE_EVEN_STEP: Final = Conditions()


def machine_of(training: Training, strategy: Strategy, cluster: Cluster, calibration: Calibration) -> Machine:
    """Return a cluster that computes in the precision of a training, with equal ranks."""
    kernels = kernels_of(training, strategy, cluster.node, calibration)
    return Machine(cluster=cluster, kernels=kernels, calibration=calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A plan's program on its machine, and how it is to be run."""

    program: Program
    machine: Machine
    jitter: Drawn | None
    policy: PacePolicy
    n_steps: int
    strategy: Strategy

    def step_s(self, timeline: Timeline) -> float:
        """Return the step time of a timeline."""
        return in_own_time_of(self.strategy, timeline).step_time_s

    def on_nodes(self, nodes: Sequence[int], cluster: Cluster) -> _Prepared:
        """Return the same on some nodes of a cluster."""
        machine = self.machine
        if machine.pace_of is not None:
            pace_of = np.full(cluster.n_ranks, -1, dtype=np.int64)
            pace_of[cluster.ranks_on(np.array(nodes, dtype=np.int64))] = machine.pace_of
            machine = replace(machine, pace_of=pace_of)
        return replace(self, program=on_nodes(self.program, nodes, cluster), machine=machine)

    def replay(self, background: Sequence[Background] = (), others: Sequence[Repeated] = ()) -> tuple[Timeline, tuple[str, ...]]:
        """Return the timeline of the step, or of several, and the groups that lie unevenly."""
        if self.n_steps == 1 and not self.machine.paces:
            return replay(self.program, self.machine, background, others=others)
        return replay_steps(
            self.program,
            self.machine,
            n_steps=self.n_steps,
            jitter=self.jitter,
            policy=self.policy,
            background=background,
            others=others,
        )


def _prepared(plan: Plan, cluster: Cluster, calibration: Calibration, conditions: Conditions) -> _Prepared:
    uneven, strategy, has_experts = conditions.uneven, plan.strategy, plan.model.experts is not None
    machine = replace(machine_of(plan.training, plan.strategy, cluster, calibration), settings=conditions.settings)
    folds = conditions.settings.passes.fold
    if uneven is None:
        parts = own_parts(strategy, has_experts=has_experts, folds=folds)
        folding: Folding = "classes" if plan.strategy.data_parallel.divides else "cells" if folds else "ranks"
        with phase("lower"):
            program = lower(plan, parts)
        _check_tasks(program, conditions.n_steps)
        machine = replace(machine, folding=folding)
        return _Prepared(program=program, machine=machine, jitter=None, policy=Synchronous(), n_steps=conditions.n_steps, strategy=strategy)
    division = division_of(strategy, uneven, has_experts=has_experts, folds=folds)
    known: dict[tuple[str, str], KernelModel] = {}

    def kernels(node: Node) -> KernelModel:
        kind = node.accelerator.name, node.host.name
        if kind not in known:
            known[kind] = kernels_of(plan.training, plan.strategy, node)
        return known[kind]

    machine = replace(machine, paces=paces_of(division, uneven, kernels))
    with phase("lower"):
        program = lower(plan, division.parts if plan.strategy.data_parallel.divides else None)
    if plan.strategy.data_parallel.divides and worker_ranks(strategy, division, has_experts=has_experts) is None:
        machine = replace(machine, folding="classes")
    else:
        machine = replace(machine, pace_of=class_of_ranks(division, plan.n_ranks), folding="cells" if folds else "ranks")
    _check_tasks(program, conditions.n_steps)
    return _Prepared(
        program=program,
        machine=machine,
        jitter=jitter_of(division, uneven, conditions.seed),
        policy=policy_of(stage_of(plan, 0), division),
        n_steps=conditions.n_steps,
        strategy=strategy,
    )


def _check_tasks(program: Program, n_steps: int) -> None:
    """Refuse more steps than can be replayed; one of them always can."""
    if n_steps > 1 and len(program.tasks) * n_steps > MAX_TASKS:
        raise ScenarioError(
            f"{n_steps:,} steps of {len(program.tasks):,} tasks are more than the {MAX_TASKS:,} tasks that are simulated",
            field="steps",
            hint=f"use at most {max(1, MAX_TASKS // len(program.tasks)):,}",
        )


def replay_plan(
    plan: Plan,
    cluster: Cluster,
    calibration: Calibration,
    neighbours: Neighbours = NOBODY,
    conditions: Conditions = ONE_EVEN_STEP,
) -> ReplayedPlan:
    """Return the timeline of a plan, alone or with other jobs."""
    settings = conditions.settings
    if not neighbours and conditions.uneven is None and conditions.n_steps == 1 and settings.passes.repeat:
        folding: Folding = "cells" if settings.passes.fold else "ranks"
        machine = replace(machine_of(plan.training, plan.strategy, cluster, calibration), settings=settings, folding=folding)
        found = replay_in_part(plan, machine)
        if found is not None:
            return ReplayedPlan(timeline=found[0], uneven=found[1])
    prepared = _prepared(plan, cluster, calibration, conditions)
    if neighbours:
        prepared = prepared.on_nodes(neighbours.nodes, cluster)
        if settings.contends:
            return _beside_others(prepared, cluster, calibration, neighbours)
    timeline, uneven = prepared.replay()
    return ReplayedPlan(timeline=timeline, uneven=uneven)


def critical_path_of(plan: Plan, cluster: Cluster, calibration: Calibration, conditions: Conditions) -> CriticalPath:
    """Return which chain of tasks sets the time of one synchronous step of a plan that has the cluster to itself."""
    prepared = _prepared(plan, cluster, calibration, replace(conditions, n_steps=1))
    with phase("replay"):
        return critical_path(prepared.program, prepared.machine)


def _beside_others(prepared: _Prepared, cluster: Cluster, calibration: Calibration, neighbours: Neighbours) -> ReplayedPlan:
    """Return the timeline of a plan on its own nodes, while other jobs use the rest of the cluster."""
    alone_s = prepared.step_s(prepared.replay()[0])
    _check_bursts(neighbours.background, alone_s)
    others: list[Repeated] = []
    others_alone_s: list[float] = []
    for index, job in enumerate(neighbours.jobs):
        plan = job.planned.plan
        theirs = replace(machine_of(plan.training, plan.strategy, cluster, calibration), kernels=_kernels_on(job, cluster))
        step = on_nodes(lower(plan), job.nodes, cluster)
        others.append(Repeated(name=job.name, program=step, kernels=theirs.kernels))
        others_alone_s.append(replay(step, theirs)[0].step_time_s)
        _check_steps(len(step.tasks), alone_s / others_alone_s[-1], f"jobs.{index}")
    background = [load for loads in neighbours.background for load in loads]
    timeline, uneven = prepared.replay(background, others)
    return ReplayedPlan(
        timeline=timeline,
        uneven=uneven,
        alone_s=alone_s,
        jobs=tuple(
            JobReport(
                name=job.name,
                nodes=job.nodes,
                ranks=job.planned.plan.n_ranks,
                steps=progress.steps,
                step_time_s=progress.steps_s / progress.steps if progress.steps else None,
                step_time_alone_s=step_s,
            )
            for job, progress, step_s in zip(neighbours.jobs, timeline.jobs, others_alone_s, strict=True)
        ),
    )


def _kernels_on(job: PlannedJob, cluster: Cluster) -> Timing:
    """Return how long the work of a job takes on its own nodes, which may be of another kind than those of the scenario."""
    plan, nodes = job.planned.plan, {(node.accelerator.name, node.host.name): node for node in map(cluster.node_at, job.nodes)}
    models = tuple(kernels_of(plan.training, plan.strategy, each) for _, each in sorted(nodes.items()))
    return models[0] if len(models) == 1 else Slowest(models)


def on_nodes(program: Program, nodes: Sequence[int], cluster: Cluster) -> Program:
    """Return a program on some nodes of a cluster; its hosts are those of the nodes in order, and then the dedicated ones."""
    hosts = dict(enumerate((*nodes, *range(cluster.n_nodes, cluster.n_hosts))))
    return placed(program, Placement(ranks=cluster.ranks_on(np.array(nodes, dtype=np.int64)), hosts=hosts))


def _check_bursts(background: Sequence[Sequence[Background]], step_s: float) -> None:
    for index, loads in enumerate(background):
        n_bursts = fsum(step_s / load.period_s for load in loads if load.period_s > 0.0)
        if n_bursts > MAX_PASSES:
            raise ScenarioError(
                f"{n_bursts:,.0f} bursts in one step are more than the {MAX_PASSES:,} that are simulated",
                field=f"background.{index}.period",
                hint="use a longer period, or the mean of the load without one",
            )


def _check_steps(n_tasks: int, n_steps: float, field: str) -> None:
    if n_tasks * n_steps > MAX_PASSES:
        raise ScenarioError(
            f"{n_steps:,.0f} steps of {n_tasks} tasks beside one of the scenario are more than the {MAX_PASSES:,} tasks that are simulated",
            field=field,
            hint="give the job a larger batch, so that its step is longer",
        )
