"""Copies of a model whose layers were timed: forward, backward, and gradients that meet in a ring or at parameter servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum, inf
from typing import Final, Literal

import numpy as np

from clustersim.collectives.parameter_server import greedy_holders
from clustersim.hardware.communication import Servers
from clustersim.program.program import Key, Program, ProgramBuilder
from clustersim.program.tasks import COMPUTE_STREAM, Action, Block, Collective, Communicate, Compute, Group, Lane, Phase, Transfer, Work
from clustersim.strategy.gradients import GRADIENT_STREAM
from clustersim.topology.cluster import IntArray
from clustersim.trace.timeline import RankClass
from clustersim.workload.operators import Recorded

Pull = Literal["front_first", "first_come", "in_step"]
"""When workers fetch parameters: at the start of the step, the layer that is needed first before the others, or in no order, so
that nothing starts before all have come; or in the step before, each as soon as it is updated."""

REDUCE_STREAM: Final = "reduce"
BROADCAST_STREAM: Final = "broadcast"
RECEIVE_STREAM: Final = "receive"
HOST_STREAM: Final = "host"
RANK_ORDER: Final = "rank_order"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLayer:
    """One layer as it ran on one accelerator."""

    name: str
    forward_s: float
    backward_s: float
    gradient_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Every replica keeps the parameters; gradients are summed over all of them."""

    bucket_bytes: float
    """Gradients are reduced together up to this size; one that is larger goes alone."""
    window_s: float = inf
    """Only gradients that are ready within one such stretch of the backward pass are reduced together."""
    overlap: bool = True
    """Beside the backward pass, or after it."""
    algorithm: str = "auto"
    """Of the library; or ``rank_order``: one ring through the ranks in their order, as NCCL 1 lays it."""
    host_bytes_per_s: float = inf
    """What the processor of a rank can send round a ring, whatever the network could carry; one bucket at a time."""
    accelerator_bytes_per_s: float = inf
    """What a rank could send round a ring if it did nothing else; it computes for so much longer as sending takes at this rate.
    The kernels of a library that moves data with multiprocessors take these from the passes that they run beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """The thread on which a process receives tensors, one after the other: ``m / r (1 + m / d)`` for m bytes.

    References
    ----------
    .. [1] TensorFlow issue 6116 and gRPC issue 8975: each part of a message moved the list of all parts, so that long messages
       cost more than in proportion.
    """

    bytes_per_s: float = inf
    doubling_bytes: float = inf
    """Size of a tensor that takes twice as long as its bytes alone would."""
    accelerator_bytes_per_s: float = inf
    """Rate of the further copies on the way into the memory of an accelerator."""

    def duration_s(self, size_bytes: float, *, to_accelerator: bool = False) -> float:
        """Return the time that one tensor takes.

        Examples
        --------
        >>> Receiving(bytes_per_s=1e9, doubling_bytes=1e8).duration_s(1e8)
        0.2
        """
        copies_s = size_bytes / self.accelerator_bytes_per_s if to_accelerator else 0.0
        return size_bytes / self.bytes_per_s * (1.0 + size_bytes / self.doubling_bytes) + copies_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServers:
    """Hosts keep the parameters, each tensor in one piece on the one that holds least when its turn comes."""

    hosts: tuple[int, ...]
    pull: Pull
    per_node: bool = False
    """The accelerators of a node add up their gradients first, and one of them pushes and pulls for all."""
    receiving: Receiving = field(default_factory=Receiving)
    on_accelerators: bool = False
    """Workers receive parameters straight into the memory of an accelerator."""


def lower_replicas(layers: Sequence[TimedLayer], nodes: Sequence[Sequence[int]], exchange: AllReduce | ParameterServers) -> Program:
    """Return one step of synchronous data parallelism.

    Parameters
    ----------
    layers
        In forward order.
    nodes
        The ranks that hold replicas, node by node.
    exchange
        How gradients meet.
    """
    lowering = _Replicas(layers=tuple(layers), nodes=tuple(tuple(ranks) for ranks in nodes))
    if lowering.n_ranks == 1:
        lowering.add_forward()
        for layer in lowering.backwards:
            lowering.add_backward(layer)
    elif isinstance(exchange, AllReduce):
        lowering.add_all_reduced(exchange)
    else:
        places = greedy_holders(lowering.sizes_bytes, len(exchange.hosts))
        _Served(replicas=lowering, exchange=exchange, holders=tuple(exchange.hosts[place] for place in places)).add()
    return lowering.program()


def fused(layers: Sequence[TimedLayer], exchange: AllReduce) -> tuple[tuple[int, ...], ...]:
    """Return the layers whose gradients are reduced together, last layer first.

    References
    ----------
    .. [1] A. Sergeev and M. Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018, section 4: those of
       the tensors that are ready, up to the size of the buffer.
    """
    buckets: list[tuple[int, ...]] = []
    bucket: list[int] = []
    held_bytes, ready_s, window = 0.0, 0.0, 0
    for index in reversed(range(len(layers))):
        layer = layers[index]
        ready_s += layer.backward_s
        now = int(ready_s / exchange.window_s)
        if bucket and (held_bytes + layer.gradient_bytes > exchange.bucket_bytes or now != window):
            buckets.append(tuple(bucket))
            bucket, held_bytes = [], 0.0
        bucket.append(index)
        held_bytes += layer.gradient_bytes
        window = now
    return (*buckets, tuple(bucket)) if bucket else tuple(buckets)


@dataclass(slots=True, kw_only=True)
class _Replicas:
    layers: tuple[TimedLayer, ...]
    nodes: tuple[tuple[int, ...], ...]
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)

    @property
    def n_ranks(self) -> int:
        return sum(len(ranks) for ranks in self.nodes)

    @property
    def sizes_bytes(self) -> tuple[float, ...]:
        return tuple(layer.gradient_bytes for layer in self.layers)

    @property
    def backwards(self) -> range:
        return range(len(self.layers) - 1, -1, -1)

    @property
    def everybody(self) -> IntArray:
        return np.array([rank for ranks in self.nodes for rank in ranks], dtype=np.int64)

    def program(self) -> Program:
        ranks = self.everybody
        return self.builder.build([RankClass(name="all ranks", stage=0, representative_rank=int(ranks[0]), ranks=np.sort(ranks))])

    def add_forward(self, *, first_after: Iterable[Key] = (), after_layer: Sequence[Iterable[Key]] = ()) -> None:
        for index, layer in enumerate(self.layers):
            after = [*(first_after if index == 0 else ()), *(after_layer[index] if after_layer else ())]
            self.run(("F", index), _recorded("F", "forward", layer.forward_s), after=after)

    def add_backward(self, index: int) -> Key:
        key: Key = ("B", index)
        self.run(key, _recorded("B", "backward", self.layers[index].backward_s))
        return key

    def add_all_reduced(self, exchange: AllReduce) -> None:
        self.add_forward()
        buckets = fused(self.layers, exchange)
        if not exchange.overlap:
            for index in self.backwards:
                self.add_backward(index)
        for number, bucket in enumerate(buckets):
            if exchange.overlap:
                for index in bucket:
                    self.add_backward(index)
            self._add_bucket(exchange, number, bucket, ready=("B", bucket[-1] if exchange.overlap else 0))

    def _add_bucket(self, exchange: AllReduce, number: int, bucket: Sequence[int], *, ready: Key) -> None:
        size_bytes = fsum(self.layers[index].gradient_bytes for index in bucket)
        sent_bytes = 2.0 * (self.n_ranks - 1) / self.n_ranks * size_bytes
        self.run(("reduce", number), self.all_reduce(exchange.algorithm, size_bytes), GRADIENT_STREAM, after=[ready])
        for name, stream, rate in (
            ("add", HOST_STREAM, exchange.host_bytes_per_s),
            ("taken", COMPUTE_STREAM, exchange.accelerator_bytes_per_s),
        ):
            if rate < inf:
                self.run((name, number), _recorded(name, "backward", sent_bytes / rate), stream, after=[ready])

    def all_reduce(self, algorithm: str, size_bytes: float) -> Communicate | Transfer:
        ranks = self.everybody
        if algorithm == RANK_ORDER:
            pairs = np.stack((ranks, np.roll(ranks, -1)), axis=1)
            sent_bytes = 2.0 * (len(ranks) - 1) / len(ranks) * size_bytes
            return Transfer(name="ring of all ranks", dimension="dp", pairs=pairs, bytes=sent_bytes)
        group = Group(name="replicas", dimension="dp", members=ranks[None])
        return Communicate(name="gradients", collective=Collective(op="all_reduce", group=group, bytes=size_bytes, algorithm=algorithm))

    def run(self, key: Key, action: Action, stream: str = COMPUTE_STREAM, *, after: Iterable[Key] = ()) -> None:
        self.builder.add(key, action, [Lane(rank_class=0, stream=stream)], after=after, label=(0, int(key[1])))


def _recorded(name: str, phase: Phase, duration_s: float) -> Compute:
    work = Work(name=name, phase=phase, kernels=(Recorded(duration_s),))
    return Compute(name=name, phase=phase, blocks=(Block(name=name, body=(work,)),))


@dataclass(slots=True, kw_only=True)
class _Served:
    """Pushes and pulls; a stream for each server and direction, and one for each thread that receives."""

    replicas: _Replicas
    exchange: ParameterServers
    holders: tuple[int, ...]

    def add(self) -> None:
        replicas, pull = self.replicas, self.exchange.pull
        layers = range(len(replicas.layers))
        arrivals = [] if pull == "in_step" else [self._pulled(index, after=()) for index in layers]
        if pull == "front_first":
            replicas.add_forward(after_layer=arrivals)
        else:
            replicas.add_forward(first_after=[key for keys in arrivals for key in keys])
        for index in replicas.backwards:
            updated = self._pushed(index, after=[replicas.add_backward(index)])
            if pull == "in_step":
                self._pulled(index, after=updated)

    @property
    def _workers(self) -> IntArray:
        if not self.exchange.per_node:
            return self.replicas.everybody
        return np.array([ranks[0] for ranks in self.replicas.nodes], dtype=np.int64)

    def _pushed(self, index: int, *, after: Iterable[Key]) -> tuple[Key, ...]:
        """Add the way of a layer's gradients to its server; return what has ended when they have been added up there."""
        host, size_bytes = self.holders[index], self.replicas.sizes_bytes[index]
        summed = self._inside("reduce", index, REDUCE_STREAM, after=after)
        pushed, added = ("push", index), ("add", index)
        self.replicas.run(pushed, self._served("push", index), f"push to {host}", after=summed)
        # The server receives the tensor once from each worker.
        receive_s = len(self._workers) * self.exchange.receiving.duration_s(size_bytes)
        return self._handled(added, f"server {host}", receive_s, beside=pushed, after=summed)

    def _pulled(self, index: int, *, after: Iterable[Key]) -> tuple[Key, ...]:
        """Add the way of a layer's parameters to the workers; return what has ended when every replica has them."""
        after, host, size_bytes = tuple(after), self.holders[index], self.replicas.sizes_bytes[index]
        pulled, received = ("pull", index), ("receive", index)
        self.replicas.run(pulled, self._served("pull", index), f"pull from {host}", after=after)
        receive_s = self.exchange.receiving.duration_s(size_bytes, to_accelerator=self.exchange.on_accelerators)
        here = self._handled(received, RECEIVE_STREAM, receive_s, beside=pulled, after=after)
        return self._inside("broadcast", index, BROADCAST_STREAM, after=here)

    def _handled(self, key: Key, stream: str, duration_s: float, *, beside: Key, after: Iterable[Key]) -> tuple[Key, ...]:
        """Add what a thread does with a tensor while it arrives."""
        if not duration_s:
            return (beside,)
        self.replicas.run(key, _recorded(str(key[0]), "optimizer", duration_s), stream, after=after)
        return (beside, key)

    def _inside(self, op: Literal["reduce", "broadcast"], index: int, stream: str, *, after: Iterable[Key]) -> tuple[Key, ...]:
        nodes = self.replicas.nodes
        if not self.exchange.per_node or max(len(ranks) for ranks in nodes) == 1:
            return tuple(after)
        group = Group(name="node", dimension="dp", members=np.array(nodes, dtype=np.int64))
        collective = Collective(op=op, group=group, bytes=self.replicas.sizes_bytes[index])
        self.replicas.run((op, index), Communicate(name=op, collective=collective), stream, after=after)
        return ((op, index),)

    def _served(self, op: Literal["push", "pull"], index: int) -> Communicate:
        group = Group(name="workers", dimension="ps", members=self._workers[None])
        servers = Servers(hosts=(self.holders[index],), shares=(1.0,))
        size_bytes = self.replicas.sizes_bytes[index]
        collective = Collective(op=op, group=group, bytes=size_bytes, algorithm="parameter_server", servers=servers)
        return Communicate(name=op, collective=collective)
