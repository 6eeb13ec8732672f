"""Differences between ranks of a plan, the parts of its replicas, and their synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from clustersim.engine.pace import Drawn, Jitter, Pace, Slowest, Timing
from clustersim.engine.policies import Asynchronous, BackupWorkers, PacePolicy, StaleSynchronous, Synchronous
from clustersim.hardware.calibrations import calibration_at
from clustersim.hardware.models import Node
from clustersim.kernels.kernel_model import KernelModel
from clustersim.parallel.contributors.parameter_server import served_updates
from clustersim.parallel.contributors.single_process import root_and_others
from clustersim.parallel.division import Division, Part, divided, place
from clustersim.parallel.sharding_groups import replicas_apart
from clustersim.parallel.stage import Stage
from clustersim.parallel.training_plan import Strategy
from clustersim.topology.cluster import FloatArray, IntArray
from clustersim.trace.timeline import ranks_text

Kinds = tuple[tuple[str, str], ...]
"""Kinds of nodes, by accelerator and host."""

KernelsOf = Callable[[Node], KernelModel]
"""Gives the kernel model of a kind of node, the same one each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenRanks:
    """Differences between the ranks of a plan."""

    slowdowns: Mapping[int, float]
    """By rank of the plan; ranks that are not named compute as they should."""
    nodes: tuple[Node, ...]
    """Nodes of the plan, in the order of its ranks."""
    jitter: Jitter | None = None
    waiting: float = 1.0
    """Factor on all computation: the expected wait for the slowest rank, where jitter is not drawn."""

    @property
    def is_even(self) -> bool:
        """True where every rank is like every other, at all times."""
        if self.slowdowns or self.jitter is not None or self.waiting != 1.0:
            return False
        return len({_kind(node) for node, _ in groupby(self.nodes)}) == 1


def division_of(strategy: Strategy, uneven: UnevenRanks, *, has_experts: bool, folds: bool = True) -> Division:
    """Return the classes of the ranks of a strategy.

    Replicas whose ranks are alike, stage by stage, are one part. Each is a part of its own where computation varies from
    step to step. With parameter servers what pushes and pulls by itself is never divided: the replicas of a node, where
    these add up their gradients first.

    Parameters
    ----------
    folds
        False where each worker that goes at its own pace is to be a part.
    """
    mesh = place(strategy)
    gradients = strategy.data_parallel
    if gradients.single_process:
        return divided(mesh, root_and_others(strategy.dp))
    units = replicas_apart(strategy, mesh, has_experts=has_experts)
    if uneven.jitter is not None or (gradients.own_pace and not (folds and _worker_ranks(strategy, units))):
        return divided(mesh, units)
    if uneven.is_even:
        return divided(mesh)
    alike: dict[tuple[object, ...], list[int]] = {}
    for unit in units:
        signature = tuple(_signature(uneven, mesh.ranks[stage, list(unit)].reshape(-1)) for stage in range(strategy.pp))
        alike.setdefault(signature, []).extend(unit)
    return divided(mesh, [tuple(sorted(part)) for part in alike.values()])


def _worker_ranks(strategy: Strategy, units: Sequence[Part]) -> int | None:
    """Return the ranks of each worker that goes at its own pace; None where those that behave alike cannot be one class.

    A round takes some of the gradients that arrive at the same time, which would tell the workers apart; and the ranks of a worker must
    not fall into several classes.
    """
    sizes = {len(unit) for unit in units}
    if strategy.data_parallel.backup_workers or strategy.tp * strategy.cp * strategy.ep > 1 or len(sizes) > 1:
        return None
    return max(sizes)


def worker_ranks(strategy: Strategy, division: Division, *, has_experts: bool) -> int | None:
    """Return the ranks of each worker that goes at its own pace, where a class has several of them; None where none has."""
    if not strategy.data_parallel.own_pace:
        return None
    units = replicas_apart(strategy, division.mesh, has_experts=has_experts)
    return _worker_ranks(strategy, units) if division.n_parts < len(units) else None


def own_parts(strategy: Strategy, *, has_experts: bool, folds: bool) -> tuple[Part, ...] | None:
    """Return the parts into which the replicas fall where every rank is like every other; None where they are one.

    Parameters
    ----------
    folds
        False where those that cannot be told apart are to be replayed one by one all the same.
    """
    if strategy.data_parallel.single_process:
        return root_and_others(strategy.dp)
    if folds or not strategy.data_parallel.divides:
        return None
    return replicas_apart(strategy, place(strategy), has_experts=has_experts)


def class_of_ranks(division: Division, n_ranks: int) -> IntArray:
    """Return for each rank of a plan the number of its class."""
    table = np.full(n_ranks, -1, dtype=np.int64)
    for stage in division.stages:
        for part in range(division.n_parts):
            table[division.ranks(stage, part)] = division.rank_class(stage, part)
    return table


def paces_of(division: Division, uneven: UnevenRanks, kernels_of: KernelsOf) -> tuple[Pace, ...]:
    """Return how fast each class computes: as its slowest rank, for which the others wait in every layer.

    Between accelerators of several kinds that is, for each piece of work, the one that takes longest over it.
    """
    classes = [division.ranks(stage, part) for stage in division.stages for part in range(division.n_parts)]
    # Classes of the same kinds share a timing, and with it their prices.
    timings: dict[Kinds, Timing] = {}
    return tuple(_pace(uneven, ranks, kernels_of, timings) for ranks in classes)


def slow_ranks(division: Division, uneven: UnevenRanks) -> tuple[str, ...]:
    """Return for each class the slowest ranks, which set its pace; nothing where all are equal."""
    return tuple(slow_among(uneven, division.ranks(stage, part)) for stage in division.stages for part in range(division.n_parts))


def slow_among(uneven: UnevenRanks, ranks: IntArray) -> str:
    """Return the slowest of some ranks, as text; nothing where all are equal."""
    factors = _factors(uneven, ranks)
    slow = ranks[factors == factors.max()]
    return "" if len(slow) == len(ranks) else ranks_text(slow)


def jitter_of(division: Division, uneven: UnevenRanks, seed: int) -> Drawn | None:
    """Return what makes computation longer or shorter from step to step: a draw for each rank, of which a class has the largest."""
    if uneven.jitter is None:
        return None
    n_coupled = [int(division.ranks(stage, part).size) for stage in division.stages for part in range(division.n_parts)]
    return uneven.jitter.drawn(n_coupled, seed)


def policy_of(stage: Stage, division: Division) -> PacePolicy:
    """Return how the workers of a plan keep together, by its first stage: with parameter servers there is no other."""
    gradients = stage.strategy.data_parallel
    if gradients.backup_workers:
        return BackupWorkers(n_needed=division.n_parts - gradients.backup_workers, update=served_updates(stage, division))
    each = worker_ranks(stage.strategy, division, has_experts=stage.local.model.experts is not None)
    match gradients.mode:
        case "sync":
            return Synchronous()
        case "async":
            return Asynchronous(ranks_per_worker=each)
        case "ssp":
            return StaleSynchronous(staleness=gradients.staleness or 0, ranks_per_worker=each)


def _factors(uneven: UnevenRanks, ranks: IntArray) -> FloatArray:
    """Return how much longer each of some ranks computes."""
    factors = np.full(len(ranks), uneven.waiting)
    named = np.array(list(uneven.slowdowns), dtype=np.int64)
    for index in np.flatnonzero(np.isin(ranks, named)).tolist():
        factors[index] *= uneven.slowdowns[ranks.item(index)]
    return factors


def _signature(uneven: UnevenRanks, ranks: IntArray) -> tuple[Kinds, float]:
    return tuple(_nodes(uneven, ranks)), float(_factors(uneven, ranks).max())


def _pace(uneven: UnevenRanks, ranks: IntArray, kernels_of: KernelsOf, timings: dict[Kinds, Timing]) -> Pace:
    found = _nodes(uneven, ranks)
    kinds = tuple(found)
    if kinds not in timings:
        models = tuple(map(kernels_of, found.values()))
        timings[kinds] = models[0] if len(models) == 1 else Slowest(models)
    slowdown = float(_factors(uneven, ranks).max())
    step_host_s = max(calibration_at(node).launch.step_s for node in found.values())
    return Pace(kernels=timings[kinds], slowdown=slowdown, step_host_s=step_host_s)


def _kind(node: Node) -> tuple[str, str]:
    return node.accelerator.name, node.host.name


def _nodes(uneven: UnevenRanks, ranks: IntArray) -> dict[tuple[str, str], Node]:
    """Return a node of each kind of accelerator and host among some ranks, in the order of their names."""
    per_node = uneven.nodes[0].n_accelerators
    nodes = [uneven.nodes[node] for node in map(int, np.unique(ranks // per_node))]
    found = {_kind(node): node for node in nodes}
    return {kind: found[kind] for kind in sorted(found)}
