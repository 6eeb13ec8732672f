"""Everything that can be in flight in a Program, as footprints on the links of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clustersim.collectives.ring import ring_demand, transfer_demand
from clustersim.collectives.rings import Pairs, Rings, lay_pairs, lay_rings
from clustersim.engine.contention import contended_passes
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.network.fluid import FluidNetwork, link_cells
from clustersim.program.program import Program
from clustersim.program.tasks import Collective, Communicate, Compute, Group, Overlapped, Transfer, Work
from clustersim.topology.cluster import TIERS, Cluster, FloatArray
from clustersim.topology.load import Demand, Footprint


def usable_bandwidth(cluster: Cluster, calibration: NetworkCalibration) -> FloatArray:
    """Return what each link really carries: its data-sheet bandwidth times the calibrated share of its tier."""
    share = np.array([calibration.efficiency[tier] for tier in TIERS])
    return cluster.bandwidth_bytes_per_s * share[cluster.tier_index]


@dataclass(slots=True)
class Traffic:
    """The kinds of flow of a program, numbered, and the network they share.

    Groups and transfers are told apart by name: everything on the same group crosses the same links.
    """

    cluster: Cluster
    calibration: NetworkCalibration
    _kinds: dict[str, int] = field(default_factory=dict[str, int])
    _rings: dict[str, Rings] = field(default_factory=dict[str, Rings])
    _pairs: dict[str, Pairs] = field(default_factory=dict[str, Pairs])
    _footprints: list[Footprint] = field(default_factory=list[Footprint])
    _inline: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """Kinds of the collectives inside each compute action, by the action's identity."""

    def register(self, program: Program) -> None:
        """Take in all groups and transfers of a program, in the order of its tasks."""
        seen: dict[int, None] = {}
        for task in program.tasks:
            action = task.action
            if id(action) in seen:
                continue
            seen[id(action)] = None
            match action:
                case Communicate():
                    self._group_kind(action.collective.group)
                case Transfer():
                    self._transfer_kind(action)
                case Compute():
                    self._inline[id(action)] = self._inline_kinds(action)

    def kind(self, action: Collective | Transfer) -> int:
        """Return the number of the kind of flow."""
        return self._kinds[action.group.name if isinstance(action, Collective) else action.name]

    def demand(self, action: Collective | Transfer) -> Demand:
        """Return bytes for each flow, and latency."""
        if isinstance(action, Transfer):
            return transfer_demand(self._pairs[action.name], self.calibration, size_bytes=action.bytes)
        rings = self._rings[action.group.name]
        return ring_demand(action.op, rings, self.calibration, size_bytes=action.bytes, pieces=action.pieces)

    def network(self) -> FluidNetwork:
        """Return an idle network that all registered kinds share."""
        capacity = usable_bandwidth(self.cluster, self.calibration)
        return FluidNetwork(cells=link_cells(self._footprints, capacity, self.cluster.tier_index.astype(np.float64)))

    def contended(self, program: Program, network: FluidNetwork) -> frozenset[int]:
        """Return the passes that other traffic can meet on the links of their own collectives."""
        shares = (network.cells.flows > 0.0).astype(np.float64)
        common = shares.T @ shares > 0.0
        rivals: list[tuple[int, list[int]]] = []
        inline = {
            index: self._inline[id(task.action)]
            for index, task in enumerate(program.tasks)
            if isinstance(task.action, Compute) and self._inline[id(task.action)]
        }
        users: dict[int, set[int]] = {}
        for index, kinds in inline.items():
            for kind in kinds:
                users.setdefault(kind, set()).add(program.tasks[index].lanes[0].rank_class)
        met = {mine: [kind for kind in sorted(users) if common[mine, kind]] for mine in range(len(common))}
        for index, task in enumerate(program.tasks):
            if isinstance(task.action, Compute):
                # Passes of one class run one after the other and never meet.
                own = {task.lanes[0].rank_class}
                shared = dict.fromkeys(kind for mine in inline.get(index, ()) for kind in met[mine] if users[kind] != own)
                rivals.append((index, list(shared)))
            else:
                moved = task.action.collective if isinstance(task.action, Communicate) else task.action
                rivals.append((index, met[self.kind(moved)]))
        return contended_passes(program, rivals, inline)

    def uneven(self) -> tuple[str, ...]:
        """Return the names of groups and transfers whose members are not all placed alike, so that all go at the slowest's pace."""
        groups = [name for name, rings in self._rings.items() if not rings.uniform]
        transfers = [f"transfer {name}" for name, pairs in self._pairs.items() if not pairs.uniform]
        return (*groups, *transfers)

    def _inline_kinds(self, action: Compute) -> tuple[int, ...]:
        kinds: dict[int, None] = {}
        for block in action.blocks:
            for item in block.body:
                match item:
                    case Collective():
                        kinds[self._group_kind(item.group)] = None
                    case Overlapped():
                        kinds[self._group_kind(item.collective.group)] = None
                    case Work():
                        pass
        return tuple(kinds)

    def _group_kind(self, group: Group) -> int:
        if group.name not in self._kinds:
            rings = self._rings[group.name] = lay_rings(self.cluster, np.array(group.members, dtype=np.int64))
            self._add(group.name, rings.footprint)
        return self._kinds[group.name]

    def _transfer_kind(self, transfer: Transfer) -> int:
        if transfer.name not in self._kinds:
            ends = np.array(transfer.pairs, dtype=np.int64)
            pairs = self._pairs[transfer.name] = lay_pairs(self.cluster, ends[:, 0], ends[:, 1])
            self._add(transfer.name, pairs.footprint)
        return self._kinds[transfer.name]

    def _add(self, name: str, links: Footprint) -> None:
        self._kinds[name] = len(self._footprints)
        self._footprints.append(links)
