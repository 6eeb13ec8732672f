"""Times of the parts of a step by themselves, each computed once, and of the passes through layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, Literal

import numpy as np

from clustersim.collectives.library import Library
from clustersim.engine.pace import Timing
from clustersim.engine.pricing import Pricing
from clustersim.engine.traffic import FlowPhases, Moved, Traffic
from clustersim.hardware.calibration import NetworkCalibration
from clustersim.kernels.kernel_model import KernelModel
from clustersim.network.sharing import SharedNetwork
from clustersim.parallel.contributors import layer_techniques
from clustersim.parallel.division import Mesh, divided, place
from clustersim.parallel.groups import ExpertGroups, ParallelGroups, parallel_groups
from clustersim.parallel.layers import Gradients
from clustersim.parallel.schedules import SCHEDULES
from clustersim.parallel.shard import local_model
from clustersim.parallel.stage_passes import ChunkPasses
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.program.tasks import Block, Collective, Item, RankGroups
from clustersim.topology import SYMMETRIC
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.topology.wired import Cluster
from clustersim.workloads.model import Model
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
    _library: Library = field(init=False)
    _network: SharedNetwork = field(init=False)
    _apart: dict[str, None] = field(default_factory=dict[str, None])

    def __post_init__(self) -> None:
        """Create a network with nothing in flight."""
        self._library = Library(cluster=self.cluster, calibration=self.network)
        self._network = SharedNetwork(self._library.bandwidth_bytes_per_s, labels=self.cluster.tier_index)

    def row(self, blocks: tuple[Block, ...]) -> Row:
        """Return the parts of a pass or of a piece of one."""
        # Both keep all that they have seen, and of the parts of another pass none comes again.
        traffic = EvenTraffic(library=self._library, network=self._network, counts=self.counts_traffic, apart=self._apart)
        pricing = Pricing(kernels=self.kernels, traffic=traffic, network=self._network, step_host_s=self.step_host_s)
        price = pricing.times(blocks)
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
            self._apart[named.name] = None
        return named


PassName = Literal["F", "B", "again", "I", "I again", "W"]
"""Forward; backward; backward with recomputation; input gradient, alone and with it; weight gradient."""

GRADIENTS: Final[dict[PassName, Gradients]] = {"F": "all", "B": "all", "again": "all", "I": "input", "I again": "input", "W": "weight"}
AGAIN: Final[tuple[PassName, ...]] = ("again", "I again")
"""Those with recomputation."""
Key = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class LayerPrices:
    """Passes of a model divided in one way, layer by layer, each kind evaluated on demand; whatever is recomputed, the rest is the same."""

    prices: UnitCosts
    plan: Plan
    name: str
    """Name of the groups, which no other cut may share."""
    _groups: tuple[ParallelGroups, ...] = field(init=False)
    """Groups of stages and ranks that are placed differently: the fastest counts."""
    _sums: dict[Key, FloatArray] = field(default_factory=dict[Key, FloatArray])
    _ends: dict[PassName, tuple[Row, Row]] = field(default_factory=dict[PassName, tuple[Row, Row]])

    def __post_init__(self) -> None:
        """Find the groups of every placement."""
        near = self.prices.near
        placed = unlike_groups(self.plan.model, self.plan.strategy, self.prices.cluster)
        self._groups = tuple(_renamed(groups, lambda group, n=n: near(group, f"{self.name}.{n}")) for n, groups in enumerate(placed))

    def sums(self, kind: PassName, strategy: Strategy) -> FloatArray:
        """Return the parts of passes of a strategy through the first layers, shape (n_layers + 1, WIDTH): of so many at each place."""
        key = (kind, *(again_key(strategy) if kind in AGAIN else ()))
        found = self._sums.get(key)
        if found is None:
            n_layers = self.plan.model.n_layers
            known: dict[int, Row] = {}
            rows = np.zeros((n_layers + 1, WIDTH))
            for layer in range(n_layers):
                first = local_model(self.plan.model, self.plan.training, self.plan.strategy).first_alike(layer)
                if first not in known:
                    known[first] = self._least("layer", [self._layer(passes, kind, layer) for passes in self._passes(kind, strategy)])
                rows[layer + 1] = known[first]
            found = self._sums[key] = rows.cumsum(axis=0)
        return found

    def ends(self, kind: PassName) -> tuple[Row, Row]:
        """Return the parts of passes through the front and the back of the model."""
        found = self._ends.get(kind)
        if found is None:
            every, forward = self._passes(kind, self.plan.strategy), kind == "F"
            first = [passes.embedding_forward() if forward else () if kind == "W" else passes.embedding_backward() for passes in every]
            last = [passes.head_forward() if forward else passes.head_backward() for passes in every]
            found = self._ends[kind] = (self._least("end", first), self._least("end", last))
        return found

    def _least(self, name: str, bodies: list[tuple[Item, ...]]) -> Row:
        """Return the parts of the fastest of several alternatives."""
        rows = [self.prices.row((Block(name=name, body=body),)) if body else np.zeros(WIDTH) for body in bodies]
        return min(rows, key=lambda row: float(row[:ISSUE].sum()))

    def _passes(self, kind: PassName, strategy: Strategy) -> list[ChunkPasses]:
        local = local_model(self.plan.model, self.plan.training, self.plan.strategy)
        techniques = [layer_techniques(local, strategy, groups) for groups in self._groups]
        return [ChunkPasses(local=local, strategy=strategy, techniques=each, gradients=GRADIENTS[kind]) for each in techniques]

    def _layer(self, passes: ChunkPasses, kind: PassName, layer: int) -> tuple[Item, ...]:
        return passes.layer_forward(layer) if kind == "F" else passes.layer_backward(layer, again=kind in AGAIN)


def unlike_groups(model: Model, strategy: Strategy, cluster: Cluster) -> list[ParallelGroups]:
    """Return the groups that work on layers, once for each placement on the links that ranks of a model have.

    On a symmetric scale-up wiring the groups of a stage go at one pace, together. Elsewhere each rank's groups stand alone.
    """
    mesh = place(strategy)
    division, alone = divided(mesh), cluster.node.scale_up.kind not in SYMMETRIC
    found: dict[tuple[object, ...], ParallelGroups] = {}
    for stage in unlike_stages(mesh, cluster) if strategy.n_ranks > 1 else [0]:
        of_stage = parallel_groups(model, strategy, division, stage=stage, part=0)
        for groups in _of_each_rank(of_stage, mesh.stage_ranks(stage), cluster) if alone else (of_stage,):
            found.setdefault(tuple(_placement(group, cluster) for group in _all(groups)), groups)
    return list(found.values())


def _of_each_rank(groups: ParallelGroups, ranks: IntArray, cluster: Cluster) -> Iterator[ParallelGroups]:
    """Yield the groups of one rank for each placement inside scale-up domains; groups across domains include all others."""
    inside = {group.name: group for group in _all(groups) if group is not None and group.size > 1 and _inside(group, cluster)}
    rows = {name: _row_of_rank(group, ranks) for name, group in inside.items()}
    if not inside:
        yield groups
        return
    base = cluster.node.n_accelerators * cluster.node.scale_up.nodes_per_domain
    patterns = [np.unique(group.members % base, axis=0, return_inverse=True)[1].reshape(-1)[rows[name]] for name, group in inside.items()]
    _, first = np.unique(np.stack(patterns, axis=1), axis=0, return_index=True)

    def own(group: RankGroups, rank: int) -> RankGroups:
        return replace(group, members=group.members[[rows[group.name][rank]]]) if group.name in rows else group

    for rank in sorted(first.tolist()):
        yield _renamed(groups, lambda group, rank=rank: own(group, rank))


def _row_of_rank(group: RankGroups, ranks: IntArray) -> IntArray:
    """Return for each rank the number of the group that it is in."""
    row_of = np.zeros(int(max(ranks.max(), group.members.max())) + 1, dtype=np.int64)
    row_of[group.members] = np.arange(len(group.members), dtype=np.int64)[:, None]
    return row_of[ranks]


def _placement(group: RankGroups | None, cluster: Cluster) -> object:
    """Return the place of a group's members, the same for groups that are translated onto each other."""
    if group is None or group.size == 1:
        return None
    if _inside(group, cluster):
        domain = cluster.domain_of(group.members[:1])[0, 0]
        first = group.members[cluster.domain_of(group.members[:, 0]) == domain]
        block = cluster.node.n_accelerators * cluster.node.scale_up.nodes_per_domain
        if cluster.node.scale_up.kind in SYMMETRIC:
            return first.shape
        return (first - int(first.min()) // block * block).tobytes()
    block = block_size(cluster)
    return (group.members - int(group.members.min()) // block * block).tobytes()


def block_size(cluster: Cluster) -> int:
    """Return after how many ranks the wires of a cluster repeat; all of them where that is not said in one number."""
    fabric = cluster.fabric
    if fabric.dimensions or fabric.leaves_per_group or fabric.graph:
        return cluster.n_ranks
    return cluster.node.n_accelerators * fabric.nodes_per_leaf * max(1, fabric.leaves_per_pod)


def unlike_stages(mesh: Mesh, cluster: Cluster) -> list[int]:
    """Return stages of which no two lie alike below the switches."""
    block = block_size(cluster)
    first: dict[int, int] = {}
    for stage, rank in enumerate(mesh.ranks[:, 0, 0, 0].tolist()):
        first.setdefault(rank % block, stage)
    return list(first.values())


def _inside(group: RankGroups, cluster: Cluster) -> bool:
    """Return whether each group has all of its members in one scale-up domain."""
    domains = cluster.domain_of(group.members)
    return bool((domains == domains[:, :1]).all())


def _all(groups: ParallelGroups) -> tuple[RankGroups | None, ...]:
    experts = groups.experts
    return (groups.tp, groups.cp, *(() if experts is None else (experts.whole, experts.slices, experts.between, experts.inside)))


def _renamed(groups: ParallelGroups, changed: Callable[[RankGroups], RankGroups]) -> ParallelGroups:
    """Return groups, each of them changed."""
    experts = groups.experts
    return ParallelGroups(
        tp=changed(groups.tp),
        cp=changed(groups.cp),
        replica=changed(groups.replica),
        stage=changed(groups.stage),
        experts=None
        if experts is None
        else ExpertGroups(
            whole=changed(experts.whole),
            slices=changed(experts.slices),
            between=None if experts.between is None else changed(experts.between),
            inside=None if experts.inside is None else changed(experts.inside),
        ),
    )


def again_key(strategy: Strategy) -> Key:
    """Return what recomputation in a pass depends on."""
    return strategy.recompute, strategy.recompute_modules, strategy.recompute_stops_early


def own_key(plan: Plan) -> Key:
    """Return what the computation of passes depends on, recomputation aside: how the model is cut."""
    strategy = plan.strategy
    return (
        id(plan.model),
        plan.training.changed(global_batch_size=0),
        (strategy.tp, strategy.cp, strategy.ep, strategy.etp, strategy.sequence_parallel),
        (strategy.overlap_tp, strategy.overlap_ep, strategy.dispatch, strategy.dispatch_precision, strategy.context_parallel),
    )


def cut_key(plan: Plan) -> Key:
    """Return what passes of a plan depend on, recomputation aside: how the model is cut, and where those are that share a layer."""
    strategy, experts, own = plan.strategy, plan.model.experts, own_key(plan)
    together = strategy.tp * strategy.cp
    if experts is None and strategy.placement[:2] == ("tp", "cp") and strategy.domain_size % together == 0:
        return own
    return (*own, strategy.placement, strategy.dp, strategy.pp, strategy.zero_stage, strategy.expert_load)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPasses:
    """Passes through each part of the model; each figure has one entry per part."""

    forward_s: FloatArray
    backward_s: FloatArray
    trip_s: float
    """Time of a micro-batch forward through all parts and back to the first, in seconds."""
    waits_behind: bool
    """Whether a stage ends with a pass for which others wait: not so where gradients of weights may come last."""


def part_passes(strategy: Strategy, layers: LayerPrices, counts: Sequence[int]) -> PartPasses:
    """Return the passes through each part of a model with the given numbers of layers.

    Where schedules may put gradients of weights off, the shorter of both ways to go back counts. Where two passes run at once, each is
    taken to hide all collectives of the other.
    """
    prices = layers.prices
    schedule = None if strategy.written else SCHEDULES[strategy.schedule]
    stops = np.array(list(accumulate(counts)), dtype=np.int64)
    starts = np.concatenate(([0], stops[:-1]))
    borders = stops if strategy.recompute_layers is None else np.minimum(stops, starts + strategy.recompute_layers)

    def through(kind: PassName, again: PassName | None = None) -> FloatArray:
        sums, (first, last) = layers.sums(kind, strategy), layers.ends(kind)
        rows = sums[stops] - sums[borders if again else starts]
        if again:
            repeated = layers.sums(again, strategy)
            rows = rows + repeated[borders] - repeated[starts]
        rows[0] += first
        rows[-1] += last
        return rows

    forward = through("F")
    backward = through("B", "again" if strategy.recompute != "none" else None)
    meets = schedule is None or schedule.in_pairs or strategy.schedule == "dualpipe_v" or strategy.overlap_ep == "micro_batches"
    if meets:
        forward[:, EXPOSED:ISSUE] = backward[:, EXPOSED:ISSUE] = 0.0
    forward_s, backward_s = prices.pass_s(forward), prices.pass_s(backward)
    returned_s, splits = backward_s, schedule is None or schedule.splits
    if splits:
        inputs = through("I", "I again" if strategy.recompute != "none" else None)
        weights = through("W")
        if meets:
            inputs[:, EXPOSED:ISSUE] = weights[:, EXPOSED:ISSUE] = 0.0
        inputs_s = prices.pass_s(inputs)
        returned_s = np.minimum(backward_s, inputs_s)
        backward_s = np.minimum(backward_s, inputs_s + prices.pass_s(weights))
    return PartPasses(
        forward_s=forward_s,
        backward_s=backward_s,
        trip_s=float((forward_s + returned_s).sum()),
        waits_behind=not splits,
    )
