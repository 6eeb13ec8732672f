"""A simulated step as Chakra execution traces, one for each rank, and the groups of ranks beside them, as ASTRA-sim reads both.

A collective has the size that ASTRA-sim asks for: what a rank puts in, which for an all-gather is its share. Durations stand in the nodes
too: a simulator that works them out anew leaves them aside.

References
----------
.. [1] ASTRA-sim, ``astra-sim/workload/Workload.cc``, and ``Ring.cc`` for the sizes: https://github.com/astra-sim/astra-sim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from clustersim.apps.export.operations import StepOperation, operations_of
from clustersim.apps.run.result import Result
from clustersim.collection import collection_paused
from clustersim.documents.files import replacing, write_text
from clustersim.errors import ScenarioError
from clustersim.program.tasks import Collective
from clustersim.trace.chakra import COLLECTIVE, COLLECTIVES, COMPUTE, RECEIVE, SEND, ChakraNode, Value, written

GROUPS_FILE: Final = "groups.json"
PREFIX: Final = "step"
Groups = dict[tuple[int, ...], int]
"""Number of each group by its ranks."""
_RING: Final = "send_recv"


@collection_paused()
def write_chakra(result: Result, folder: Path) -> None:
    """Write ``step.RANK.et`` for each rank, and ``groups.json``, into a folder.

    Raises
    ------
    ScenarioError
        When Protocol Buffers are not installed, or the step cannot be written so.
    """
    folder.mkdir(exist_ok=True)
    program, steps = operations_of(result)
    groups: Groups = {}
    n_ranks = sum(each.n_ranks for each in program.rank_classes)
    try:
        for rank_class, operations in zip(program.rank_classes, steps, strict=True):
            for rank in rank_class.ranks.tolist():
                nodes = list(_nodes(operations, rank, n_ranks, groups))
                with replacing(folder / f"{PREFIX}.{rank}.et") as fresh:
                    fresh.write_bytes(written(nodes, {"rank": rank, "ranks": n_ranks}))
    except ImportError as error:
        raise ScenarioError("Protocol Buffers are not installed", field="--as", hint="pip install 'clustersim[chakra]'") from error
    named = {str(number): list(members) for members, number in groups.items()}
    write_text(folder / GROUPS_FILE, json.dumps(named) + "\n")


def _nodes(operations: list[StepOperation], rank: int, n_ranks: int, groups: Groups) -> Iterator[ChakraNode]:
    """Yield the nodes of a rank. An operation is one node, or a send and a receive, which others wait for together."""
    last: list[tuple[int, ...]] = []
    number = 0
    for operation in operations:
        after = tuple(each for other in operation.after for each in last[other])
        own: list[int] = []
        for kind, attributes in _forms(operation, rank, n_ranks, groups):
            yield ChakraNode(
                id=number,
                name=f"{operation.phase} {operation.name}".strip(),
                type=kind,
                after=after,
                duration_us=round(operation.duration_s * 1e6),
                attributes={"is_cpu_op": False, **attributes},
            )
            own.append(number)
            number += 1
        # A rank that takes no part in a transfer of its class waits for what the transfer waits for.
        last.append(tuple(own) or after)


def _forms(operation: StepOperation, rank: int, n_ranks: int, groups: Groups) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Yield the types and attributes of the nodes of an operation."""
    transfer, collective = operation.transfer, operation.collective
    if transfer is not None:
        for source, destination in transfer.pairs[(transfer.pairs == rank).any(axis=1)].tolist():
            yield _sent(source, destination, rank, transfer.bytes, operation.task)
    elif collective is None:
        yield COMPUTE, {"num_ops": round(operation.flops), "tensor_size": max(1, round(operation.traffic_bytes))}
    else:
        members = tuple(collective.group.members[(collective.group.members == rank).any(axis=1)][0].tolist())
        if collective.op == _RING:
            place = members.index(rank)
            before, behind = members[place - 1], members[(place + 1) % len(members)]
            yield _sent(rank, behind, rank, collective.bytes, operation.task)
            yield _sent(before, rank, rank, collective.bytes, operation.task)
        else:
            yield COLLECTIVE, _called(collective, members, n_ranks, groups)


def _sent(source: int, destination: int, rank: int, size: float, tag: int) -> tuple[str, Mapping[str, Value]]:
    ends: dict[str, Value] = {"comm_src": source, "comm_dst": destination, "comm_tag": tag, "comm_size": max(1, round(size))}
    return SEND if source == rank else RECEIVE, ends


def _called(collective: Collective, members: tuple[int, ...], n_ranks: int, groups: Groups) -> Mapping[str, Value]:
    """Return the attributes of a collective; the group of all ranks is the one without a name."""
    size = collective.bytes / len(members) if collective.op == "all_gather" else collective.bytes
    called: dict[str, Value] = {"comm_type": COLLECTIVES.index(collective.op.upper()), "comm_size": max(1, round(size))}
    if len(members) < n_ranks:
        called["pg_name"] = str(groups.setdefault(members, len(groups) + 1))
    return called
