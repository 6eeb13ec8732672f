"""A step with parameter servers: workers pull parameters and push gradients, and servers update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import fsum
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from clustersim.collectives.push_pull import greedy_holders
from clustersim.errors import DomainError
from clustersim.hardware.library_costs import Servers
from clustersim.parallel.contributors.contributor import Contributor, StageContributor, Step
from clustersim.parallel.division import Division, Part, place
from clustersim.parallel.gradients import gathered_bytes, layer_slices, n_buckets, reduced_bytes
from clustersim.parallel.local_model import LocalModel
from clustersim.parallel.optimizer import optimizer_bytes_per_parameter, update_bytes
from clustersim.parallel.pipeline import Piece, StagePieces
from clustersim.parallel.schedules.order import StageOrder
from clustersim.parallel.sharding_groups import replicas_apart
from clustersim.parallel.stage import Stage
from clustersim.parallel.stage_work import Cut
from clustersim.parallel.step_settings import PARAMETER_SERVER, Assignment, DataParallel, DataParallelSettings, Training
from clustersim.parallel.training_plan import Strategy, StrategySettings
from clustersim.program.holds import Hold
from clustersim.program.program import Key
from clustersim.program.tasks import Collective, Communicate, Lane, RankGroups
from clustersim.units.divisors import count_text
from clustersim.units.grouping import grouped
from clustersim.workloads.model import Model

ServedOp = Literal["pull", "push", "update"]

SERVER_SETTINGS: Final = ("servers", "placement", "assignment", "priority", "reduce_in_node")
"""Settings of data parallelism that nothing but parameter servers reads."""

MAX_SENDS: Final = 20_000_000
"""Pairs of an accelerator and a server: some seconds of routing."""

_PATH: Final = ("strategy", "data_parallel")

STREAMS: Final[Mapping[ServedOp, tuple[str, str]]] = MappingProxyType(
    {"pull": ("pull", "pull from {}"), "push": ("push", "push to {}"), "update": ("server", "server {}")}
)
"""Lane of a slice's transfers and update: one for all servers that hold a part of each tensor, or one per server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Parameters of consecutive layers on the same servers."""

    servers: Servers
    parameters: float
    """On one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSlice:
    """Consecutive layers that go to the servers and back together, with the ends of the model that adjoin them."""

    start: int
    stop: int
    """End of the layers of the slice."""
    holdings: tuple[Holding, ...]


def model_tensors(local: LocalModel) -> tuple[tuple[float, ...], ...]:
    """Return the sizes of all tensors on one rank, in parameters: those of the embedding, of each layer, and of the head.

    What one operation needs is one tensor. A tied head has none of its own but for its bias.
    """
    embedding = tuple(operator.parameters for operator in local.front if operator.parameters)
    runs = local.runs(range(local.model.n_layers))
    layers = [tuple(operator.parameters for operator in run if operator.parameters) for run, count in runs for _ in range(count)]
    tied = local.tied_parameters
    head = tuple(operator.parameters - (tied if operator.role == "logits" else 0) for operator in local.back)
    return (embedding, *layers, tuple(size for size in head if size))


def served_slices(
    local: LocalModel, service: DataParallel, borders: Sequence[tuple[int, int]], *, adds: bool = False
) -> tuple[LayerSlice, ...]:
    """Return slices of the model, in forward order, with their servers.

    Parameters
    ----------
    borders
        First layer of each slice, and the first behind it.
    adds
        Whether servers add up more gradients than those of the group that pushes.
    """
    groups = model_tensors(local)
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
    """Return the server of each tensor; nothing where each server holds a part of all."""
    match assignment:
        case "key_ranges":
            return ()
        case "round_robin":
            return [place % n_servers for place in range(len(sizes))]
        case "greedy":
            return greedy_holders(sizes, n_servers)


def _holdings(service: DataParallel, sizes: Sequence[float], holders: Sequence[int], *, adds: bool) -> tuple[Holding, ...]:
    hosts, per_node = service.hosts, service.reduce_in_node
    if not holders:
        servers = Servers(hosts=hosts, per_node=per_node, adds=adds)
        return (Holding(servers=servers, parameters=fsum(sizes)),)
    kept = grouped(zip(holders, sizes, strict=True))
    return tuple(
        Holding(servers=Servers(hosts=(hosts[holder],), per_node=per_node, adds=adds), parameters=fsum(kept[holder]))
        for holder in sorted(kept)
    )


class ParameterServers(Contributor):
    """Parameters that are pulled from servers, and gradients that are pushed to them, for a plan without pipeline stages.

    The step begins with the pulls; the forward pass of the first micro-batch waits for them, slice by slice where layers have
    priority. In the backward pass of the last micro-batch each slice is pushed as soon as it is through, or after the pass where the
    plan does not overlap the two. In a synchronous step a server updates a slice when it has added up the gradients of all workers,
    and the step ends with the last update, because the next step begins with what it gives. Where workers go at their own pace, each
    part of the division is one, and a server updates a slice with what one of them has pushed. With backup workers the step ends
    with the pushes: whose gradients count is only known when they come, see ``served_updates``.
    """

    def __init__(self, step: Step) -> None:
        """Divide the model among the servers once."""
        super().__init__(step)
        (stage,) = step.stages
        local, (chunk,) = stage.local, stage.chunks
        self._gradients, self._service = stage.strategy.data_parallel, service_of(stage.strategy)
        # Parts of a synchronous step push apart, and their gradients are added up all the same.
        adds = step.division.n_parts > 1 and self._gradients.mode == "sync" and not self._gradients.backup_workers
        self.pushed = served_slices(local, self._service, layer_slices(local, self._service.bucket_bytes), adds=adds)
        whole = ((0, chunk.n_layers),)
        # Without priority there is one slice: nothing can start before all have come.
        self.pulled = self.pushed if self._service.priority == "layers" else served_slices(local, self._service, whole)
        units = replicas_apart(stage.strategy, step.division.mesh, has_experts=local.model.experts is not None)
        self._groups = [self._group(part, units) for part in range(step.division.n_parts)]

    @classmethod
    def applies(cls, strategy: Strategy) -> bool:
        """Return whether servers hold the parameters."""
        return strategy.data_parallel.service is not None

    @classmethod
    def refuse(cls, strategy: Strategy, asked: StrategySettings, *, model: Model, training: Training) -> None:
        """Refuse settings of servers beside another algorithm, and pipeline stages and divided states beside servers."""
        given = asked.data_parallel
        if given.algorithm != PARAMETER_SERVER:
            _check_no_servers(given)
        _check_pace(given)
        if given.algorithm != PARAMETER_SERVER:
            return
        n_workers = len(replicas_apart(strategy, place(strategy), has_experts=model.experts is not None))
        _check_workers(given.backup_workers or 0, n_workers)
        if asked.offload.parts:
            message = "nothing is left to offload: parameter servers keep all of it"
            raise DomainError(message, path=("strategy", "offload"), hint="leave the key out")
        if strategy.pp > 1 or strategy.zero_stage > 0:
            beside = f"{strategy.pp} pipeline stages" if strategy.pp > 1 else f"zero_stage {strategy.zero_stage}"
            advice = "pp: 1" if strategy.pp > 1 else "zero_stage: 0 (servers keep all optimizer state)"
            what = f"{PARAMETER_SERVER} with {beside} is not available in this version"
            raise DomainError(what, path=(*_PATH, "algorithm"), hint=f"use {advice}, or another algorithm")

    @classmethod
    def holds(cls, stage: Stage) -> tuple[Hold, ...]:
        """Return the memory of the fullest parameter server: weights in the precision sent, sum of gradients, and optimizer state."""
        strategy, local, number = stage.strategy, stage.local, stage.local.numerics
        (whole,) = served_slices(local, service_of(strategy), [(0, local.model.n_layers)])
        most = strategy.tp * strategy.cp * max(each.parameters * each.servers.share for each in whole.holdings)
        state_bytes = most * optimizer_bytes_per_parameter(stage.training, local)
        return (
            Hold(category="parameters", owner="parameter_server", bytes=most * number.element_bytes, place="server"),
            Hold(category="gradients", owner="parameter_server", bytes=most * number.gradient_bytes, place="server"),
            Hold(category="optimizer", owner="parameter_server", bytes=state_bytes, place="server"),
        )

    def begin(self) -> None:
        """Add the pulls of all workers; without priority all are requested concurrently."""
        for part in range(self.step.division.n_parts):
            for pulled in self.pulled:
                self._move("pull", part, pulled, once=self._service.priority == "none")

    def stage(self, stage: int, order: StageOrder) -> StageContributor:
        """Return the pushes after the passes."""
        return _Pushes(self, order, overlap=self._gradients.overlap)

    def finish(self) -> None:
        """Add the updates by the servers, one slice after the other."""
        if self._gradients.backup_workers:
            return
        workers = tuple(range(self.step.division.n_parts))
        for pushed in reversed(self.pushed):
            for updating in [workers] if self._gradients.mode == "sync" else [(worker,) for worker in workers]:
                self._update(updating, pushed)

    def keys(self, op: ServedOp, part: int, moved: LayerSlice) -> tuple[Key, ...]:
        """Return the names of the moves of a slice, one for each of its holdings."""
        return tuple((op, part, moved.start, *holding.servers.hosts) for holding in moved.holdings)

    def push(self, part: int, pushed: LayerSlice, *, after: Sequence[Key]) -> None:
        """Add the pushes of a slice."""
        self._move("push", part, pushed, after=after)

    def _move(self, op: ServedOp, part: int, moved: LayerSlice, *, once: bool = False, after: Sequence[Key] = ()) -> None:
        stage = self.step.stages[0]
        number_bytes = (reduced_bytes if op == "push" else gathered_bytes)(stage.strategy.data_parallel, stage.local.numerics)
        for key, holding in zip(self.keys(op, part, moved), moved.holdings, strict=True):
            size_bytes = holding.parameters * number_bytes
            pieces = 1 if once else n_buckets(stage.strategy, size_bytes)
            action = _served(op, self._groups[part], holding, size_bytes, pieces=pieces)
            self.step.builder.add(key, action, [self._lane(op, part, holding)], after=after)

    def _update(self, workers: tuple[int, ...], pushed: LayerSlice) -> None:
        group = self._groups[workers[0]] if len(workers) == 1 else _all_workers(self.step.division)
        pushes = zip(*(self.keys("push", worker, pushed) for worker in workers), strict=True)
        for after, holding in zip(pushes, pushed.holdings, strict=True):
            size_bytes = holding.parameters * update_bytes(self.step.stages[0].training.changed(optimizer_kernels="fused"))
            lanes = [self._lane("update", worker, holding) for worker in workers]
            self.step.builder.add(("update", *after[0]), _served("update", group, holding, size_bytes), lanes, after=after)

    def _group(self, part: int, units: Sequence[Part]) -> RankGroups:
        """Return the replicas of a part, which push and pull together; where workers go at their own pace, each of them by itself."""
        division, replicas = self.step.division, self.step.division.parts[part]
        together = [tuple(each for each in unit if each in replicas) for unit in units] if self._gradients.own_pace else [replicas]
        return division.named("workers", "ps", np.concatenate([division.mesh.groups("dp", 0, each) for each in together if each]), part)

    def _lane(self, op: ServedOp, part: int, holding: Holding) -> Lane:
        of_all, of_one = STREAMS[op]
        hosts = holding.servers.hosts
        return self.step.division.lane(0, part, of_all if hosts == self._service.hosts else of_one.format(hosts[0]))


class _Pushes(StageContributor):
    """Pushes after the last backward pass, and the first forward pass, which waits for its pulls."""

    def __init__(self, servers: ParameterServers, order: StageOrder, *, overlap: bool) -> None:
        self.servers, self.overlap = servers, overlap
        self._last = max(position for position, step in enumerate(order) if step.goes_back)

    def cut(self, position: int, cut: Cut) -> Cut:
        """Return the division of a pass at the slices that it waits for, or that are pushed after it."""
        slices = self.servers.pulled if position == 0 else self.servers.pushed if position == self._last and self.overlap else ()
        return replace(cut, borders=cut.borders | {each.start for each in slices})

    def pieces(self, position: int, pieces: tuple[Piece, ...], added: StagePieces) -> tuple[Piece, ...]:
        """Return the pieces of a pass; those of the first wait for their parameters."""
        if position > 0:
            return pieces
        pulls = {pulled.start: self.servers.keys("pull", added.part, pulled) for pulled in self.servers.pulled}
        return tuple(replace(piece, after=(*piece.after, *pulls[piece.layers.start])) for piece in pieces)

    def beside(self, position: int, parts: Sequence[StagePieces]) -> None:
        """Add the pushes of the last backward pass."""
        if position != self._last:
            return
        for part in parts:
            own = part.own(position)
            behind = zip(part.pieces[position], own, strict=True)
            starts = {piece.layers.start: key for piece, key in behind}
            for pushed in reversed(self.servers.pushed):
                self.servers.push(part.part, pushed, after=[starts[pushed.start] if self.overlap else own[-1]])


def service_of(strategy: Strategy) -> DataParallel:
    """Return the parameter servers of a plan that has some."""
    service = strategy.data_parallel.service
    assert service is not None
    return service


def served_updates(stage: Stage, division: Division) -> tuple[Collective, ...]:
    """Return the update of the servers when they have enough gradients: one for all parameters of each server."""
    (whole,) = served_slices(stage.local, service_of(stage.strategy), [(0, stage.local.model.n_layers)])
    group = _all_workers(division)
    # Processors update in one pass, whatever kernels accelerators have.
    parameter_bytes = update_bytes(stage.training.changed(optimizer_kernels="fused"))
    return tuple(_served("update", group, holding, holding.parameters * parameter_bytes).collective for holding in whole.holdings)


def _all_workers(division: Division) -> RankGroups:
    return RankGroups(name="workers", dimension="ps", members=division.mesh.groups("dp", 0))


def _served(op: ServedOp, group: RankGroups, holding: Holding, size_bytes: float, *, pieces: int = 1) -> Communicate:
    collective = Collective(op=op, group=group, bytes=size_bytes, pieces=pieces, algorithm="parameter_server", servers=holding.servers)
    return Communicate(name=op, collective=collective)


def hosts_of(given: DataParallelSettings, n_nodes: int, per_node: int) -> tuple[int, ...]:
    """Return the hosts of parameter servers, dedicated or colocated, for a number of nodes with a number of accelerators each.

    Raises
    ------
    DomainError
        When so many servers cannot be had.
    """
    n_servers, dedicated, path = given.servers, given.placement == "dedicated", (*_PATH, "servers")
    if not dedicated and n_servers > n_nodes:
        what = f"{n_servers} servers do not fit on {count_text(n_nodes, 'node')}, one on each"
        raise DomainError(what, path=path, hint=f"use at most {n_nodes}, or placement: dedicated")
    most = max(1, MAX_SENDS // (n_nodes * per_node))
    if n_servers > most:
        what = f"{n_servers} servers for {n_nodes * per_node} accelerators are more than are simulated"
        raise DomainError(what, path=path, hint=f"use at most {most}")
    return tuple(n_nodes + place if dedicated else place * n_nodes // n_servers for place in range(n_servers))


def _check_workers(spare: int, n_workers: int) -> None:
    """Refuse a number of backup workers that leaves none to wait for."""
    if spare >= n_workers:
        what = f"{spare} backup workers of {n_workers} leave none to wait for"
        advice = f"use at most {n_workers - 1}" if n_workers > 1 else "use 0"
        raise DomainError(what, path=(*_PATH, "backup_workers"), hint=advice)


def _check_no_servers(given: DataParallelSettings) -> None:
    for key in SERVER_SETTINGS:
        if given.gives(key):
            what = f"{key} is for parameter servers, and the algorithm is {given.algorithm}"
            raise DomainError(what, path=(*_PATH, key), hint=f"use algorithm: {PARAMETER_SERVER}, or leave the key out")


def _check_pace(given: DataParallelSettings) -> None:
    """Refuse staleness and backup workers beside a mode that has none."""
    if given.mode == "ssp" and given.staleness is None:
        raise DomainError("mode ssp needs a bound", path=(*_PATH, "mode"), hint="add how many steps, such as staleness: 3")
    if given.mode != "ssp" and given.staleness:
        what = f"staleness is for mode ssp, and the mode is {given.mode}"
        raise DomainError(what, path=(*_PATH, "staleness"), hint="use mode: ssp, or leave the key out")
    if given.backup_workers and given.mode != "sync":
        what = f"backup_workers are for mode sync, and the mode is {given.mode}"
        raise DomainError(what, path=(*_PATH, "backup_workers"), hint="use mode: sync, or leave the key out")
    if given.algorithm != PARAMETER_SERVER and (given.mode != "sync" or given.backup_workers):
        what = f"mode {given.mode}" if given.mode != "sync" else "backup_workers"
        key = "mode" if given.mode != "sync" else "backup_workers"
        raise DomainError(
            f"{what} needs parameter servers, and the algorithm is {given.algorithm}",
            path=(*_PATH, key),
            hint=f"use algorithm: {PARAMETER_SERVER}, or mode: sync without backup_workers",
        )
