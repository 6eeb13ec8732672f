"""Operations of the ranks of a simulated step, one by one, with their durations and dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from math import fsum
from typing import Final

from clustersim.apps.run.result import Result
from clustersim.errors import ScenarioError
from clustersim.kernels.kernel_model import KernelModel
from clustersim.parallel.lower import lower
from clustersim.parallel.pass_costs import kernels_of
from clustersim.program.program import Program
from clustersim.program.tasks import (
    Collective,
    Communicate,
    Compute,
    Item,
    Task,
    Transfer,
    Work,
    collectives_in,
    works_in,
)
from clustersim.trace.timeline import Span, Timeline

MOST: Final = 5_000_000
"""Operations of all ranks: more fill files that nobody reads."""


_Spans = dict[str, list[Span]]
"""Spans by stream, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperation:
    """One computation, collective or transfer of a rank class."""

    name: str
    phase: str
    task: int
    """Place in the program of the task that it is a part of."""
    after: tuple[int, ...]
    """Places of the operations of its rank that it waits for."""
    duration_s: float
    flops: float = 0.0
    traffic_bytes: float = 0.0
    """Read and written in memory by what is computed."""
    collective: Collective | None = None
    transfer: Transfer | None = None
    beside: bool = False
    """Whether it runs beside the passes, on a stream of its own."""


@dataclass(slots=True, kw_only=True)
class _RankStep:
    """Operations of one rank class as they are added."""

    kernels: KernelModel
    found: list[StepOperation] = field(default_factory=list[StepOperation])
    last: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Last operations of each task."""

    def add(self, operation: StepOperation) -> tuple[int, ...]:
        self.found.append(operation)
        return (len(self.found) - 1,)


def operations_of(result: Result) -> tuple[Program, list[list[StepOperation]]]:
    """Return the program of the first step, and the operations of each of its rank classes in an order in which they can run.

    Raises
    ------
    ScenarioError
        When ranks of one stage differ, parameter servers take part, or there are too many operations.
    """
    program, timeline = lower(result.built.plan), result.spans
    if len(program.rank_classes) != len(timeline.rank_classes):
        raise ScenarioError("ranks of one stage are unlike, or other jobs run beside them", field="--as", hint="use chrome, csv or kineto")
    plan = result.built.plan
    kernels = kernels_of(plan.training, plan.strategy, result.built.cluster.node)
    # A task may wait for one that stands behind it.
    own: list[list[int]] = [[] for _ in program.rank_classes]
    for index in TopologicalSorter({index: task.after for index, task in enumerate(program.tasks)}).static_order():
        for place in dict.fromkeys(lane.rank_class for lane in program.tasks[index].lanes):
            own[place].append(index)
    spans = _spans(timeline)
    steps = [_operations(program, place, tasks, spans[place], kernels) for place, tasks in enumerate(own)]
    n = sum(each.n_ranks * len(step) for each, step in zip(program.rank_classes, steps, strict=True))
    if n > MOST:
        hint = "take fewer layers or micro-batches, such as -s model.layers=4"
        raise ScenarioError(f"has {n:,} operations on all ranks, and at most {MOST:,} are written", field="--as", hint=hint)
    return program, steps


def _spans(timeline: Timeline) -> list[_Spans]:
    """Return the spans of the first step by rank class and stream, in order."""
    found: list[_Spans] = [{} for _ in timeline.rank_classes]
    for span in sorted((span for span in timeline.spans if span.step == 0), key=lambda span: span.start_s):
        found[span.rank_class].setdefault(span.stream, []).append(span)
    return found


def _operations(program: Program, place: int, tasks: Sequence[int], spans: _Spans, kernels: KernelModel) -> list[StepOperation]:
    step = _RankStep(kernels=kernels)
    queues = {stream: iter(each) for stream, each in spans.items()}
    for index in tasks:
        task = program.tasks[index]
        streams = [lane.stream for lane in task.lanes if lane.rank_class == place]
        span = next((next(queues[stream], None) for stream in streams if stream in queues), None)
        before = tuple(dict.fromkeys(each for other in task.after for each in step.last.get(other, ())))
        step.last[index] = _add_task(step, task, index, before, span)
    return step.found


def _add_task(step: _RankStep, task: Task, index: int, before: tuple[int, ...], span: Span | None) -> tuple[int, ...]:
    """Add the operations of a task, and return the last ones."""
    action = task.action
    if isinstance(action, Compute):
        return _add_pass(step, action, index, before, span)
    collective = action.collective if isinstance(action, Communicate) else None
    transfer = action if isinstance(action, Transfer) else None
    if collective is not None and collective.servers is not None:
        raise ScenarioError("parameter servers have no ranks that it could name", field="--as", hint="use chrome, csv or kineto")
    own = StepOperation(
        name=action.name,
        phase="host" if collective is None and transfer is None else "",
        task=index,
        after=before,
        duration_s=0.0 if span is None else span.end_s - span.start_s,
        collective=collective,
        transfer=transfer,
        beside=True,
    )
    return step.add(own)


def _add_pass(step: _RankStep, action: Compute, index: int, before: tuple[int, ...], span: Span | None) -> tuple[int, ...]:
    """Add the operations of a pass at its pace, and then the time that it waited for its host."""
    if span is None or not action.blocks:
        lasted_s = 0.0 if span is None else span.end_s - span.start_s
        return step.add(StepOperation(name=action.name, phase=action.phase, task=index, after=before, duration_s=lasted_s))
    tails, seconds = before, _seconds(action, span, step.kernels)
    for block in action.blocks:
        for item in block.body * block.repeat:
            computed, moved = tails, tails
            for work in works_in(item):
                computed = step.add(_computed(work, index, computed, next(seconds)))
            for collective in collectives_in(item):
                own = StepOperation(
                    name=collective.op, phase=action.phase, task=index, after=moved, duration_s=next(seconds), collective=collective
                )
                moved = step.add(own)
            tails = tuple(each for each in dict.fromkeys((*computed, *moved)) if each not in tails) or tails
    if span.host_s > 0.0:
        tails = step.add(StepOperation(name="host", phase="host", task=index, after=tails, duration_s=span.host_s))
    return tails


def _seconds(action: Compute, span: Span, kernels: KernelModel) -> Iterator[float]:
    """Yield the durations of what is computed and of what is moved, in the order of the items of a pass.

    A pass that met other traffic has no times of its layers: its computation is divided as the kernel model times it, and its
    communication by bytes.
    """
    exposed_s, hidden_s = dict(span.exposed_s), dict(span.hidden_s)
    items = [item for block in action.blocks for item in block.body * block.repeat]
    moved, beside = _bytes_of(items), _bytes_of([item for item in items if works_in(item)])
    parts = [part for block in span.detail for part in block.slices * block.repeat]
    usual_s = fsum(part.duration_s for part in parts)
    pace = (span.end_s - span.start_s - span.host_s) / usual_s if usual_s > 0.0 else 1.0
    shown = iter(parts)
    modelled_s = 0.0 if parts else fsum(kernels.work_s(work.kernels) for item in items for work in works_in(item))
    for item in items:
        for work in works_in(item):
            if parts:
                yield pace * fsum(next(shown).duration_s for _ in range(2 if work.longest else 1))
            else:
                yield span.compute_s * kernels.work_s(work.kernels) / modelled_s if modelled_s > 0.0 else 0.0
        for collective in collectives_in(item):
            dimension = collective.group.dimension
            own_s = pace * next(shown).duration_s if parts else exposed_s.get(dimension, 0.0) * _share(collective.bytes, moved[dimension])
            hidden = hidden_s.get(dimension, 0.0) * _share(collective.bytes, beside[dimension]) if works_in(item) else 0.0
            yield own_s + hidden


def _bytes_of(items: Sequence[Item]) -> dict[str, float]:
    """Return the bytes of all collectives by dimension."""
    found: dict[str, float] = {}
    for collective in (each for item in items for each in collectives_in(item)):
        found[collective.group.dimension] = found.get(collective.group.dimension, 0.0) + collective.bytes
    return found


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else 0.0


def _computed(work: Work, index: int, after: tuple[int, ...], seconds: float) -> StepOperation:
    return StepOperation(
        name=work.name,
        phase=work.phase,
        task=index,
        after=after,
        duration_s=seconds,
        flops=fsum(kernel.flops for kernel in work.kernels),
        traffic_bytes=fsum(kernel.traffic_bytes for kernel in work.kernels),
    )
