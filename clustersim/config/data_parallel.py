"""Gradient exchange of a scenario: its settings on a number of nodes, and the hosts of parameter servers."""

from __future__ import annotations

from clustersim.hardware.models import Node, ServerHosts
from clustersim.parallel.contributors.parameter_server import hosts_of
from clustersim.parallel.step_settings import PARAMETER_SERVER, DataParallel, DataParallelSettings
from clustersim.parallel.training_plan import SHARDS_GRADIENTS, StrategySettings


def data_parallel(asked: StrategySettings, node: Node, n_nodes: int) -> DataParallel:
    """Return the gradient exchange on a number of nodes.

    Raises
    ------
    DomainError
        When so many servers cannot be had.
    """
    given = asked.data_parallel
    completed = given.completed(no_sync=_adds_up_first(asked)).changed(overlap=given.overlap and not given.single_process)
    if given.algorithm != PARAMETER_SERVER:
        return DataParallel.of(completed)
    completed = completed.completed(
        servers=n_nodes, placement="colocated", assignment="key_ranges", priority="layers", reduce_in_node=_together(given)
    )
    return DataParallel.of(completed, hosts=hosts_of(completed, n_nodes, node.n_accelerators))


def server_hosts(gradients: DataParallel, node: Node, n_nodes: int) -> ServerHosts | None:
    """Return the dedicated hosts beside a number of nodes, each with processors, memory and adapters of a node; None without any."""
    dedicated = [] if gradients.service is None else [host for host in gradients.service.hosts if host >= n_nodes]
    return ServerHosts(n_hosts=len(dedicated), host=node.host, nic=node.nic, n_nics=node.n_nics) if dedicated else None


def _adds_up_first(asked: StrategySettings) -> bool:
    """Return the default of gradient accumulation before the reduction.

    Sharded gradients are reduced for each micro-batch, so that none is whole; but not under pipeline stages, where PyTorch reduces with
    the last (``torch.distributed.pipelining``, ``set_requires_gradient_sync``).
    """
    return (asked.zero_stage < SHARDS_GRADIENTS or asked.pp > 1) and not asked.data_parallel.single_process


def _together(given: DataParallelSettings) -> bool:
    """Return whether all workers wait for all; asynchronous workers are single replicas, unless the scenario groups them."""
    return given.mode == "sync" and not given.backup_workers
