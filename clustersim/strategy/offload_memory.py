"""What offloading needs of hosts and their drives."""

from __future__ import annotations

from typing import Final

import numpy as np

from clustersim.strategy.contributors.activation_offload import host_activation_bytes
from clustersim.strategy.memory import stage_weights
from clustersim.strategy.mesh import Mesh
from clustersim.strategy.offload import NVME_TILES, TILE_PARAMETERS, offloads, state_bytes, sums_on_host
from clustersim.strategy.plan import Plan
from clustersim.strategy.shard import numerics
from clustersim.topology.cluster import Cluster, FloatArray

BUFFERED_TILES: Final = 2
"""Tiles of new parameters in page-locked memory: one is filled while the other is copied (ZeRO-Offload, section 5.1)."""


def host_bytes(plan: Plan, stage: int) -> float:
    """Return what one rank of a stage needs of the memory of its node.

    That is the optimizer's state and the gradients that it reads, and parameters and activations that live there. What lives on drives
    passes through it in tiles.
    """
    activations_bytes = host_activation_bytes(plan, stage)
    if not offloads(plan):
        return activations_bytes
    offload, number = plan.strategy.offload, numerics(plan)
    shard = stage_weights(plan, stage).shard(plan.strategy.sharding)
    tile = min(shard, TILE_PARAMETERS)
    passing = min(NVME_TILES * tile, shard)
    # Sums of several micro-batches wait in memory, and go to the drives when they are final.
    gradients_stay = offload.gradients != "nvme" or sums_on_host(plan)
    total_bytes = (passing if offload.optimizer == "nvme" else shard) * state_bytes(plan)
    total_bytes += (shard if gradients_stay else passing) * number.gradient_bytes
    if offload.parameters == "host":
        total_bytes += shard * number.element_bytes
    else:
        total_bytes += min(BUFFERED_TILES * tile, shard) * number.element_bytes
    return total_bytes + activations_bytes


def node_host_bytes(plan: Plan, mesh: Mesh, cluster: Cluster) -> FloatArray:
    """Return what each node must hold in its memory for all of its ranks."""
    needed = np.zeros(cluster.n_nodes)
    for stage in range(plan.strategy.pp):
        counts = np.bincount(cluster.node_of(mesh.stage_ranks(stage)), minlength=cluster.n_nodes)
        needed += counts * host_bytes(plan, stage)
    return needed
