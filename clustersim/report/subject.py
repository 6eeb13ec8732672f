"""Input of a picture or a page of a run: its result, and the parts of the plan and of the machine that pictures show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isclose
from typing import Final

import numpy as np

from clustersim.errors import ScenarioError
from clustersim.hardware.models import Node
from clustersim.measure.cost_report import CostReport
from clustersim.measure.goodput_report import GoodputReport
from clustersim.measure.metrics import Metrics
from clustersim.measure.serving_metrics import ServingMetrics
from clustersim.measure.step_breakdown import PipelineShape, closed_form_bubble
from clustersim.reliability import Upkeep
from clustersim.serving.batch import FloatArray
from clustersim.serving.records import StepRecord
from clustersim.topology.cluster import TIERS
from clustersim.topology.wired import Cluster
from clustersim.trace.timeline import Timeline
from clustersim.units.divisors import count_text

_NUMBER: Final = re.compile(r"\d+")
_FABRIC: Final = ("nic", "leaf", "spine")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLevel:
    """Devices of one height of the fabric, and the links from them upwards."""

    name: str
    tier: str
    """Tier of the links upwards; empty at the top."""
    n_links: int = 0
    """Upwards; those between equals count in either direction."""
    capacity_bytes_per_s: float = 0.0
    """Sum over these links, in one direction."""
    sideways: bool = False
    """Whether the links join devices of this height with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWire:
    """One direction of a wire in a node, by the names of its ends within the node."""

    name: str
    tier: str
    tail: str
    head: str
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PicturedMachine:
    """Levels from the nodes upwards, and the wires of the first node."""

    levels: tuple[FabricLevel, ...]
    node: str
    n_nodes: int
    """Nodes of the kind of the first."""
    wires: tuple[NodeWire, ...]
    oversubscription: float
    """Bandwidth down over bandwidth up at a leaf."""
    domain_nodes: int = 1
    """Nodes that the switch of the first one joins."""


def machine_of(cluster: Cluster) -> PicturedMachine:
    """Return the levels of a cluster and the wires of its first node."""
    return PicturedMachine(
        levels=_levels(cluster),
        node=cluster.node.name,
        n_nodes=cluster.kinds[0][1],
        wires=tuple(_wire(cluster, link) for link in range(int(cluster.numbering.first_wire[1]))),
        oversubscription=cluster.fabric.oversubscription,
        domain_nodes=int((cluster.domain_of_host(np.arange(cluster.n_nodes)) == 0).sum()),
    )


def domains_text(node: Node, count: int) -> str:
    """Return `` in 2 NVLink domains of 72 GPUs`` for nodes that share such; empty where each has its own."""
    n_domains = ceil(count / node.scale_up.nodes_per_domain)
    shared = f" in {count_text(n_domains, 'NVLink domain')} of {node.domain_size} GPUs"
    return shared if node.scale_up.nodes_per_domain > 1 else ""


def _levels(cluster: Cluster) -> tuple[FabricLevel, ...]:
    """Return places, leaves, spines and cores, as far as there are any."""
    parts = [f"{count:,} x {node.name}{domains_text(node, count)}" for node, count in cluster.kinds]
    n_servers = cluster.n_hosts - cluster.n_nodes
    names = [" + ".join([*parts, *([f"{count_text(n_servers, 'server')} without accelerators"] if n_servers else [])])]
    found: list[FabricLevel] = []
    for tier in _FABRIC:
        links = np.flatnonzero(np.asarray(cluster.tier_index) == TIERS.index(tier))
        if not len(links):
            continue
        lower, upper = (_kind(end) for end in cluster.ends(int(links[0])))
        capacity_bytes_per_s = float(cluster.as_built_bytes_per_s[links].sum()) / 2
        found.append(
            FabricLevel(
                name="the same between groups" if found and found[-1].sideways else names[-1],
                tier=tier,
                n_links=len(links) // 2,
                capacity_bytes_per_s=capacity_bytes_per_s,
                sideways=lower == upper,
            )
        )
        if lower != upper:
            names.append(_switches(cluster, tier, upper, capacity_bytes_per_s))
    top = () if found and found[-1].sideways else (FabricLevel(name=names[-1], tier=""),)
    return (*found, *top)


def _switches(cluster: Cluster, tier: str, kind: str, capacity_bytes_per_s: float) -> str:
    """Return number and make of the switches above the links of a tier; above leaves the fewest whose ports suffice."""
    fabric = cluster.fabric
    if tier == "nic":
        name = {"leaf": "leaf", "router": "router"}.get(kind, "switch")
        plural = {"leaf": "leaves", "switch": "switches"}.get(name, "")
        return f"{count_text(cluster.n_leaves, name, plural)} ({fabric.leaf.name})"
    # A spine below a core has half of its ports or more upwards.
    ratio = 1.0 if tier == "spine" or not fabric.leaves_per_pod else fabric.core_oversubscription / (1.0 + fabric.core_oversubscription)
    count = ceil(capacity_bytes_per_s / (ratio * fabric.spine.n_ports * fabric.spine.port_bandwidth_bytes_per_s) * (1.0 - 1e-9))
    names = ("core switch", "core switches") if tier == "spine" else ("spine",)
    return f"{count_text(count, *names)} at least ({fabric.spine.name})"


def _kind(end: str) -> str:
    """Return the kind of a device from its name.

    Examples
    --------
    >>> [_kind(name) for name in ("leaf12", "group0/router3", "pod1/spines", "node0/pcie3")]
    ['leaf', 'router', 'spines', 'pcie']
    """
    return _NUMBER.sub("", end.rpartition("/")[2])


def _wire(cluster: Cluster, link: int) -> NodeWire:
    tail, head = (end.removeprefix("node0/") for end in cluster.ends(link))
    each = cluster.links[link]
    return NodeWire(name=each.name, tier=each.tier, tail=tail, head=head, bandwidth_bytes_per_s=each.bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGroup:
    """All kernels of one name that a rank of the model's mean stage runs for a micro-batch."""

    name: str
    flops: float
    traffic_bytes: float
    """Least traffic with the memory of the accelerator."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheetPeaks:
    """Peak rates of one accelerator, by its data sheets."""

    accelerator: str
    peak_flops_per_s: float
    """In the precision of the run."""
    memory_bytes_per_s: float
    scale_up_bytes_per_s: float
    """0 without links between accelerators."""
    nic_bytes_per_s: float
    """Bandwidth of its share of node adapters, in bytes/s; 0 without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One run as pictures see it."""

    label: str
    """Name of the run, unlike those of others in the same picture."""
    metrics: Metrics
    timeline: Timeline
    pipeline: PipelineShape | None = None
    """None where the order of passes is written by hand."""
    sends_block: bool = False
    """Whether a pass waits for the sends before it."""
    global_batch_size: int = 0
    cost: CostReport | None = None
    goodput: GoodputReport | None = None
    upkeep: Upkeep | None = None
    """Handling of failures; None without a reliability section."""
    kernels: tuple[KernelGroup, ...] = ()
    ceilings: DataSheetPeaks | None = None
    machine: PicturedMachine | None = None

    @property
    def closed_form_bubble_fraction(self) -> float | None:
        """Bubble fraction expected by the formulas."""
        return None if self.pipeline is None else closed_form_bubble(self.pipeline, self.timeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSubject:
    """One serving run as pictures see it."""

    label: str
    """Name of the run, unlike those of others in the same picture."""
    load: str
    """Rate, number of clients or speed of the trace, with its unit."""
    metrics: ServingMetrics
    latencies_s: Mapping[str, FloatArray]
    """Latencies of the measured requests by name: ``ttft``, ``tpot``, ``e2e``."""
    samples: Sequence[StepRecord]
    """Steps at about equal distances in time."""
    n_blocks: Mapping[int, int]
    """KV-cache blocks of each replica."""


def check_alike(subjects: Sequence[Subject], picture: str) -> None:
    """Check that all runs do the same work in a step, so that their times say which is better.

    Raises
    ------
    ScenarioError
        When two runs differ in the model, the batch or the sequences.
    """
    first = subjects[0]
    for other in subjects[1:]:
        works = [subject.metrics.model_flops_per_step for subject in (first, other)]
        if not isclose(*works, rel_tol=1e-9):
            times = f"{works[1] / works[0]:.3g} times" if works[0] > 0.0 else "other"
            raise ScenarioError(
                f"'{picture}' compares equal work, and a step of {other.label} has {times} the model FLOPs of {first.label}",
                hint="name runs of one model, batch and sequence length, or draw each by itself",
            )
