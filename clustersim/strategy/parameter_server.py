"""A step with parameter servers: parameters are pulled, gradients pushed, and servers update what they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

from clustersim.collectives.parameter_server import greedy_holders
from clustersim.hardware.communication import Servers
from clustersim.program.program import Key, ProgramBuilder
from clustersim.program.tasks import Block, Collective, Communicate, Compute, Group, Lane
from clustersim.strategy.division import Division
from clustersim.strategy.gradients import gathered_bytes, layer_slices, n_buckets, reduced_bytes
from clustersim.strategy.halves import parallel_groups
from clustersim.strategy.layers import back, front, layer_runs, tied_parameters
from clustersim.strategy.memory import optimizer_bytes_per_parameter
from clustersim.strategy.optimizer import update_bytes
from clustersim.strategy.passes import ChunkPasses
from clustersim.strategy.plan import Assignment, ParameterService, Plan
from clustersim.strategy.schedules.order import Pass
from clustersim.strategy.shard import ModelChunk, model_chunks, numerics
from clustersim.strategy.stages import orders_of

ServedOp = Literal["pull", "push", "update"]

STREAMS: Final[Mapping[ServedOp, tuple[str, str]]] = MappingProxyType(
    {"pull": ("pull", "pull from {}"), "push": ("push", "push to {}"), "update": ("server", "server {}")}
)
"""On which a slice moves or is updated: that of all servers, where each keeps a part of everything, and that of one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Parameters of some consecutive layers that the same servers keep."""

    servers: Servers
    parameters: float
    """On one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSlice:
    """Consecutive layers that go to the servers and back together, with the ends of the model that adjoin them."""

    start: int
    stop: int
    """First layer behind the slice."""
    holdings: tuple[Holding, ...]


def model_tensors(plan: Plan) -> tuple[tuple[float, ...], ...]:
    """Return the sizes of all tensors on one rank, in parameters: those of the embedding, of each layer, and of the head.

    What one operation needs is one tensor. A tied head has none of its own but for its bias.
    """
    embedding = tuple(operator.parameters for operator in front(plan) if operator.parameters)
    runs = layer_runs(plan, 0, plan.model.n_layers)
    layers = [tuple(operator.parameters for operator in run if operator.parameters) for run, count in runs for _ in range(count)]
    tied = tied_parameters(plan)
    head = tuple(operator.parameters - (tied if operator.name == "logits" else 0) for operator in back(plan))
    return (embedding, *layers, tuple(size for size in head if size))


def served_slices(
    plan: Plan, service: ParameterService, borders: Sequence[tuple[int, int]], *, adds: bool = False
) -> tuple[LayerSlice, ...]:
    """Return slices of the model, in forward order, and who keeps them.

    Parameters
    ----------
    borders
        First layer of each slice, and the first behind it.
    adds
        Whether servers add up more gradients than those of the group that pushes.
    """
    groups = model_tensors(plan)
    n_layers = len(groups) - 2
    holders = iter(_holders([size for sizes in groups for size in sizes], len(service.hosts), service.assignment))
    slices: list[LayerSlice] = []
    for start, stop in borders:
        # The embedding stands before the first layer, the head behind the last.
        own = groups[start + (start > 0) : stop + 1 + (stop == n_layers)]
        sizes = [size for group in own for size in group]
        held = _holdings(service, sizes, tuple(islice(holders, len(sizes))), adds=adds)
        slices.append(LayerSlice(start=start, stop=stop, holdings=held))
    return tuple(slices)


def _holders(sizes: Sequence[float], n_servers: int, assignment: Assignment) -> Sequence[int]:
    """Return which server keeps each tensor; nothing where each keeps a part of all."""
    match assignment:
        case "key_ranges":
            return ()
        case "round_robin":
            return [place % n_servers for place in range(len(sizes))]
        case "greedy":
            return greedy_holders(sizes, n_servers)


def _holdings(service: ParameterService, sizes: Sequence[float], holders: Sequence[int], *, adds: bool) -> tuple[Holding, ...]:
    hosts, per_node = service.hosts, service.reduce_in_node
    if not holders:
        servers = Servers(hosts=hosts, shares=(1.0 / len(hosts),) * len(hosts), per_node=per_node, adds=adds)
        return (Holding(servers=servers, parameters=fsum(sizes)),)
    kept: dict[int, list[float]] = {}
    for size, holder in zip(sizes, holders, strict=True):
        kept.setdefault(holder, []).append(size)
    return tuple(
        Holding(servers=Servers(hosts=(hosts[holder],), shares=(1.0,), per_node=per_node, adds=adds), parameters=fsum(kept[holder]))
        for holder in sorted(kept)
    )


def fullest_server_bytes(plan: Plan, service: ParameterService) -> float:
    """Return what the fullest server keeps in memory: weights as they are sent, optimizer state, and the sum of the gradients."""
    (whole,) = served_slices(plan, service, [(0, plan.model.n_layers)])
    most = max(holding.parameters * max(holding.servers.shares) for holding in whole.holdings)
    number = numerics(plan)
    per_parameter = number.element_bytes + optimizer_bytes_per_parameter(plan) + number.gradient_bytes
    return plan.strategy.tp * plan.strategy.cp * most * per_parameter


def lower_served_step(builder: ProgramBuilder, plan: Plan, division: Division, service: ParameterService) -> None:
    """Add pulls, passes, pushes and updates of one step, for a plan without pipeline stages.

    The step begins with the pulls; the forward pass of the first micro-batch waits for them, slice by slice where layers have
    priority. In the backward pass of the last micro-batch each slice is pushed as soon as it is through, or after the pass where the
    plan does not overlap the two. In a synchronous step a server updates a slice when it has added up the gradients of all workers,
    and the step ends with the last update, because the next step begins with what it gives. Where workers go at their own pace, each
    part of the division is one, and a server updates a slice with what one of them has pushed. With backup workers the step ends
    with the pushes: whose gradients count is only known when they come, see ``served_updates``.
    """
    ((chunk,),) = model_chunks(plan)
    borders = layer_slices(plan, chunk.n_layers)
    # Parts of a synchronous step push apart, and their gradients are added up all the same.
    gradients = plan.strategy.data_parallel
    adds = division.n_parts > 1 and gradients.mode == "sync" and not gradients.backup_workers
    pushed = served_slices(plan, service, borders, adds=adds)
    pulled = pushed if service.priority == "layers" else served_slices(plan, service, ((0, chunk.n_layers),))
    workers = [
        _Worker(
            builder=builder,
            plan=plan,
            service=service,
            chunk=chunk,
            division=division,
            part=part,
            passes=ChunkPasses(plan=plan, groups=parallel_groups(plan, division, 0, part)),
            pulled=pulled,
            pushed=pushed,
        )
        for part in range(division.n_parts)
    ]
    for worker in workers:
        worker.add_pulls()
        worker.add_passes()
    if gradients.backup_workers:
        return
    together = gradients.mode == "sync"
    for part in reversed(pushed):
        for updating in [workers] if together else [[worker] for worker in workers]:
            _add_updates(updating, part)


def served_updates(plan: Plan, division: Division, service: ParameterService) -> tuple[Collective, ...]:
    """Return what the servers do when they have enough gradients: one update of everything that each keeps."""
    (whole,) = served_slices(plan, service, [(0, plan.model.n_layers)])
    group = _all_workers(division)
    return tuple(
        _served("update", group, holding, holding.parameters * update_bytes(plan.training)).collective for holding in whole.holdings
    )


@dataclass(slots=True, kw_only=True)
class _Worker:
    """What the replicas of one part do; all of them at once."""

    builder: ProgramBuilder
    plan: Plan
    service: ParameterService
    chunk: ModelChunk
    division: Division
    part: int
    passes: ChunkPasses
    pulled: tuple[LayerSlice, ...]
    """Without priority one slice: nothing can start before all have come."""
    pushed: tuple[LayerSlice, ...]

    @property
    def group(self) -> Group:
        """Replicas that push and pull together."""
        return self.division.named("workers", "ps", self.division.group("dp", 0, self.part).members, self.part)

    def add_pulls(self) -> None:
        for part in self.pulled:
            # Without priority all requests are made at once.
            self._move("pull", part, once=self.service.priority == "none")

    def add_passes(self) -> None:
        (order,) = orders_of(self.plan)
        forward = _forward(self.passes.forward(self.chunk))
        backward = _backward(self.passes.backward(self.chunk))
        last = max(position for position, step in enumerate(order) if step.goes_back)
        overlap = self.plan.strategy.data_parallel.overlap
        for position, step in enumerate(order):
            if position == 0:
                for part in self.pulled:
                    action = _forward(self.passes.forward_slice(self.chunk, part.start, part.stop))
                    self._compute(step, action, part.start, after=self.keys("pull", part))
            elif position == last and overlap:
                for part in reversed(self.pushed):
                    action = _backward(self.passes.backward_slice(self.chunk, part.start, part.stop))
                    self._compute(step, action, part.start)
                    self._push(part)
            else:
                self._compute(step, backward if step.goes_back else forward, 0)
        if not overlap:
            for part in reversed(self.pushed):
                self._push(part)

    def keys(self, op: ServedOp, part: LayerSlice) -> tuple[Key, ...]:
        return tuple((op, self.part, part.start, *holding.servers.hosts) for holding in part.holdings)

    def lane(self, op: ServedOp, holding: Holding) -> Lane:
        of_all, of_one = STREAMS[op]
        hosts = holding.servers.hosts
        return self.division.lane(0, self.part, of_all if hosts == self.service.hosts else of_one.format(hosts[0]))

    def _compute(self, step: Pass, action: Compute, start: int, *, after: Sequence[Key] = ()) -> None:
        key: Key = (action.name, self.part, step.chunk, step.micro_batch, start)
        self.builder.add(key, action, [self.division.lane(0, self.part)], after=after, label=(step.micro_batch, step.chunk))

    def _push(self, part: LayerSlice) -> None:
        self._move("push", part, after=self.builder.last(self.division.lane(0, self.part)))

    def _move(self, op: ServedOp, part: LayerSlice, *, once: bool = False, after: Sequence[Key] = ()) -> None:
        number_bytes = reduced_bytes(self.plan) if op == "push" else gathered_bytes(self.plan)
        for key, holding in zip(self.keys(op, part), part.holdings, strict=True):
            size_bytes = holding.parameters * number_bytes
            pieces = 1 if once else n_buckets(self.plan, size_bytes)
            self.builder.add(key, _served(op, self.group, holding, size_bytes, pieces=pieces), [self.lane(op, holding)], after=after)


def _add_updates(workers: Sequence[_Worker], part: LayerSlice) -> None:
    """Add what the servers do with a slice that some workers have pushed, one slice after the other."""
    first = workers[0]
    group = first.group if len(workers) == 1 else _all_workers(first.division)
    pushed = zip(*(worker.keys("push", part) for worker in workers), strict=True)
    for after, holding in zip(pushed, part.holdings, strict=True):
        size_bytes = holding.parameters * update_bytes(first.plan.training)
        lanes = [worker.lane("update", holding) for worker in workers]
        first.builder.add(("update", *after[0]), _served("update", group, holding, size_bytes), lanes, after=after)


def _all_workers(division: Division) -> Group:
    return Group(name="workers", dimension="ps", members=division.mesh.groups("dp", 0))


def _served(op: ServedOp, group: Group, holding: Holding, size_bytes: float, *, pieces: int = 1) -> Communicate:
    collective = Collective(op=op, group=group, bytes=size_bytes, pieces=pieces, algorithm="parameter_server", servers=holding.servers)
    return Communicate(name=op, collective=collective)


def _forward(blocks: tuple[Block, ...]) -> Compute:
    return Compute(name="F", phase="forward", blocks=blocks)


def _backward(blocks: tuple[Block, ...]) -> Compute:
    return Compute(name="B", phase="backward", blocks=blocks)
