"""Records of a job from traces of its ranks: one file of the PyTorch profiler, or of Nsight Systems, for each."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from clustersim.apps.calibrate.trace_file import read_trace
from clustersim.apps.calibrate.traced import LaunchedKernel, TracedGroup, TraceFile
from clustersim.apps.compare.kernel_names import (
    COMMUNICATION,
    SENDS,
    Classifier,
    KernelNames,
    check_ranks,
    kernel_names,
    step_number,
    steps_of,
)
from clustersim.apps.records.recorded_job import NOT_A_NAME, JobRecord, JobRecords
from clustersim.errors import Place, ScenarioError

OVERLAP_S: Final = 1e-6
"""Older traces have whole microseconds, so that a kernel may begin before the one that it waits for has ended."""
PIPELINE: Final = re.compile(r"pipeline|(^|_)pp($|_)", re.IGNORECASE)
"""Descriptions of the process groups of pipelines: those of Megatron-LM and of device meshes of PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """Trace of one rank."""

    rank: int
    file: str
    stage: int
    steps: Mapping[str, Sequence[LaunchedKernel]]
    names: Classifier


def read_traces(sources: Sequence[str]) -> JobRecords:
    """Return the records of the kernels of some ranks.

    A kernel waits for what had ended on its rank when it began. The calls of a process group are distinguished by their order. Kernels of
    one name are alike in their order within a step.

    Raises
    ------
    ScenarioError
        When a trace cannot be used, or two are of the same rank or have no step in common.
    """
    names = kernel_names()
    traces = [read_trace(source) for source in sources]
    check_ranks([(trace.rank, source) for trace, source in zip(traces, sources, strict=True)])
    ranks = [_rank(trace, source, names) for trace, source in zip(traces, sources, strict=True)]
    common = [step for step in ranks[0].steps if all(step in rank.steps for rank in ranks)]
    if not common:
        raise ScenarioError(
            f"has no step in common with {ranks[0].file}", place=Place(file=ranks[-1].file), hint="give traces of the same steps"
        )
    n_ranks = max(len(ranks), *(trace.n_ranks or 0 for trace in traces))
    records: list[JobRecord] = []
    unmatched = 0
    for place, step in enumerate(common):
        number = int(step) if step.isdigit() else place
        found = [record for rank in ranks for record in _records(rank, step, number)]
        matched, count = _matched(found)
        records += matched
        unmatched += count
    notes = (
        [f"traces of {len(ranks)} of {n_ranks} ranks: a collective begins when the last of these is there"] if len(ranks) < n_ranks else []
    )
    if unmatched:
        notes.append(f"{unmatched} calls were not matched among these ranks, and last as recorded, with their waits")
    if len(ranks) > 1 and not any(kernel.group for trace in traces for kernel in trace.kernels):
        notes.append("the traces name no process groups: calls on one stream are taken as those of one group of all ranks")
    return JobRecords(
        records=tuple(records), n_ranks=n_ranks, overlap_s=OVERLAP_S, delays=True, whole_steps=False, clocks="of ranks", notes=notes
    )


def _rank(trace: TraceFile, file: str, names: KernelNames) -> _Rank:
    rank = trace.rank or 0
    groups = (kernel.group for kernel in trace.kernels if kernel.group is not None)
    members = next((_ranks(group) for group in groups if PIPELINE.search(group.description)), list[int]())
    steps = {step_number(marker.name): kernels for marker, kernels in steps_of(trace, names, file)}
    return _Rank(
        rank=rank,
        file=file,
        stage=members.index(rank) if rank in members else 0,
        # A trace that marks no steps is taken as one.
        steps=steps or {"0": (*trace.kernels, *trace.copies)},
        names=names.classifier(trace.ranges),
    )


def _ranks(group: TracedGroup) -> list[int]:
    """Return the ranks of a group; none where the list is cut."""
    return [int(rank) for rank in re.findall(r"\d+", group.ranks)] if "..." not in group.ranks else []


def _records(rank: _Rank, step: str, number: int) -> Iterator[JobRecord]:
    """Yield the records of a step of one rank."""
    counts: dict[Hashable, int] = {}

    def ordinal(key: Hashable) -> int:
        counts[key] = counts.get(key, -1) + 1
        return counts[key]

    for kernel in sorted(rank.steps[step], key=lambda each: (each.start_s, each.stream)):
        name = rank.names.of(kernel)
        communicates = name in COMMUNICATION
        group = _group(kernel, rank.rank) if communicates else None
        yield JobRecord(
            step=number,
            rank=rank.rank,
            stage=rank.stage,
            operation=NOT_A_NAME.sub("-", name),
            computes=not communicates,
            shared=(group, ordinal(("group", group))) if communicates else (rank.rank, ordinal("kernel")),
            group=group,
            alike=(kernel.name, rank.stage, ordinal((kernel.name,))),
            stream=kernel.stream[1],
            start_s=kernel.start_s,
            end_s=kernel.end_s,
            is_send=name == SENDS,
        )


def _group(kernel: LaunchedKernel, rank: int) -> Hashable:
    """Return the group of a collective, or of the two ends of a send."""
    if kernel.group is None:
        return kernel.stream[1]
    source, destination = kernel.group.ends
    ends = (
        () if source is None and destination is None else (rank if source is None else source, rank if destination is None else destination)
    )
    return kernel.group.name, kernel.group.ranks, ends


def _matched(records: Sequence[JobRecord]) -> tuple[list[JobRecord], int]:
    """Return records of which calls that were not matched stand alone, and how many these are.

    A group is not matched where its ranks made unlike numbers of calls, or where two ranks were in a call at different times: some calls
    are missing in the traces, and the order tells nothing.
    """
    groups: dict[Hashable, dict[Hashable, dict[int, JobRecord]]] = {}
    for record in records:
        if not record.computes:
            groups.setdefault(record.group, {}).setdefault(record.shared, {})[record.rank] = record
    calls = {name: list(each.values()) for name, each in groups.items()}
    alike = {name: each for name, each in calls.items() if len({len(call) for call in each}) == 1}
    ahead_s = _ahead_s([call for each in alike.values() for call in each])
    matched = {name for name, each in alike.items() if all(_at_once(call, ahead_s) for call in each)}
    alone = [record for record in records if not record.computes and record.group not in matched]
    kept = [record for record in records if record.computes or record.group in matched]
    return [*kept, *(replace(record, shared=(record.rank, record.shared)) for record in alone)], len(alone)


def _ahead_s(calls: Sequence[Mapping[int, JobRecord]]) -> dict[int, float]:
    """Return by how much the clock of each rank is ahead of that of the first, by the median of the ends of the calls that they share."""
    between: dict[int, dict[int, list[float]]] = {}
    for call in calls:
        first, *others = call
        for rank in others:
            apart_s = call[rank].end_s - call[first].end_s
            between.setdefault(first, {}).setdefault(rank, []).append(apart_s)
            between.setdefault(rank, {}).setdefault(first, []).append(-apart_s)
    found: dict[int, float] = {}
    for root in between:
        found.setdefault(root, 0.0)
        queue = [root]
        for rank in queue:
            for other, apart_s in between[rank].items():
                if other not in found:
                    found[other] = found[rank] + median(apart_s)
                    queue.append(other)
    return found


def _at_once(call: Mapping[int, JobRecord], ahead_s: Mapping[int, float]) -> bool:
    """Return whether all ranks were in a call at some moment."""
    begins = max(record.start_s - ahead_s.get(rank, 0.0) for rank, record in call.items())
    return begins <= min(record.end_s - ahead_s.get(rank, 0.0) for rank, record in call.items())
