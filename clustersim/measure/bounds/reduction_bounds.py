"""Gradient reductions and weight gathers among ranks that hold the same parameters, and the other work of a stage on its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import fsum

import numpy as np

from clustersim.hardware.library_costs import CollectiveOp
from clustersim.measure.bounds.unit_costs import ISSUE, UnitCosts
from clustersim.parallel.contributors.activation_offload import offloads_activations
from clustersim.parallel.gradients import SHARDS_OF_COPIES, Bucket, cast_blocks, gathered_bytes, operations_among, reduced_bytes
from clustersim.parallel.interference import beside_blocks
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.mesh import Mesh, place
from clustersim.parallel.offload import host_update_bytes, offloads, state_bytes
from clustersim.parallel.optimizer import offloaded_update, optimizer_update
from clustersim.parallel.shard import local_model, numerics
from clustersim.parallel.sharding_groups import Holders, expert_replicas, replicas
from clustersim.parallel.stage import Stage
from clustersim.parallel.stages import ModelChunk, places_of
from clustersim.parallel.training_plan import Plan, Strategy
from clustersim.parallel.units import gather_calls, reduction_units, reductions
from clustersim.parallel.weights import NOTHING, Weights, total_weights
from clustersim.program.tasks import Block, Collective, HostCopy, HostUpdate, RankGroups, Transfer
from clustersim.topology.cluster import Cluster, FloatArray, IntArray
from clustersim.workloads.shapes import Numerics


@dataclass(frozen=True, slots=True)
class Moved:
    """Something that is moved: how long it takes, and how long it keeps each of the links of one accelerator busy at least."""

    seconds: float
    stream_s: float
    """Part of ``seconds`` on the stream on which gradients meet."""
    busy_s: FloatArray


@dataclass(slots=True, kw_only=True)
class LayoutCommunication:
    """Collectives of data parallelism and sends between stages, of one way to lay ranks out.

    Stages may lie differently below the switches of a fabric: what counts is the one that lies best.
    """

    prices: UnitCosts
    plan: Plan
    name: str
    """Name of the groups: those of layouts with one name are the same."""
    _mesh: Mesh = field(init=False)
    _holders: tuple[tuple[Holders, ...], tuple[Holders, ...]] = field(init=False)
    """Holders of dense parameters and of experts, for stages that differ in how they lie."""
    _place_of: IntArray = field(init=False)
    """For each link its place among those of the first accelerator; -1 for all others."""
    _n_links: int = field(init=False)
    _known: dict[tuple[str, bool, float, int], Moved] = field(default_factory=dict[tuple[str, bool, float, int], Moved])
    _groups: dict[tuple[bool, str, int], RankGroups] = field(default_factory=dict[tuple[bool, str, int], RankGroups])
    _sent: dict[tuple[str, int, float], Moved] = field(default_factory=dict[tuple[str, int, float], Moved])

    def __post_init__(self) -> None:
        """Say who shares parameters, and which links are looked at."""
        strategy = self.plan.strategy
        self._mesh = place(strategy)
        stages = [0] if self.plan.n_ranks == 1 else unlike_stages(self._mesh, self.prices.cluster)
        self._holders = (
            tuple(replicas(strategy, self._mesh, stage) for stage in stages),
            tuple(expert_replicas(strategy, self._mesh, stage) for stage in stages),
        )
        links = links_of_first(self.prices.cluster)
        self._n_links, self._place_of = len(links), np.full(len(self.prices.cluster.tier_index), -1, dtype=np.int64)
        self._place_of[links] = np.arange(len(links), dtype=np.int64)

    def reduced(self, bucket: Bucket) -> Moved:
        """Return the reduction of a bucket."""
        strategy, parts = self.plan.strategy, list[Moved]()
        number_bytes = reduced_bytes(strategy.data_parallel, numerics(self.plan.training))
        for expert, parameters, n_calls in (
            (False, bucket.parameters, bucket.n_calls),
            (True, bucket.expert_parameters, bucket.expert_calls),
        ):
            holders = self._holders[expert][0]
            if not n_calls or holders.lines.shape[1] == 1:
                continue
            ops, size_bytes = operations_among(holders.lines.shape[1], holders.degree, strategy), parameters * number_bytes
            if ops == SHARDS_OF_COPIES:
                parts.append(self._moved("reduce_scatter", (expert, "shards"), (size_bytes, n_calls)))
                copies = self._moved("all_reduce", (expert, "copies"), (size_bytes / holders.degree, n_calls))
                parts.append(replace(copies, stream_s=0.0))
            else:
                parts.append(self._moved(ops[0], (expert, "group"), (size_bytes, n_calls)))
        return self.together(parts)

    def gathered(self, weights: Weights, n_calls: int = 1) -> Moved:
        """Return the gathering of parameters."""
        parts: list[Moved] = []
        number_bytes = gathered_bytes(self.plan.strategy.data_parallel, numerics(self.plan.training))
        for expert, parameters in ((False, weights.dense), (True, weights.expert)):
            if parameters and self._holders[expert][0].degree > 1:
                parts.append(self._moved("all_gather", (expert, "shards"), (parameters * number_bytes, n_calls)))
        return self.together(parts)

    def updated_s(self, weights: Weights) -> float:
        """Return how long processors update parameters, with what their drives read for it."""
        plan, shard = self.plan, weights.shard(self.plan.strategy.sharding)
        found: list[float] = []
        for stage in unlike_stages(self._mesh, self.prices.cluster):
            ranks = self._mesh.stage_ranks(stage)
            update_s = self.prices.moved_s(HostUpdate(name="update on host", ranks=ranks, bytes=shard * host_update_bytes(plan.training)))
            kept_bytes = (
                shard * state_bytes(plan.training.optimizer, local_model(plan.model, plan.training, plan.strategy))
                if plan.strategy.offload.optimizer == "nvme"
                else 0.0
            )
            read = HostCopy(name="optimizer state", ranks=ranks, bytes=kept_bytes, source="nvme", destination="host")
            found.append(max(update_s, self.prices.moved_s(read) if kept_bytes else 0.0))
        return min(found)

    def sent(self, strategy: Strategy, boundary_bytes: float) -> Moved:
        """Return the way of a micro-batch from one stage to the next, with activations of so many bytes between them."""
        ranks, size_bytes = self._mesh.ranks, boundary_bytes / strategy.tp
        key = strategy.schedule, strategy.virtual_stages, size_bytes
        if key not in self._sent:
            routes, block = places_of(strategy).routes, block_size(self.prices.cluster)
            hops = dict.fromkeys((one[0], other[0]) for route in routes for one, other in pairwise(route) if one[0] != other[0])
            ways: dict[tuple[int, int], tuple[int, int]] = {}
            for sender, receiver in hops:
                begin = int(ranks[sender, 0, 0, 0])
                ways.setdefault((begin % block, int(ranks[receiver, 0, 0, 0]) - begin), (sender, receiver))
            self._sent[key] = least([self._send(*hop, size_bytes) for hop in ways.values()])
        return self._sent[key]

    def _send(self, sender: int, receiver: int, size_bytes: float) -> Moved:
        ranks = self._mesh.ranks
        pairs = np.stack([ranks[stage].reshape(-1) for stage in (sender, receiver)], axis=1)
        return self._priced(Transfer(name=f"{self.name}: {sender}->{receiver}", dimension="pp", pairs=pairs, bytes=size_bytes))

    def together(self, parts: Sequence[Moved]) -> Moved:
        """Return things that are moved one after the other."""
        busy_s = np.zeros(self._n_links)
        for part in parts:
            busy_s = busy_s + part.busy_s
        return Moved(fsum(part.seconds for part in parts), fsum(part.stream_s for part in parts), busy_s)

    def _moved(self, op: CollectiveOp, among: tuple[bool, str], size: tuple[float, int]) -> Moved:
        (expert, who), known = among, (f"{op} {among[1]}", among[0], *size)
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = least([self._one(op, (expert, who, place), size) for place in range(len(self._holders[expert]))])
        return found

    def _one(self, op: CollectiveOp, who: tuple[bool, str, int], size: tuple[float, int]) -> Moved:
        group = self._groups.get(who)
        if group is None:
            expert, name, place = who
            holders = self._holders[expert][place]
            made = {"group": holders.group, "shards": holders.shards, "copies": holders.copies}[name]()
            group = self._groups[who] = self.prices.near(made, f"{self.name}, {holders.degree}")
        algorithm = self.plan.strategy.data_parallel.algorithm
        return self._priced(Collective(op=op, group=group, bytes=size[0], pieces=size[1], algorithm=algorithm))

    def _priced(self, moved: Collective | Transfer) -> Moved:
        seconds, busy_s = self.prices.moved_s(moved), np.zeros(self._n_links)
        if seconds > 0.0:
            bandwidth = self.prices.traffic.library.bandwidth_bytes_per_s
            for phase in self.prices.traffic.operation(moved).phases:
                for leg in phase:
                    places = self._place_of[leg.footprint.link_ids]
                    ours = places >= 0
                    links, flows = leg.footprint.link_ids[ours], leg.footprint.flows[ours]
                    np.add.at(busy_s, places[ours], flows * leg.bytes_per_flow / bandwidth[links])
        return Moved(seconds, seconds, busy_s)


def least(found: Sequence[Moved]) -> Moved:
    """Return the least time of several; the links are those of the first."""
    seconds = min(each.seconds for each in found)
    return Moved(seconds, seconds, found[0].busy_s)


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


def links_of_first(cluster: Cluster) -> list[int]:
    """Return the links by which the first accelerator sends and receives, inside its node and between nodes."""
    others = [rank for rank in dict.fromkeys((1, cluster.n_ranks - 1)) if 0 < rank < cluster.n_ranks]
    if not others:
        return []
    sources, destinations = np.array([0] * len(others) + others), np.array(others + [0] * len(others))
    return list(dict.fromkeys(cluster.routes(sources, destinations).link_ids.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Parameters that are gathered for the passes of one micro-batch."""

    all: Moved
    """Forward and backward."""
    first_s: float
    """Wait of the first pass, in seconds."""
    beside_s: float
    """Seconds that passes lose to these collectives and to reductions, all but the first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStates:
    """State handling of one stage."""

    reduced: Moved
    """All gradients, once."""
    last_s: float
    """The bucket that is complete last."""
    casts_s: float
    """The way of gradients into buckets, once."""
    update_s: float
    after: Moved
    """The gathering of new weights."""
    gathered: Gathered | None


def states_of(stage: Stage, prices: UnitCosts, exchange: LayoutCommunication) -> StageStates:
    """Return what a stage does besides passes."""
    strategy, local, chunks, weights = stage.strategy, stage.local, stage.chunks, stage.weights
    together = [chunks] if strategy.data_parallel.no_sync else [(chunk,) for chunk in chunks]
    units = [reductions(local, strategy, of_pass) for of_pass in together] if strategy.reduces_gradients else []
    of_chunks = [reduction_units(local, strategy, chunk) for chunk in chunks] if units else []
    last = [exchange.reduced(buckets[-1]).seconds for buckets in of_chunks if buckets]
    update = offloaded_update(stage) if offloads(strategy) else optimizer_update(stage)
    nothing = exchange.together([])
    return StageStates(
        reduced=exchange.together([exchange.reduced(bucket) for of_pass in units for bucket in of_pass]),
        last_s=min(last, default=0.0),
        casts_s=_blocks_s(prices, cast_blocks(strategy, local.numerics, weights.total)) if units else 0.0,
        update_s=float(prices.pass_s(prices.row(update.blocks))) + (exchange.updated_s(weights) if offloads(strategy) else 0.0),
        after=exchange.gathered(weights) if strategy.zero_stage in (1, 2) else nothing,
        gathered=_gathered(local, strategy, chunks[0], prices, exchange) if layer_wise(strategy) else None,
    )


def layer_wise(strategy: Strategy) -> bool:
    """Return whether a micro-batch's gathers are bounded as a whole: those of the only stage, whose passes never wait for another."""
    kept = strategy.keeps_gathered or offloads_activations(strategy)
    return strategy.pp == 1 and strategy.gathers_weights and not kept


def pass_gathers_s(local: LocalModel, strategy: Strategy, chunk: ModelChunk, exchange: LayoutCommunication) -> float:
    """Return how long the gathering takes that a pass through a chunk of a stage cannot begin before the pass before it has ended.

    It is that of all layers but those that are gathered ahead.
    """
    ahead = strategy.prefetch if strategy.data_parallel.overlap else 0
    layers = local.layer_weights(chunk.layers)
    # The first layers are gathered ahead of a forward pass, and the last ones of a backward pass.
    ways = (layers[ahead:], layers[: len(layers) - ahead])
    return min(exchange.gathered(total_weights((each, 1) for each in way)).seconds for way in ways)


def _gathered(local: LocalModel, strategy: Strategy, chunk: ModelChunk, prices: UnitCosts, exchange: LayoutCommunication) -> Gathered:
    layers, ends = local.layer_weights(chunk.layers), local.end_weights(chunk)
    calls, around = gather_calls(local, chunk, strategy.gather)
    of_layers = [exchange.gathered(weights, n_calls) for weights, n_calls in zip(layers, calls, strict=True)]
    of_ends = exchange.gathered(ends, around)
    again = strategy.reshard_after_forward
    back = [*of_layers, *([] if strategy.keep_ends else [of_ends])] if again else []
    first_s = of_ends.seconds + (of_layers[0].seconds if of_layers else 0.0)
    beside_s = _beside_s(strategy, local.numerics, layers, prices)
    return Gathered(all=exchange.together([of_ends, *of_layers, *back]), first_s=first_s, beside_s=beside_s)


def _beside_s(strategy: Strategy, number: Numerics, layers: tuple[Weights, ...], prices: UnitCosts) -> float:
    """Return what the passes of a micro-batch lose to what runs beside them: gathers, all but those before the first pass."""
    if not strategy.prefetch:
        return 0.0
    forward = total_weights((each, 1) for each in layers[1:])
    again = total_weights((each, 1) for each in layers) if strategy.reshard_after_forward else NOTHING
    return _blocks_s(prices, beside_blocks(strategy, number, "forward", gathered=forward + again))


def _blocks_s(prices: UnitCosts, blocks: tuple[Block, ...]) -> float:
    return float(prices.row(blocks)[:ISSUE].sum()) if blocks else 0.0
