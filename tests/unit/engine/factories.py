"""A machine whose every constant can be chosen, and the smallest programs that run on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from clustersim.collectives.library import Library
from clustersim.engine.clock import Clock
from clustersim.engine.pace import Pace
from clustersim.engine.prepared import Prepared
from clustersim.engine.pricing import Pricing
from clustersim.engine.program_graph import Graph
from clustersim.engine.replay import Replay
from clustersim.engine.simulate import Machine, replay
from clustersim.engine.traffic import Traffic
from clustersim.hardware.calibration import (
    AttentionCalibration,
    AttentionPass,
    BandwidthCeilings,
    Calibration,
    FamilyCalibration,
    GemmCalibration,
    LaunchCalibration,
    NetworkCalibration,
    Tile,
)
from clustersim.hardware.calibrations import calibration_of_generation
from clustersim.hardware.library_costs import PROTOCOLS, AlgorithmLatencies, Family, Medium
from clustersim.hardware.models import Fabric, Node, Switch
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.sharing import SharedNetwork
from clustersim.program.program import Program
from clustersim.program.tasks import (
    COMPUTE_STREAM,
    Action,
    Block,
    Collective,
    CollectiveOp,
    Communicate,
    Compute,
    Item,
    Lane,
    Overlapped,
    Phase,
    RankGroups,
    Task,
    Transfer,
    Work,
)
from clustersim.topology.cluster import TIERS
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.trace.timeline import RankClass, Timeline
from clustersim.workloads.operators import Stream
from tests.unit.topology.factories import make_node

MEMORY_BYTES_PER_S = 3e12
"""Rate of the accelerator of ``make_node``."""

FAMILIES: tuple[Family, ...] = ("ring", "tree", "nvls", "exchange")
MEDIA: tuple[Medium, ...] = ("nvlink", "pcie", "net")


def latencies(base_s: float, intra_s: float, inter_s: float) -> dict[Family, AlgorithmLatencies]:
    """Return the same start and hops for all families and protocols."""
    hops = {"nvlink": intra_s, "pcie": intra_s, "net": inter_s}
    row = AlgorithmLatencies(
        base_s=dict.fromkeys(PROTOCOLS, base_s), hop_s={medium: dict.fromkeys(PROTOCOLS, hops[medium]) for medium in MEDIA}
    )
    return dict.fromkeys(FAMILIES, row)


def families(start_s: float, chunk_s: float) -> dict[Family, FamilyCalibration]:
    return dict.fromkeys(FAMILIES, FamilyCalibration(start_s=start_s, chunk_s=chunk_s))


LIMITS = calibration_of_generation("ampere").network.library
IDEAL_NETWORK = NetworkCalibration(
    efficiency=dict.fromkeys(TIERS, 1.0),
    families=families(0.0, 0.0),
    ceilings=BandwidthCeilings(nvls=1.0, exchange=1.0, pair=1.0, peer=1.0),
    multiprocessors=0,
    library=LIMITS,
    latencies=latencies(0.0, 0.0, 0.0),
    protocols=("simple",),
)
"""Nothing but bytes over bandwidth."""

LATENT_NETWORK = NetworkCalibration(
    efficiency=dict(zip(TIERS, (0.8, 0.85, 0.75, 0.9, 0.95, 0.7, 0.65, 1.0), strict=True)),
    families=families(11e-6, 0.0),
    ceilings=BandwidthCeilings(nvls=1.0, exchange=1.0, pair=1.0, peer=1.0),
    multiprocessors=0,
    library=LIMITS,
    latencies=latencies(3e-6, 1.3e-6, 5e-6),
    protocols=("simple",),
)
"""No two constants alike, so that a mistake shows."""

CHUNK_S = 7e-9
RAMPED_NETWORK = replace(LATENT_NETWORK, families=families(11e-6, CHUNK_S))
"""The same with a ramp-up inside domains too."""


def instant(node: Node) -> Node:
    """Return the same node, and the fabric that it comes with, without any latency on the wires."""

    def switch(of: Switch) -> Switch:
        return replace(of, latency_s=0.0)

    fabric: Fabric = replace(node.fabric, leaf=switch(node.fabric.leaf), spine=switch(node.fabric.spine), cable_latency_s=0.0)
    return replace(node, scale_up=replace(node.scale_up, latency_s=0.0), nic=replace(node.nic, latency_s=0.0), fabric=fabric)


ATTENTION = AttentionPass(fraction=1.0, half_length=0.0, causal_half_length=0.0)


def make_calibration(network: NetworkCalibration = IDEAL_NETWORK, launch: LaunchCalibration | None = None) -> Calibration:
    return Calibration(
        name="ideal",
        generation="test",
        gemm=GemmCalibration(
            sustained_fraction={"default": 1.0},
            under_load={"default": 1.0},
            depth_overhead=0.0,
            power_exponent=0.7,
            tiles=(Tile(128, 128, 1.0),),
        ),
        attention=dict.fromkeys(("flash", "flash_2"), AttentionCalibration(forward=ATTENTION, backward=ATTENTION, half_head_dim=0.0)),
        memory_fraction=1.0,
        launch=launch or LaunchCalibration(kernel_s=0.0, further_s=0.0, product_s=0.0, dispatch_s=0.0, step_s=0.0),
        network=network,
        accelerators=(),
        sources=(),
    )


def make_machine(
    node: Node | None = None, n_nodes: int = 1, *, network: NetworkCalibration = IDEAL_NETWORK, launch: LaunchCalibration | None = None
) -> Machine:
    node = node or instant(make_node())
    calibration = make_calibration(network, launch)
    kernels = KernelModel(accelerator=node.accelerator, calibration=calibration, precision="bf16", attention_precision="bf16")
    return Machine(cluster=build_cluster(node, n_nodes), kernels=kernels, calibration=calibration)


def group_of(*members: tuple[int, ...], name: str = "group", dimension: str = "dp") -> RankGroups:
    return RankGroups(name=name, dimension=dimension, members=np.array(members))


def collective(group: RankGroups, size_bytes: float, op: CollectiveOp = "all_reduce", *, pieces: int = 1) -> Collective:
    return Collective(op=op, group=group, bytes=size_bytes, pieces=pieces, algorithm="ring")


def communicate(group: RankGroups, size_bytes: float, op: CollectiveOp = "all_reduce", *, name: str = "reduce") -> Communicate:
    return Communicate(name=name, collective=collective(group, size_bytes, op))


def transfer(*pairs: tuple[int, int], size_bytes: float, name: str = "send") -> Transfer:
    return Transfer(name=name, dimension="pp", pairs=np.array(pairs), bytes=size_bytes)


def work(seconds: float, *, phase: Phase = "forward", name: str = "work") -> Work:
    """Return work that takes so long on an ideal machine."""
    return Work(name=name, phase=phase, kernels=(Stream(seconds * MEMORY_BYTES_PER_S),))


def overlapped(collective: Collective, seconds: float) -> Overlapped:
    return Overlapped(collectives=(collective,), works=(work(seconds),))


def compute(*body: Item, repeat: int = 1, phase: Phase = "forward", name: str = "F") -> Compute:
    return Compute(name=name, phase=phase, blocks=(Block(name="layer", body=body, repeat=repeat),))


def task(action: Action, *after: int, rank_class: int = 0, stream: str | None = None) -> Task:
    stream = stream or (COMPUTE_STREAM if isinstance(action, Compute) else "dp")
    return Task(action=action, lanes=(Lane(rank_class=rank_class, stream=stream),), after=after)


def program(*tasks: Task, n_classes: int = 1, n_ranks: int = 8) -> Program:
    """Return a program as it is written down; each class stands for its share of the ranks."""
    share = n_ranks // n_classes
    classes = tuple(
        RankClass(name=f"stage {stage}", stage=stage, representative_rank=stage * share, ranks=stage * share + np.arange(share))
        for stage in range(n_classes)
    )
    return Program(rank_classes=classes, tasks=tasks)


def workers(*seconds: float) -> Program:
    """Return a program of classes with one pass each, of so many seconds, that nothing joins."""
    tasks = [task(compute(work(each)), rank_class=rank_class) for rank_class, each in enumerate(seconds)]
    return program(*tasks, n_classes=len(seconds))


def joined(*seconds: float, size_bytes: float = 0.0) -> Program:
    """Return the same with a collective of all that follows the passes; without bytes it ends when the last has come."""
    n_classes = len(seconds)
    lanes = tuple(Lane(rank_class=rank_class, stream="dp") for rank_class in range(n_classes))
    reduce = Task(
        action=communicate(group_of(tuple(range(8 // n_classes * n_classes))), size_bytes), lanes=lanes, after=tuple(range(n_classes))
    )
    return program(*workers(*seconds).tasks, reduce, n_classes=n_classes)


def paced(machine: Machine, *slowdowns: float) -> Machine:
    """Return a machine whose rank classes take so many times as long to compute."""
    return replace(machine, paces=tuple(Pace(kernels=machine.kernels, slowdown=slowdown) for slowdown in slowdowns))


def solo_s(action: Action, machine: Machine) -> float:
    """Return how long one action takes when it is the whole program."""
    timeline, _ = replay(program(task(action), n_ranks=machine.cluster.n_ranks), machine)
    return timeline.step_time_s


def timeline_of(machine: Machine, *tasks: Task, n_classes: int = 1) -> Timeline:
    timeline, _ = replay(program(*tasks, n_classes=n_classes, n_ranks=machine.cluster.n_ranks), machine)
    return timeline


def without_wall_time(timeline: Timeline) -> Timeline:
    return replace(timeline, engine=replace(timeline.engine, wall_s=0.0))


def same_times(one: Timeline, other: Timeline) -> bool:
    """Return whether the same happened at the same times, as far as sums in another order can tell, and links carried as much."""
    pairs = list(zip(one.spans, other.spans, strict=True))
    links = list(zip(one.links, other.links, strict=True))
    return (
        all((a.name, a.rank_class, a.stream) == (b.name, b.rank_class, b.stream) for a, b in pairs)
        and [a.end_s for a, _ in pairs] == pytest.approx([b.end_s for _, b in pairs], rel=1e-12)
        and [a.start_s for a, _ in pairs] == pytest.approx([b.start_s for _, b in pairs], rel=1e-12)
        and [sum(s for _, s in a.exposed_s) for a, _ in pairs]
        == pytest.approx([sum(s for _, s in b.exposed_s) for _, b in pairs], rel=1e-9)
        and [(a.bytes, a.busy_s) for a, _ in links] == [pytest.approx((b.bytes, b.busy_s), rel=1e-9) for _, b in links]
    )


def traffic_of(machine: Machine) -> Traffic:
    library = Library(cluster=machine.cluster, calibration=machine.calibration.network)
    return Traffic(library=library, network=SharedNetwork(library.bandwidth_bytes_per_s, labels=machine.cluster.tier_index))


def laid_out(machine: Machine, of: Program) -> tuple[Traffic, SharedNetwork, Pricing, Clock]:
    """Return the parts of a replay that is about to start."""
    traffic = traffic_of(machine)
    traffic.register(of)
    pricing = Pricing(kernels=machine.kernels, traffic=traffic, network=traffic.network, step_host_s=machine.calibration.launch.step_s)
    return traffic, traffic.network, pricing, Clock(network=traffic.network)


def replay_of(machine: Machine, of: Program, contended: Iterable[int] = ()) -> Replay:
    """Return a replay that is about to start, with all rank classes alike."""
    traffic, _, pricing, clock = laid_out(machine, of)
    clock.log = []
    prepared = Prepared(graph=Graph(of), traffic=traffic, prices=[pricing] * len(of.rank_classes))
    return Replay(prepared=prepared, clock=clock, contended=frozenset(contended))


def bytes_by_link(timeline: Timeline, tier: str) -> dict[str, float]:
    """Return what one link of each cell of a tier carried, by the name of its first link."""
    return {link.name: link.bytes for link in timeline.links if link.tier == tier}


def total_bytes(timeline: Timeline, tier: str) -> float:
    return float(np.sum([link.bytes * link.n_links for link in timeline.links if link.tier == tier]))
