"""The vocabulary of work: what every rank class does, in what order, after what. No durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from clustersim.hardware.library_costs import CollectiveOp, Place, Servers
from clustersim.workloads.operators import Kernel

if TYPE_CHECKING:
    from clustersim.topology.cluster import IntArray

Phase = Literal["forward", "backward", "input", "weight", "recompute", "optimizer", "host", "load"]

COMPUTE_STREAM = "compute"

OFFLOAD = "offload"
"""Dimension of what passes between accelerators, their hosts and drives."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankGroups:
    """Rank groups that do the same thing at the same time, all of one size; they advance together."""

    name: str
    dimension: str
    members: IntArray
    """Shape (n_groups, size): the global ranks of each of the concurrent groups."""

    @property
    def size(self) -> int:
        """Ranks in one group."""
        return int(self.members.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective operation on a full tensor of ``bytes``, as performed by each of the concurrent groups."""

    op: CollectiveOp
    group: RankGroups
    bytes: float
    pieces: int = 1
    """Consecutive calls, each with an equal part of the bytes."""
    algorithm: str = "auto"
    servers: Servers | None = None
    """For pushes and pulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Consecutive kernels."""

    name: str
    phase: Phase
    kernels: tuple[Kernel, ...]
    """Kernels; those of the mean rank, where the ranks of a class have unlike amounts."""
    longest: tuple[Kernel, ...] = ()
    """Kernels of the rank for which the others wait, where amounts are unlike."""
    dimension: str = ""
    """Dimension to which that waiting is charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlapped:
    """Consecutive collectives overlapped with consecutive work of the same rank; both end before the next item begins."""

    collectives: tuple[Collective, ...]
    works: tuple[Work, ...]


Item = Work | Collective | Overlapped


def collectives_in(item: Item) -> tuple[Collective, ...]:
    """Return the collectives of one item, in order."""
    match item:
        case Work():
            return ()
        case Collective():
            return (item,)
        case Overlapped():
            return item.collectives


def works_in(item: Item) -> tuple[Work, ...]:
    """Return the work of one item, in order."""
    match item:
        case Work():
            return (item,)
        case Collective():
            return ()
        case Overlapped():
            return item.works


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of work and collectives in order, repeated; such as one layer, times the layers of a stage."""

    name: str
    body: tuple[Item, ...]
    repeat: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compute:
    """Work on the accelerator, with the collectives that interrupt it."""

    name: str
    phase: Phase
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communicate:
    """A collective on its own stream, overlapped with computation."""

    name: str
    collective: Collective


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfer:
    """Concurrent point-to-point sends from the ranks of one class to those of another, pair by pair."""

    name: str
    dimension: str
    pairs: IntArray
    """Shape (n, 2): the global ranks of each sender and its receiver."""
    bytes: float
    """Bytes sent by one pair."""
    waits_per_transfer: float = 0.0
    """Number of waits of the hosts, a half where one wait is for two transfers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostCopy:
    """Concurrent copies inside the nodes of some ranks, between an accelerator, host memory and drives.

    What moves between an accelerator and a drive passes through the memory.
    """

    name: str
    ranks: IntArray
    bytes: float
    """Bytes copied for one rank."""
    source: Place
    destination: Place

    @property
    def dimension(self) -> str:
        """Dimension to which its time is charged."""
        return OFFLOAD


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostUpdate:
    """Work of a node's processors for some of its ranks, such as an optimizer's update; memory bandwidth bounds it."""

    name: str
    ranks: IntArray
    bytes: float
    """Read and written in memory for one rank."""

    @property
    def dimension(self) -> str:
        """Dimension to which its time is charged."""
        return OFFLOAD


Action = Compute | Communicate | Transfer | HostCopy | HostUpdate
"""Equal to itself alone: actions of one program that are alike are one object."""


class Lane(NamedTuple):
    """A stream of a rank class: its tasks run in the order in which they were added.

    Programs look lanes up more often than anything else, for which a tuple is quickest.
    """

    rank_class: int
    stream: str


class Task(NamedTuple):
    """One action on one lane, or on several lanes when several rank classes take part.

    There are more of them than of anything else, and a tuple is made in half the time.
    """

    action: Action
    lanes: tuple[Lane, ...]
    after: tuple[int, ...]
    """Indices of the tasks that must have ended, those before it on its lanes included."""
    micro_batch: int = -1
    chunk: int = -1
