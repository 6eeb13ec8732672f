"""A recorded job as programs of tasks of known duration, replayed as it was and as it might have been.

An operation waits for those of its rank that had ended when it began, and a transfer or a collective begins when the last of its ranks is
there: its own duration is from that moment to its end. Delays between the end of an operation and the launch of the next are not replayed.

References
----------
.. [1] J. Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", *OSDI*, 2025: without stragglers each
   computation takes the mean, and each transfer the median, of all of its kind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import numpy as np

from clustersim.apps.what_if.records_file import COMPUTE, GROUPS, SENDS, JobRecord
from clustersim.collection import collection_paused
from clustersim.engine.simulate import Machine, replay
from clustersim.errors import DeadlockError, Place, ScenarioError
from clustersim.hardware.calibrations import calibration_for
from clustersim.hardware.catalog import load_node
from clustersim.kernels.kernel_model import KernelModel
from clustersim.program.program import Program
from clustersim.program.tasks import Block, Compute, Lane, Task, Work
from clustersim.topology.cluster_wiring import cluster_of
from clustersim.trace.timeline import RankClass
from clustersim.workloads.operators import Recorded

OVERLAP_S: Final = 2e-5
"""By how much an operation may begin before the one that it waits for has ended: published records show up to 15 us."""
_NODE: Final = "dgx-h100"
"""Node of the replay: durations are recorded, and nothing is sent, so that only its number of accelerators counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOperation:
    """One computation, or one transfer or collective with all its ranks."""

    name: str
    """Name in the records; for a transfer, that of its sending end."""
    stages: tuple[int, ...]
    ranks: tuple[int, ...]
    """Places of its ranks among all of the job."""
    own_s: float
    """Duration from when its last rank was there, in seconds."""
    after: tuple[int, ...]
    """Places of the operations that it waits for."""


Duration = Callable[[RecordedOperation], float]
"""Returns how long an operation takes, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step."""

    number: int
    recorded_s: float
    """From the first start to the last end, in seconds."""
    operations: tuple[RecordedOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """Steps of a job, and how long each kind of operation takes where no rank is a straggler."""

    steps: tuple[RecordedStep, ...]
    rank_classes: tuple[RankClass, ...]
    even_s: Mapping[str, float]
    """Without stragglers, by operation."""

    def step_times_s(self, duration: Duration) -> list[float]:
        """Return the time of each step with some durations."""
        with collection_paused():
            return [self._replayed_s(step, duration) for step in self.steps]

    def even(self, operation: RecordedOperation) -> float:
        """Return how long an operation takes without stragglers, in seconds."""
        return self.even_s[operation.name]

    def _replayed_s(self, step: RecordedStep, duration: Duration) -> float:
        node = load_node(_NODE)
        n_nodes = -(-len(self.rank_classes) // node.n_accelerators)
        kernels = KernelModel(
            accelerator=node.accelerator, calibration=calibration_for(node.accelerator), precision="bf16", attention_precision="bf16"
        )
        machine = Machine(cluster=cluster_of([(node, n_nodes)]), kernels=kernels, calibration=kernels.calibration)
        tasks = tuple(
            Task(
                action=_action(operation.name, duration(operation)),
                lanes=tuple(Lane(rank_class=rank, stream=operation.name) for rank in operation.ranks),
                after=operation.after,
            )
            for operation in step.operations
        )
        return replay(Program(rank_classes=self.rank_classes, tasks=tasks), machine)[0].step_time_s


def _action(name: str, seconds: float) -> Compute:
    work = Work(name=name, phase="forward", kernels=(Recorded(seconds),))
    return Compute(name=name, phase="forward", blocks=(Block(name=name, body=(work,)),))


def recorded_job(records: Sequence[JobRecord], file: str) -> RecordedJob:
    """Return the job that some records are of.

    Raises
    ------
    ScenarioError
        When a transfer has one end only, steps are of different operations, or operations wait for each other.
    """
    by_step: dict[int, list[JobRecord]] = {}
    for record in records:
        by_step.setdefault(record.step, []).append(record)
    n_stages = max(record.stage for record in records) + 1
    stage_of = {record.rank: record.stage for record in records}
    ranks = {rank: place for place, rank in enumerate(sorted(stage_of))}
    steps = [_step(each, n_stages, ranks, file) for _, each in sorted(by_step.items())]
    _check_alike(steps, file)
    kinds: dict[str, list[float]] = {}
    for operation in (each for step in steps for each in step.operations):
        kinds.setdefault(operation.name, []).append(operation.own_s)
    return RecordedJob(
        steps=tuple(steps),
        rank_classes=tuple(
            RankClass(name=f"rank {rank}", stage=stage, representative_rank=place, ranks=np.array([place], dtype=np.int64))
            for place, (rank, stage) in enumerate(sorted(stage_of.items()))
        ),
        even_s={name: fmean(times) if name in COMPUTE else median(times) for name, times in kinds.items()},
    )


def _check_alike(steps: Sequence[RecordedStep], file: str) -> None:
    """Refuse steps of different operations, of which a rank or a part is missing."""
    first, *others = steps
    counts = sorted((each.name, each.ranks) for each in first.operations)
    for step in others:
        if sorted((each.name, each.ranks) for each in step.operations) != counts:
            message = f"step {step.number} has {len(step.operations)} operations that are not those of step {first.number}"
            raise ScenarioError(message, place=Place(file=file), hint="give whole steps of one job, with all ranks")


def _step(records: Sequence[JobRecord], n_stages: int, ranks: Mapping[int, int], file: str) -> RecordedStep:
    number = records[0].step
    members: dict[tuple[object, ...], list[JobRecord]] = {}
    for record in sorted(records, key=lambda each: (each.start_s, each.rank)):
        members.setdefault(_key(record, n_stages), []).append(record)
    for each in members.values():
        if each[0].operation not in GROUPS and each[0].operation not in COMPUTE and len(each) != 2:
            one = each[0]
            message = f"step {number}, rank {one.rank}: {one.operation} {one.number} has {len(each) - 1} other ends, and needs one"
            raise ScenarioError(message, place=Place(file=file), hint="give the records of all ranks")
    places = {id(record): place for place, each in enumerate(members.values()) for record in each}
    after = _waits(records, places)
    return RecordedStep(
        number=number,
        recorded_s=max(record.end_s for record in records) - min(record.start_s for record in records),
        operations=tuple(
            RecordedOperation(
                name=next((each.operation for each in group if each.operation in SENDS), group[0].operation),
                stages=tuple(sorted({each.stage for each in group})),
                ranks=tuple(sorted({ranks[each.rank] for each in group})),
                own_s=max(0.0, max(each.end_s for each in group) - max(each.start_s for each in group)),
                after=tuple(sorted(after[place])),
            )
            for place, group in enumerate(members.values())
        ),
    )


def _key(record: JobRecord, n_stages: int) -> tuple[object, ...]:
    """Return what the records of one operation have in common."""
    for send, (receive, direction) in SENDS.items():
        if record.operation in (send, receive):
            sender = record.stage if record.operation == send else (record.stage - direction) % n_stages
            return send, record.dp_rank, sender, record.number
    if record.operation in COMPUTE:
        return record.operation, record.rank, record.number
    return record.operation, record.number, *(getattr(record, column) for column in GROUPS[record.operation])


def _waits(records: Sequence[JobRecord], places: Mapping[int, int]) -> list[set[int]]:
    """Return for each operation those that it waits for: on each rank the last that had ended when it began.

    Of those that had ended, one is enough for all that had ended before it began.
    """
    after: list[set[int]] = [set() for _ in range(max(places.values()) + 1)]
    by_rank: dict[int, list[JobRecord]] = {}
    for record in records:
        by_rank.setdefault(record.rank, []).append(record)
    for own in by_rank.values():
        ended = sorted(own, key=lambda each: each.end_s)
        ends_s = [each.end_s for each in ended]
        for record in own:
            before = ended[: bisect_right(ends_s, record.start_s + OVERLAP_S)]
            before = [each for each in before if each.start_s < record.start_s]
            last_s = max((each.start_s for each in before), default=0.0)
            latest = (each for each in before if each.start_s >= last_s or each.end_s > last_s + OVERLAP_S)
            after[places[id(record)]] |= {places[id(each)] for each in latest}
    return after


def check_order(job: RecordedJob, file: str) -> list[float]:
    """Return the time of each step, replayed as it was recorded.

    Raises
    ------
    ScenarioError
        When operations wait for each other, so that the clocks of ranks cannot have been the same, or last no time at all.
    """
    try:
        times_s = job.step_times_s(lambda operation: operation.own_s)
    except DeadlockError as error:
        message = "has operations that wait for each other"
        raise ScenarioError(message, place=Place(file=file), hint="give times of one clock, or of clocks that were set alike") from error
    if min(times_s, default=0.0) <= 0.0:
        raise ScenarioError("has a step whose operations last no time", place=Place(file=file), hint="give durations above 0")
    return times_s
