"""Times of the parts of a step by themselves: passes, collectives, sends, updates. Each is priced once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Final

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.alone import alone
from clustersim.engine.pace import Timing
from clustersim.engine.pricing import Pricing
from clustersim.engine.traffic import FlowPhases, Moved, Traffic
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.sharing import SharedNetwork
from clustersim.program.tasks import Block, Collective, Compute, RankGroups, UnevenWork, Work, works_in
from clustersim.topology.cluster import Cluster, FloatArray
from clustersim.workloads.operators import Convolution, FlashAttention, Gemm, GroupedGemm, Kernel

DIMENSIONS: Final = ("tp", "cp", "ep")
"""Whose collectives stand inside passes."""
MATRIX, MEMORY, EXPOSED, ISSUE = 0, 1, 2, 5
"""Places of a part of a pass in its row: kernels of matrix units, all others, exposed collectives, and what the host needs to issue it."""
WIDTH: Final = 6

Row = FloatArray
"""Shape (WIDTH,): the parts of a pass."""


@dataclass(slots=True)
class EvenTraffic(Traffic):
    """Traffic that counts only where it is the same for all groups: elsewhere some go faster than the slowest."""

    counts: bool = True
    apart: dict[str, None] = field(default_factory=dict[str, None])
    """Names of groups whose traffic does not count, because they do not all work at the same time."""

    def phases(self, moved: Moved) -> FlowPhases:
        """Return what is in flight; nothing where groups are not alike."""
        if not self.counts or (isinstance(moved, Collective) and moved.group.name in self.apart):
            return ()
        # By its full name: a class with slots is made twice, and super() knows the first one.
        return Traffic.phases(self, moved) if self.operation(moved).uniform else ()


@dataclass(frozen=True, slots=True)
class Fastest:
    """Accelerators of several kinds, whichever of them is the fastest at a piece of work."""

    models: tuple[KernelModel, ...]

    @property
    def blocks(self) -> bool:
        """Whether the host waits for each kernel, which is a choice for all."""
        return self.models[0].blocks

    def work_s(self, kernels: Sequence[Kernel]) -> float:
        """Return the shortest time of kernels in order."""
        return min(model.work_s(kernels) for model in self.models)

    def issue_s(self, kernels: Sequence[Kernel], n_collectives: int = 0) -> float:
        """Return the shortest time in which a host issues them."""
        return min(model.issue_s(kernels, n_collectives) for model in self.models)


@dataclass(slots=True, kw_only=True)
class UnitCosts:
    """Times of the parts of steps on one cluster, on idle links."""

    cluster: Cluster
    network: NetworkCalibration
    kernels: Timing
    step_host_s: float
    """Host time of a step, in seconds."""
    counts_traffic: bool = True
    """False where nodes or links differ, so that what is moved counts for nothing."""
    in_step: bool = True
    """Whether all replicas do the same at the same time, so that they meet on the links that they share."""
    pace: float = 1.0
    """Minimum ratio of computation time to the usual one."""
    traffic: EvenTraffic = field(init=False)
    pricing: Pricing = field(init=False)
    _moved_s: dict[int, tuple[Moved, float]] = field(default_factory=dict[int, tuple[Moved, float]])

    def __post_init__(self) -> None:
        """Lay a network on which nothing is in flight."""
        library = Library(cluster=self.cluster, calibration=self.network)
        network = SharedNetwork(library.bandwidth_bytes_per_s, labels=self.cluster.tier_index)
        self.traffic = EvenTraffic(library=library, network=network, counts=self.counts_traffic)
        self.pricing = Pricing(
            kernels=self.kernels, traffic=self.traffic, network=network, step_host_s=self.step_host_s, slowdown=self.pace
        )

    def host_s(self) -> float:
        """Return what the host does for a step."""
        return self.pace * self.step_host_s

    def row(self, blocks: tuple[Block, ...]) -> Row:
        """Return the parts of a pass or of a piece of one."""
        row = np.zeros(WIDTH)
        price = self.pricing.price(Compute(name="F", phase="forward", blocks=blocks))
        matrix_s = fsum(block.repeat * self._matrix_s(work) for block in blocks for item in block.body for work in works_in(item))
        row[MATRIX], row[MEMORY], row[ISSUE] = matrix_s, price.compute_s - matrix_s, price.issue_s
        for place, dimension in enumerate(DIMENSIONS):
            row[EXPOSED + place] = price.exposed_s.get(dimension, 0.0)
        # What belongs to no dimension of these is left out of none: it counts with the first.
        row[EXPOSED] += price.duration_s - price.host_s - row[:ISSUE].sum()
        return row

    def moved_s(self, moved: Moved) -> float:
        """Return how long a collective, send or copy takes by itself."""
        found = self._moved_s.get(id(moved))
        if found is None:
            found = self._moved_s[id(moved)] = (moved, alone(self.traffic.phases(moved), self.pricing.network).duration_s)
        return found[1]

    def work_s(self, kernels: Sequence[Kernel]) -> float:
        """Return how long an accelerator needs for kernels."""
        return self.pace * self.kernels.work_s(kernels)

    def pass_s(self, row: FloatArray) -> FloatArray:
        """Return how long passes take, given their parts along the last axis: the accelerator, or the host where that is slower."""
        device_s, issue_s = row[..., :ISSUE].sum(axis=-1), row[..., ISSUE]
        return device_s + issue_s if self.kernels.blocks else np.maximum(device_s, issue_s)

    def near(self, group: RankGroups, name: str) -> RankGroups:
        """Return a group under a name of its own; where all members are in one domain, only those of the first domain."""
        domains = self.cluster.domain_of(group.members)
        named = RankGroups(name=f"{name}: {group.name}", dimension=group.dimension, members=group.members)
        if (domains == domains[:, :1]).all():
            first = group.members[domains[:, 0] == domains[0, 0]]
            return replace(named, members=first if self.in_step else first[:1])
        if not self.in_step:
            self.traffic.apart[named.name] = None
        return named

    def _matrix_s(self, item: Work | UnevenWork) -> float:
        work = item.work if isinstance(item, UnevenWork) else item
        products = [kernel for kernel in work.kernels if isinstance(kernel, Gemm | GroupedGemm | FlashAttention | Convolution)]
        return self.work_s(products)
