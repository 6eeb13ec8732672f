"""All possible traffic of a Program, as flow classes on the links of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clustersim.collectives.host import lay_copy, lay_update
from clustersim.collectives.library import CollectiveCall, Library
from clustersim.collectives.timing import Operation, SizedFlow
from clustersim.engine.contention import Contention
from clustersim.engine.program_graph import Graph
from clustersim.network.in_flight import whole_ticks_s
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Program
from clustersim.program.tasks import Action, Block, Collective, Communicate, Compute, HostCopy, HostUpdate, Transfer, collectives_in
from clustersim.trace.timeline import CollectiveChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledFlow:
    """Flows of one class that advance together: bytes per flow, and latency."""

    flow_class: int
    size_bytes: float
    latency_s: float


FlowPhases = tuple[tuple[CoupledFlow, ...], ...]
"""Sequential phases of concurrent flows."""

Moved = Collective | Transfer | HostCopy | HostUpdate


@dataclass(slots=True)
class Traffic:
    """Traffic of the collectives and transfers of a program on the network they share."""

    library: Library
    network: SharedNetwork
    job: str = ""
    """Whose traffic it is, where there is that of others too."""
    _operations: dict[int, tuple[Moved, Operation]] = field(default_factory=dict[int, tuple[Moved, Operation]])
    """By identity of what moves, which therefore must live."""
    _phases: dict[int, FlowPhases] = field(default_factory=dict[int, FlowPhases])
    """By identity of the operation, which is stored beside its flows, or by the library."""

    def register(self, program: Program) -> None:
        """Take in everything that moves in a program, in the order of its tasks."""
        for action in program.actions:
            for moved in moved_by(action):
                self.phases(moved)

    def operation(self, moved: Moved) -> Operation:
        """Return algorithm, protocol and flows."""
        found = self._operations.get(id(moved))
        if found is None:
            found = self._operations[id(moved)] = (moved, self._laid(moved))
        return found[1]

    def phases(self, moved: Moved) -> FlowPhases:
        """Return the flows of an operation, phase by phase."""
        operation = self.operation(moved)
        found = self._phases.get(id(operation))
        if found is None:
            found = self._phases[id(operation)] = self.phases_of(operation)
        return found

    def phases_of(self, operation: Operation) -> FlowPhases:
        """Return the phases of an operation; its flow classes are numbered by the network."""
        return tuple(tuple(self._coupled_flow(flow) for flow in phase) for phase in operation.phases)

    def flow_classes(self, moved: Moved) -> tuple[int, ...]:
        """Return the flow classes of an operation, each once."""
        return tuple(dict.fromkeys(coupled_flow.flow_class for phase in self.phases(moved) for coupled_flow in phase))

    def all_classes(self) -> tuple[int, ...]:
        """Return the flow classes of all collectives and transfers, each once."""
        return tuple(dict.fromkeys(flow_class for moved, _ in self._operations.values() for flow_class in self.flow_classes(moved)))

    def contention(self, graph: Graph, common: NDArray[np.bool_], others: Iterable[int] = ()) -> Contention:
        """Return the tasks whose links can be contended.

        Parameters
        ----------
        common
            Shape (n_flow_classes, n_flow_classes): which flow classes share a link with which.
        others
            Flow classes that do not belong to the program, and can be in flight at any time.
        """
        found: dict[Action, tuple[int, ...]] = {}
        for action in graph.program.actions:
            # Latency alone is no load.
            loads = (moved for moved in moved_by(action) if isinstance(moved, HostCopy | HostUpdate) or moved.bytes)
            found[action] = tuple(dict.fromkeys(flow_class for moved in loads for flow_class in self.flow_classes(moved)))
        flow_classes = [found[task.action] for task in graph.templates.tasks]
        return Contention(graph=graph, job=self.job, flow_classes=flow_classes, common=common, others=tuple(others))

    def labels(self) -> Mapping[int, tuple[str, ...]]:
        """Return, for each flow class, the names of the groups and transfers that put it on the links."""
        names: dict[int, dict[str, None]] = {}
        for moved, _ in self._operations.values():
            for flow_class in self.flow_classes(moved):
                names.setdefault(flow_class, {})[f"{self.job}: {label(moved)}" if self.job else label(moved)] = None
        return {flow_class: tuple(found) for flow_class, found in names.items()}

    def choices(self) -> tuple[CollectiveChoice, ...]:
        """Return the algorithm of each collective and transfer, each once, in the order of the program."""
        found: dict[CollectiveChoice, None] = {}
        for moved, operation in self._operations.values():
            # How a copy inside a node is made, nobody chooses.
            if operation.phases and isinstance(moved, Collective | Transfer):
                found[_choice(moved, operation)] = None
        return tuple(found)

    def uneven(self) -> tuple[str, ...]:
        """Return the names of groups, then of transfers, with unequal placement, in which the slowest sets the rate."""
        uneven = [moved for moved, operation in self._operations.values() if not operation.uniform]
        groups = dict.fromkeys(moved.group.name for moved in uneven if isinstance(moved, Collective))
        transfers = dict.fromkeys(f"transfer {moved.name}" for moved in uneven if isinstance(moved, Transfer))
        inside = dict.fromkeys(label(moved) for moved in uneven if isinstance(moved, HostCopy | HostUpdate))
        return (*groups, *transfers, *inside)

    def _coupled_flow(self, flow: SizedFlow) -> CoupledFlow:
        flow_class = self.network.add_class(flow.route_set, cap_bytes_per_s=flow.cap_bytes_per_s)
        return CoupledFlow(flow_class=flow_class, size_bytes=flow.bytes_per_flow, latency_s=whole_ticks_s(flow.latency_s))

    def _laid(self, moved: Moved) -> Operation:
        cluster = self.library.cluster
        match moved:
            case Transfer():
                return self.library.transfer(moved.name, moved.pairs, size_bytes=moved.bytes, waits_per_transfer=moved.waits_per_transfer)
            case HostCopy():
                return lay_copy(cluster, moved.ranks, moved.source, moved.destination, size_bytes=moved.bytes)
            case HostUpdate():
                return lay_update(cluster, moved.ranks, self.library.bandwidth_bytes_per_s, size_bytes=moved.bytes)
            case Collective():
                return self.library.operation(_call(moved), moved.group.members)


def _call(moved: Collective) -> CollectiveCall:
    return CollectiveCall(
        op=moved.op,
        group=moved.group.name,
        size_bytes=moved.bytes,
        algorithm=moved.algorithm,
        pieces=moved.pieces,
        servers=moved.servers,
    )


def _choice(moved: Collective | Transfer, operation: Operation) -> CollectiveChoice:
    if isinstance(moved, Transfer):
        dimension, op, ranks, calls = moved.dimension, "send", 2, 1
    else:
        dimension, op, ranks, calls = moved.group.dimension, moved.op, moved.group.size, moved.pieces
    return CollectiveChoice(
        dimension=dimension,
        op=op,
        ranks=ranks,
        bytes=moved.bytes / calls,
        algorithm=operation.algorithm,
        protocol=operation.protocol,
    )


def moved_by(action: Action) -> tuple[Moved, ...]:
    """Return what an action moves, in order."""
    match action:
        case Communicate():
            return (action.collective,)
        case Transfer() | HostCopy() | HostUpdate():
            return (action,)
        case Compute():
            return tuple(moved for block in action.blocks for moved in _inside(block))


def _inside(block: Block) -> tuple[Collective, ...]:
    return tuple(collective for item in block.body for collective in collectives_in(item))


def label(moved: Moved) -> str:
    """Return what people call it: dimension and operation, or the name of a transfer or copy."""
    if isinstance(moved, Collective):
        return f"{moved.group.dimension} {moved.op.replace('_', '-')}"
    return f"{moved.dimension} {moved.name}"
