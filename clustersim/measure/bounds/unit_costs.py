"""Times of the parts of a step by themselves: passes, collectives, sends, updates. Each is priced once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.pace import Timing
from clustersim.engine.pricing import Pricing
from clustersim.engine.traffic import FlowPhases, Moved, Traffic
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.sharing import SharedNetwork
from clustersim.program.tasks import Block, Collective, Compute, RankGroups
from clustersim.topology.cluster import Cluster, FloatArray
from clustersim.workloads.operators import Kernel

COMPUTE, EXPOSED, ISSUE = 0, 1, 2
"""Columns of a pass: computation, exposed collectives, and the time in which the host issues it."""
WIDTH: Final = 3

Row = FloatArray
"""Shape (WIDTH,): the parts of a pass."""


@dataclass(slots=True)
class EvenTraffic(Traffic):
    """Traffic that counts only where it is the same for all groups: elsewhere some go faster than the slowest."""

    counts: bool = True
    apart: dict[str, None] = field(default_factory=dict[str, None])
    """Names of groups whose traffic does not count, because they do not all work at the same time."""

    def phases(self, moved: Moved) -> FlowPhases:
        """Return the transfers; none where groups differ."""
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
    """False where nodes or links differ, so that transfers do not enter the bound."""
    in_step: bool = True
    """Whether all replicas act at the same time, so that they contend for shared links."""
    traffic: EvenTraffic = field(init=False)
    pricing: Pricing = field(init=False)

    def __post_init__(self) -> None:
        """Create a network with nothing in flight."""
        library = Library(cluster=self.cluster, calibration=self.network)
        network = SharedNetwork(library.bandwidth_bytes_per_s, labels=self.cluster.tier_index)
        self.traffic = EvenTraffic(library=library, network=network, counts=self.counts_traffic)
        self.pricing = Pricing(kernels=self.kernels, traffic=self.traffic, network=network, step_host_s=self.step_host_s)

    def row(self, blocks: tuple[Block, ...]) -> Row:
        """Return the parts of a pass or of a piece of one."""
        price = self.pricing.price(Compute(name="F", phase="forward", blocks=blocks))
        return np.array([price.compute_s, price.duration_s - price.host_s - price.compute_s, price.issue_s])

    def pass_s(self, row: FloatArray) -> FloatArray:
        """Return how long passes take, given their parts along the last axis: the accelerator, or the host where that is slower."""
        device_s, issue_s = row[..., :ISSUE].sum(axis=-1), row[..., ISSUE]
        return device_s + issue_s if self.kernels.blocks else np.maximum(device_s, issue_s)

    def near(self, group: RankGroups, name: str) -> RankGroups:
        """Return a group under its own name; if all members are in one domain, only those of the first domain."""
        domains = self.cluster.domain_of(group.members)
        named = RankGroups(name=f"{name}: {group.name}", dimension=group.dimension, members=group.members)
        if (domains == domains[:, :1]).all():
            first = group.members[domains[:, 0] == domains[0, 0]]
            return replace(named, members=first if self.in_step else first[:1])
        if not self.in_step:
            self.traffic.apart[named.name] = None
        return named
