"""Exchange of gradients that a scenario asks for: the algorithm, its servers, and whether plan and cluster can do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from clustersim.collectives import ALGORITHMS
from clustersim.collectives.pattern import Grouping, grouping
from clustersim.config.keys import refusal
from clustersim.errors import DomainError, ScenarioError
from clustersim.hardware.models import Node, ServerHosts
from clustersim.notices import Flag
from clustersim.parallel.gradients import gradient_operations
from clustersim.parallel.mesh import place
from clustersim.parallel.sharding_groups import expert_replicas, replicas
from clustersim.parallel.stage import stage_of
from clustersim.parallel.stage_holds import stage_holds
from clustersim.parallel.step_settings import PARAMETER_SERVER, DataParallel, DataParallelSettings
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, Plan, Strategy, StrategySettings
from clustersim.program.holds import held_bytes
from clustersim.topology.cluster import Cluster
from clustersim.units.divisors import listed

if TYPE_CHECKING:
    from clustersim.hardware.library_costs import CollectiveOp

MAX_SENDS: Final = 20_000_000
"""Pairs of an accelerator and a server: some seconds of routing."""

_KEY: Final = "strategy.data_parallel"
_GIGA: Final = 1e9


def data_parallel(asked: StrategySettings, node: Node, n_nodes: int) -> DataParallel:
    """Return how gradients meet on so many nodes.

    Raises
    ------
    ScenarioError
        When so many servers cannot be had.
    """
    given = asked.data_parallel
    completed = given.completed(no_sync=_adds_up_first(asked)).changed(overlap=given.overlap and not given.single_process)
    return DataParallel.of(_served(completed, node, n_nodes) if given.algorithm == PARAMETER_SERVER else completed)


def check_workers(gradients: DataParallel, n_workers: int) -> None:
    """Refuse more backup workers than leave one to wait for.

    Raises
    ------
    ScenarioError
        With the largest number that would do.
    """
    spare = gradients.backup_workers or 0
    if spare >= n_workers:
        what = f"{spare} backup workers of {n_workers} leave none to wait for"
        advice = f"use at most {n_workers - 1}" if n_workers > 1 else "use 0"
        raise ScenarioError(what, field=f"{_KEY}.backup_workers", hint=advice)


def server_hosts(gradients: DataParallel, node: Node, n_nodes: int) -> ServerHosts | None:
    """Return the dedicated hosts beside so many nodes, each with processors, memory and adapters of a node; None without any."""
    dedicated = [] if gradients.service is None else [host for host in gradients.service.hosts if host >= n_nodes]
    return ServerHosts(n_hosts=len(dedicated), host=node.host, nic=node.nic, n_nics=node.n_nics) if dedicated else None


def check_algorithm(strategy: Strategy, cluster: Cluster, nodes: Sequence[int] | None = None) -> None:
    """Refuse an algorithm that an operation of the strategy does not have, or that the cluster cannot run.

    Parameters
    ----------
    nodes
        Of the cluster, on which it runs; the first ones when left out.

    Raises
    ------
    ScenarioError
        With the algorithms that would run.
    """
    name = strategy.data_parallel.algorithm
    if name in ("auto", PARAMETER_SERVER):
        return
    ops = gradient_operations(strategy)
    shared = [known for known in ALGORITHMS["all_reduce"] if all(known in ALGORITHMS[op] for op in ops)]
    if name not in shared:
        what = f"'{name}' is not an algorithm of {' and '.join(ops)}, which zero_stage {strategy.zero_stage} needs"
        raise ScenarioError(what, field=f"{_KEY}.algorithm", hint=_advice(shared))
    groups = _groups(strategy, cluster, range(cluster.n_nodes) if nodes is None else nodes)
    for op in ops:
        error = _refusal(cluster, groups, op, name)
        if error is not None:
            runs = [other for other in shared if all(_refusal(cluster, groups, each, other) is None for each in ops)]
            raise refusal(error, field=f"{_KEY}.algorithm", hint=_advice(runs)) from error


def server_flags(plan: Plan, node: Node) -> tuple[Flag, ...]:
    """Return what must be said of the memory of parameter servers, which stops no run."""
    needed_bytes = held_bytes(stage_holds(stage_of(plan, 0), "server"))
    if needed_bytes <= node.host.memory_bytes:
        return ()
    message = f"a parameter server keeps {needed_bytes / _GIGA:.0f} GB, and its host has {node.host.memory_bytes / _GIGA:.0f} GB"
    return (Flag(code="server_memory", message=message),)


def _served(given: DataParallelSettings, node: Node, n_nodes: int) -> DataParallel:
    """Return how gradients meet on parameter servers."""
    given = given.completed(
        servers=n_nodes, placement="colocated", assignment="key_ranges", priority="layers", reduce_in_node=_together(given)
    )
    n_servers, dedicated = given.servers, given.placement == "dedicated"
    if not dedicated and n_servers > n_nodes:
        what = f"{n_servers} servers do not fit on {n_nodes} {'node' if n_nodes == 1 else 'nodes'}, one on each"
        raise ScenarioError(what, field=f"{_KEY}.servers", hint=f"use at most {n_nodes}, or placement: dedicated")
    most = max(1, MAX_SENDS // (n_nodes * node.n_accelerators))
    if n_servers > most:
        what = f"{n_servers} servers for {n_nodes * node.n_accelerators} accelerators are more than are simulated"
        raise ScenarioError(what, field=f"{_KEY}.servers", hint=f"use at most {most}")
    places = (n_nodes + place if dedicated else place * n_nodes // n_servers for place in range(n_servers))
    return DataParallel.of(given, hosts=tuple(places))


def _adds_up_first(asked: StrategySettings) -> bool:
    """Return whether micro-batches add up before they are reduced, where nobody says so.

    Sharded gradients are reduced for each micro-batch, so that none is whole; but not under pipeline stages, where PyTorch reduces with
    the last (``torch.distributed.pipelining``, ``set_requires_gradient_sync``).
    """
    return (asked.zero_stage < SHARDS_GRADIENTS or asked.pp > 1) and not asked.data_parallel.single_process


def _together(given: DataParallelSettings) -> bool:
    """Return whether all workers wait for all; those that do not are the replicas one by one, unless the scenario says otherwise."""
    return given.mode == "sync" and not given.backup_workers


def _groups(strategy: Strategy, cluster: Cluster, nodes: Sequence[int]) -> tuple[Grouping, ...]:
    """Return the groups of each stage over which gradients are reduced, on the ranks of the cluster; none where nobody has partners."""
    mesh, stages = place(strategy), range(strategy.pp)
    groups = [holders(strategy, mesh, stage).group() for stage in stages for holders in (replicas, expert_replicas)]
    local, per_node = np.array(nodes, dtype=np.int64), cluster.node.n_accelerators
    members = [group.members for group in groups if group.size > 1]
    return tuple(grouping(cluster, local[ranks // per_node] * per_node + ranks % per_node) for ranks in members)


def _refusal(cluster: Cluster, groups: Sequence[Grouping], op: CollectiveOp, name: str) -> DomainError | None:
    """Return why some groups cannot run an algorithm; None where all can."""
    try:
        for group in groups:
            ALGORITHMS[op][name].lay(cluster, group)
    except DomainError as error:
        return error
    return None


def _advice(names: Sequence[str]) -> str:
    return f"use {listed(['auto', *names])}"
