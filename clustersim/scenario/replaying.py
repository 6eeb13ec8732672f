"""A plan, and all that shares its cluster, to a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from clustersim.engine.jobs import OtherJob
from clustersim.engine.simulate import Machine, replay
from clustersim.errors import ScenarioError
from clustersim.hardware.calibration import Calibration
from clustersim.kernels.model import KernelModel
from clustersim.program.background import Background
from clustersim.program.placing import Placement, placed
from clustersim.program.program import Program
from clustersim.report.metrics import JobReport
from clustersim.scenario.constraints import MAX_PASSES
from clustersim.scenario.jobs import Job
from clustersim.strategy.lower import lower
from clustersim.strategy.plan import Plan
from clustersim.topology.cluster import Cluster
from clustersim.trace.timeline import Timeline

ATTENTION_PRECISION: Final = {"fp8": "bf16"}
"""Fused attention stays in 16 bits when the matrix products run in fp8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What else there is on a cluster."""

    nodes: tuple[int, ...]
    """Of the plan itself."""
    jobs: tuple[Job, ...] = ()
    background: tuple[tuple[Background, ...], ...] = ()
    """For each entry of the scenario, its loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it."""

    timeline: Timeline
    uneven: tuple[str, ...]
    """Groups that lie unevenly in their domains."""
    alone_s: float | None = None
    """Step time without the neighbours; None where there are none."""
    jobs: tuple[JobReport, ...] = ()


def machine_of(plan: Plan, cluster: Cluster, calibration: Calibration) -> Machine:
    """Return a cluster on which a plan computes in its own precision."""
    precision = plan.training.precision
    kernels = KernelModel(
        accelerator=cluster.node.accelerator,
        calibration=calibration,
        precision=precision,
        attention_precision=ATTENTION_PRECISION.get(precision, precision),
    )
    return Machine(cluster=cluster, kernels=kernels, calibration=calibration)


def replay_plan(plan: Plan, cluster: Cluster, calibration: Calibration, neighbours: Neighbours | None = None) -> Replayed:
    """Return the timeline of a plan, alone or beside others.

    Raises
    ------
    ScenarioError
        When so much goes on beside one step that it would take too long to simulate.
    """
    program, machine = lower(plan), machine_of(plan, cluster, calibration)
    if neighbours is None or not (neighbours.jobs or neighbours.background):
        timeline, uneven = replay(program, machine)
        return Replayed(timeline=timeline, uneven=uneven)
    program = on_nodes(program, neighbours.nodes, cluster)
    alone_s = replay(program, machine)[0].step_time_s
    _check_bursts(neighbours.background, alone_s)
    others: list[OtherJob] = []
    others_alone_s: list[float] = []
    for index, job in enumerate(neighbours.jobs):
        theirs = machine_of(job.planned.plan, cluster, calibration)
        step = on_nodes(lower(job.planned.plan), job.nodes, cluster)
        others.append(OtherJob(name=job.name, program=step, kernels=theirs.kernels))
        others_alone_s.append(replay(step, theirs)[0].step_time_s)
        _check_steps(len(step.tasks), alone_s / others_alone_s[-1], f"jobs.{index}")
    background = [load for loads in neighbours.background for load in loads]
    timeline, uneven = replay(program, machine, background, others=others)
    return Replayed(
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


def on_nodes(program: Program, nodes: Sequence[int], cluster: Cluster) -> Program:
    """Return a program on some nodes of a cluster; its hosts are those of the nodes in order, and then the dedicated ones."""
    size = cluster.node.n_accelerators
    ranks = tuple(node * size + rank for node in nodes for rank in range(size))
    hosts = dict(enumerate((*nodes, *range(cluster.n_nodes, cluster.n_hosts))))
    return placed(program, Placement(ranks=ranks, hosts=hosts))


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
