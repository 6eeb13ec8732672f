"""Kernels of the predicted step of a rank by class."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

import numpy as np

from clustersim.apps.compare.kernel_names import COLLECTIVES, HOST_COPIES, OTHER_COLLECTIVES, SENDS, ClassTime, StepKernels
from clustersim.apps.run.result import Result
from clustersim.kernels.kernel_model import KernelModel, launches
from clustersim.measure.step_breakdown import times_by_class
from clustersim.parallel.lower import lower
from clustersim.parallel.pass_costs import kernels_of
from clustersim.program.program import Program
from clustersim.program.tasks import (
    Action,
    Collective,
    Communicate,
    Compute,
    HostCopy,
    HostUpdate,
    Transfer,
    collectives_in,
    works_in,
)
from clustersim.trace.columns import columns_of
from clustersim.trace.timeline import RankClass, Timeline
from clustersim.workloads.operators import FlashAttention, Kernel, Stream

PRODUCTS, ATTENTION, ELEMENTWISE, OPTIMIZER = "products", "attention", "norms and elementwise", "optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """Predicted step of one rank."""

    mean: StepKernels
    groups: dict[str, Collective]
    """A collective of each class, of those of most bytes."""


@dataclass(slots=True)
class _Sums:
    """Time and number of the kernels of each class."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    counts: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, name: str, seconds: float, count: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.counts[name] = self.counts.get(name, 0.0) + count


def predicted_step(result: Result, rank: int) -> PredictedStep:
    """Return the predicted step of a rank by class of kernel.

    Computation is that of the timeline, divided among classes as the kernel model times the kernels of the program; a collective
    lasts as long as in the timeline.
    """
    built, timeline = result.built, result.spans
    program = lower(built.plan)
    place = _class_of(program.rank_classes, rank)
    size = built.cluster.node.n_accelerators
    node = built.nodes[rank // size]
    sums = _computed(program, place, kernels_of(built.plan.training, built.plan.strategy, built.cluster.node_at(node)))
    n_steps = timeline.duration_s / timeline.step_time_s
    # Beside other jobs the ranks of the plan are those of its own nodes.
    replayed = _class_of(timeline.rank_classes, node * size + rank % size)
    columns = columns_of(timeline.spans)
    blocks = not built.plan.strategy.overlap_p2p
    times = times_by_class(columns, len(timeline.rank_classes), timeline.duration_s, sends_block=blocks)[replayed]
    for names, seconds in (([OPTIMIZER], times.optimizer), ([name for name in sums.seconds if name != OPTIMIZER], times.compute)):
        modelled_s = fsum(sums.seconds.get(name, 0.0) for name in names)
        for name in names if modelled_s > 0.0 else ():
            if name in sums.seconds:
                sums.seconds[name] *= seconds / n_steps / modelled_s
    groups = _communicated(timeline, program, place, replayed, sums)
    mean = StepKernels(
        step_s=timeline.step_time_s,
        computing_s=(times.compute + times.optimizer) / n_steps,
        exposed_s=fsum(times.exposed.values()) / n_steps,
        classes={name: ClassTime(seconds=each, n_kernels=sums.counts[name]) for name, each in sums.seconds.items() if each > 0.0},
    )
    return PredictedStep(mean=mean, groups=groups)


def _class_of(rank_classes: tuple[RankClass, ...], rank: int) -> int:
    return next(place for place, each in enumerate(rank_classes) if np.isin(rank, each.ranks))


def _computed(program: Program, place: int, model: KernelModel) -> _Sums:
    """Return the kernels of a rank class as the model times them."""
    sums = _Sums()
    actions = (task.action for task in program.tasks if task.lanes[0].rank_class == place)
    for action in (each for each in actions if isinstance(each, Compute)):
        for block in action.blocks:
            for work in (each for item in block.body for each in works_in(item)):
                for kernel in work.kernels:
                    name = OPTIMIZER if action.phase == "optimizer" else _class_name(kernel)
                    sums.add(name, block.repeat * model.kernel_s(kernel), block.repeat * launches(kernel))
    return sums


def _class_name(kernel: Kernel) -> str:
    """Return the class of a kernel; the interference of a collective counts as products, which it slows."""
    match kernel:
        case FlashAttention():
            return ATTENTION
        case Stream():
            return ELEMENTWISE
        case _:
            return PRODUCTS


@dataclass(slots=True)
class _Named:
    """Classes of the communication of a rank class."""

    sums: _Sums
    beside: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """By name and dimension of a task beside computation."""
    inside: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    """By dimension, the bytes of each class inside passes."""
    groups: dict[str, Collective] = field(default_factory=dict[str, Collective])

    def add(self, action: Action) -> None:
        """Take the names of one task, and count its calls."""
        match action:
            case Communicate():
                self.beside[action.name, action.collective.group.dimension] = self._counted(action.collective, repeat=1)
            case Transfer():
                self.beside[action.name, action.dimension] = SENDS
                self.sums.add(SENDS, 0.0, 1)
            case HostCopy() | HostUpdate():
                self.beside[action.name, action.dimension] = HOST_COPIES
            case Compute():
                for block in action.blocks:
                    for collective in (each for item in block.body for each in collectives_in(item)):
                        shares = self.inside.setdefault(collective.group.dimension, {})
                        name = self._counted(collective, repeat=block.repeat)
                        shares[name] = shares.get(name, 0.0) + block.repeat * collective.bytes

    def _counted(self, collective: Collective, *, repeat: int) -> str:
        name = COLLECTIVES.get(collective.op, OTHER_COLLECTIVES)
        if name not in self.groups or self.groups[name].bytes < collective.bytes:
            self.groups[name] = collective
        self.sums.add(name, 0.0, repeat * collective.pieces)
        return name


def _communicated(timeline: Timeline, program: Program, place: int, replayed: int, sums: _Sums) -> dict[str, Collective]:
    """Add the communication of a rank class as the timeline has it, and return a collective of each class."""
    n_steps = timeline.duration_s / timeline.step_time_s
    named = _Named(sums)
    for task in program.tasks:
        if any(lane.rank_class == place for lane in task.lanes):
            named.add(task.action)
    columns = columns_of(timeline.spans)
    lasted_s = columns.weights() * (columns.end_s - columns.start_s)
    busy_s = np.bincount(columns.pattern, weights=lasted_s, minlength=len(columns.patterns)).tolist()
    for span, count, seconds in zip(columns.patterns, columns.counts().tolist(), busy_s, strict=True):
        if span.rank_class != replayed:
            continue
        if span.kind == "communication":
            sums.add(named.beside.get((span.name, span.dimension), OTHER_COLLECTIVES), seconds / n_steps, 0.0)
        for dimension, each in (*span.exposed_s, *span.hidden_s):
            shares = named.inside.get(dimension, {OTHER_COLLECTIVES: 1.0})
            for name, share in shares.items():
                sums.add(name, count * each * share / sum(shares.values()) / n_steps, 0.0)
    return named.groups
