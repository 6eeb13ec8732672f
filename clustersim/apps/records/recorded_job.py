"""A recorded job as programs of tasks of known duration, replayed as recorded and with changes.

An operation waits for those of its rank that had ended when it began, and a transfer or a collective begins when the last of its ranks is
there: its own duration is from that moment to its end. Delays between the end of an operation and the launch of the next are replayed
where the records are those of kernels, as operations of the host.

References
----------
.. [1] J. Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", *OSDI*, 2025: without stragglers each
   computation takes the mean, and each transfer the median, of all of its kind.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import accumulate
from statistics import fmean, median
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

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
from clustersim.units.grouping import grouped
from clustersim.workloads.operators import Recorded

COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
HOST: Final = "host"
"""Operation of the time between the last dependency of a kernel and its start."""

NOT_A_NAME: Final = re.compile(r"\W+")
"""Characters of a class of kernels that the name of an operation in a case cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One operation of one rank; times in seconds by the clock of its rank."""

    step: int
    rank: int
    stage: int
    operation: str
    """Kind of operation, by which cases name it."""
    computes: bool
    shared: Hashable
    """Equal in the records of one operation of a step: those of the ranks of a collective, and of both ends of a send."""
    alike: Hashable
    """Equal in operations that last the same where no rank is a straggler."""
    stream: str
    start_s: float
    end_s: float
    group: Hashable = None
    """Name of the process group of a collective, or of the two ends of a send."""
    is_send: bool = False
    n_ends: int = 0
    """Records that its operation has; 0 for those that are there."""
    title: str = ""
    """Place of the operation, for errors."""
    after: tuple[int, ...] | None = None
    """Places among all records of those that it waits for; None where times say it."""

    @property
    def duration_s(self) -> float:
        """From its start to its end, in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecords:
    """Records of some steps of a job."""

    records: tuple[JobRecord, ...]
    n_ranks: int
    """Ranks of the job, of which some may have no records."""
    overlap_s: float
    """By how much an operation may begin before the one that it waits for has ended, in seconds."""
    delays: bool
    """Whether the time between what an operation waits for and its start is replayed."""
    whole_steps: bool
    """Whether every step has the same operations."""
    clocks: Literal["one", "of ranks", "none"]
    """Clocks of starts and ends: one for all ranks, one for each, or none, so that they give an order only."""
    notes: Sequence[str] = ()
    """Remarks on gaps and assumptions."""


_NODE: Final = "dgx-h100"
"""Node of the replay: durations are recorded, and nothing is sent, so that only its number of accelerators counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOperation:
    """One computation, or one transfer or collective with all its ranks."""

    name: str
    """Name in the records; for a transfer, that of its sending end."""
    computes: bool
    is_send: bool
    alike: Hashable
    stages: tuple[int, ...]
    ranks: tuple[int, ...]
    """Places of its ranks among all of the job."""
    own_s: float
    """Duration from when its last rank was there, in seconds."""
    start_s: float
    """Recorded start on its last rank, in seconds."""
    after: tuple[int, ...]
    """Places of the operations that it waits for."""


Duration = Callable[[RecordedOperation], float]
"""Returns how long an operation takes, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step."""

    number: int
    recorded_s: float | None
    """From the first start to the last end of the rank that took longest, in seconds; None without clocks."""
    operations: tuple[RecordedOperation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """Steps of a job, and how long each kind of operation takes where no rank is a straggler."""

    steps: tuple[RecordedStep, ...]
    rank_classes: tuple[RankClass, ...]
    even_s: Mapping[Hashable, float]
    """Without stragglers, of operations that are alike."""
    kinds: tuple[str, ...]
    """Names of operations."""
    n_ranks: int
    """Ranks of the job, of which some may have no records."""
    notes: tuple[str, ...]

    def step_times_s(self, duration: Duration, overlap: str | None = None) -> list[float]:
        """Return the time of each step with some durations, and another overlap of communication with computation."""
        with collection_paused():
            return [self._replayed_s(step if overlap is None else OVERLAPS[overlap](step), duration) for step in self.steps]

    def even(self, operation: RecordedOperation) -> float:
        """Return how long an operation takes without stragglers, in seconds."""
        return self.even_s[operation.alike]

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


def recorded_job(found: JobRecords, file: str) -> RecordedJob:
    """Return the job that some records are of."""
    by_step = grouped((record.step, place) for place, record in enumerate(found.records))
    stage_of = {record.rank: record.stage for record in found.records}
    ranks = {rank: place for place, rank in enumerate(sorted(stage_of))}
    steps = [_step(found, places, ranks, file) for _, places in sorted(by_step.items())]
    if found.whole_steps:
        _check_alike(steps, file)
    operations = [each for step in steps for each in step.operations]
    alike = grouped((operation.alike, operation.own_s) for operation in operations)
    means = {operation.alike for operation in operations if operation.computes or operation.name == HOST}
    return RecordedJob(
        steps=tuple(steps),
        rank_classes=tuple(
            RankClass(name=f"rank {rank}", stage=stage, representative_rank=place, ranks=np.array([place], dtype=np.int64))
            for place, (rank, stage) in enumerate(sorted(stage_of.items()))
        ),
        even_s={each: fmean(times) if each in means else median(times) for each, times in alike.items()},
        kinds=tuple(dict.fromkeys(operation.name for operation in operations)),
        n_ranks=found.n_ranks,
        notes=tuple(found.notes),
    )


def _check_alike(steps: Sequence[RecordedStep], file: str) -> None:
    """Refuse steps of different operations, of which a rank or a part is missing."""
    first, *others = steps
    counts = sorted((each.name, each.ranks) for each in first.operations)
    for step in others:
        if sorted((each.name, each.ranks) for each in step.operations) != counts:
            message = f"step {step.number} has {len(step.operations)} operations that are not those of step {first.number}"
            raise ScenarioError(message, place=Place(file=file), hint="give whole steps of one job, with all ranks")


def _step(found: JobRecords, places: Sequence[int], ranks: Mapping[int, int], file: str) -> RecordedStep:
    records = [found.records[place] for place in places]
    in_order = sorted(range(len(records)), key=lambda each: (records[each].start_s, records[each].rank))
    members = grouped((records[own].shared, own) for own in in_order)
    operation_of = {own: place for place, group in enumerate(members.values()) for own in group}
    waits = _waits(records, {place: own for own, place in enumerate(places)}, found.overlap_s)
    hosts: list[RecordedOperation] = []
    operations: list[RecordedOperation] = []
    for group in members.values():
        first, *_ = each = [records[own] for own in group]
        if first.n_ends and len(each) != first.n_ends:
            message = f"step {first.step}, rank {first.rank}: {first.title} has {len(each) - 1} other ends, and needs one"
            raise ScenarioError(message, place=Place(file=file), hint="give the records of all ranks")
        after: set[int] = set()
        for own in group:
            before = {operation_of[other] for other in waits[own]}
            delay_s = records[own].start_s - max((records[other].end_s for other in waits[own]), default=records[own].start_s)
            if found.delays and delay_s > 0.0:
                hosts.append(_operation([records[own]], ranks, delay_s, before, name=HOST))
                before = {len(members) + len(hosts) - 1}
            after |= before
        operations.append(_operation(each, ranks, min(record.duration_s for record in each), after))
    clocked = {"none": [], "one": [records], "of ranks": list(grouped((each.rank, each) for each in records).values())}[found.clocks]
    recorded_s = max((_lasted_s(each) for each in clocked), default=None)
    return RecordedStep(number=records[0].step, recorded_s=recorded_s, operations=(*operations, *hosts))


def _operation(
    records: Sequence[JobRecord], ranks: Mapping[int, int], own_s: float, after: set[int], *, name: str | None = None
) -> RecordedOperation:
    first = records[0]
    return RecordedOperation(
        name=name or first.operation,
        computes=first.computes,
        is_send=first.is_send,
        alike=first.alike if name is None else (name, first.alike),
        stages=tuple(sorted({each.stage for each in records})),
        ranks=tuple(sorted({ranks[each.rank] for each in records})),
        own_s=own_s,
        start_s=max(each.start_s for each in records),
        after=tuple(sorted(after)),
    )


def _lasted_s(records: Sequence[JobRecord]) -> float:
    return max(each.end_s for each in records) - min(each.start_s for each in records)


def _waits(records: Sequence[JobRecord], own_of: Mapping[int, int], overlap_s: float) -> list[list[int]]:
    """Return for each record of a step its dependencies on the rank: the recorded ones, or the last that had ended at its start.

    Of those that had ended, one is enough for all that had ended before it began.
    """
    found: list[list[int]] = [[own_of[place] for place in record.after or () if place in own_of] for record in records]
    by_rank = grouped((record.rank, own) for own, record in enumerate(records) if record.after is None)
    for owns in by_rank.values():
        ended = sorted(owns, key=lambda own: records[own].end_s)
        ends_s = [records[own].end_s for own in ended]
        latest_s = list(accumulate((records[own].start_s for own in ended), max))
        for own in owns:
            start_s = records[own].start_s
            cut = bisect_left(ends_s, start_s)
            # Those that end within the tolerance may have begun later.
            top = [each for each in ended[cut : bisect_right(ends_s, start_s + overlap_s)] if records[each].start_s < start_s]
            last_s = max((*latest_s[max(0, cut - 1) : cut], *(records[each].start_s for each in top)), default=0.0)
            while cut and ends_s[cut - 1] >= last_s:
                cut -= 1
                top.append(ended[cut])
            found[own] = [each for each in top if records[each].start_s >= last_s or records[each].end_s > last_s + overlap_s]
    return found


def _in_order(step: RecordedStep) -> Iterator[int]:
    """Yield the operations of a step after their dependencies, the earliest first."""
    sorter = TopologicalSorter({place: each.after for place, each in enumerate(step.operations)})
    sorter.prepare()
    ready: list[tuple[float, int]] = []
    while sorter.is_active():
        for place in sorter.get_ready():
            heappush(ready, (step.operations[place].start_s, place))
        _, place = heappop(ready)
        yield place
        sorter.done(place)


def _without_overlap(step: RecordedStep) -> RecordedStep:
    """Return a step in which each rank does one thing at a time."""
    last: dict[int, int] = {}
    after = [set(each.after) for each in step.operations]
    for place in _in_order(step):
        ranks = step.operations[place].ranks
        after[place] |= {last[rank] for rank in ranks if rank in last}
        last.update(dict.fromkeys(ranks, place))
    return _rewired(step, after)


def _with_full_overlap(step: RecordedStep) -> RecordedStep:
    """Return a step in which computation waits for no collective; dependencies on receives stay."""
    after = [set(each.after) for each in step.operations]
    through: list[set[int]] = [set() for _ in step.operations]
    for place in _in_order(step):
        own = step.operations[place]
        for other in own.after:
            stays = step.operations[other].computes or step.operations[other].is_send
            through[place] |= {other} if stays else through[other]
        if own.computes:
            after[place] = {each for each in through[place] if set(step.operations[each].ranks) & set(own.ranks)}
    return _rewired(step, after)


def _rewired(step: RecordedStep, after: Sequence[set[int]]) -> RecordedStep:
    operations = (replace(each, after=tuple(sorted(waits))) for each, waits in zip(step.operations, after, strict=True))
    return replace(step, operations=tuple(operations))


OVERLAPS: Final[Mapping[str, Callable[[RecordedStep], RecordedStep]]] = MappingProxyType(
    {"none": _without_overlap, "full": _with_full_overlap}
)
"""Steps with another overlap of communication with computation."""


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
