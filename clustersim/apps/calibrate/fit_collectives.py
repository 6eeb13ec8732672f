"""Measured collectives, and the fit of the network constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from clustersim.apps.calibrate.fitting import CalibrationPart, CalibrationTarget, Constants, MeasuredTime, Parameter, parameter
from clustersim.apps.calibrate.measurements import measured_file
from clustersim.apps.calibrate.nccl_tests import AUTO, Ranks, TimedCollective, algorithm_of, read_collectives
from clustersim.apps.calibrate.traced import TracedDevice, check_device
from clustersim.apps.collective.collective_times import group_members
from clustersim.collectives import ALGORITHMS
from clustersim.collectives.library import CollectiveCall, Library
from clustersim.engine.alone import alone
from clustersim.engine.traffic import Traffic
from clustersim.errors import ScenarioError
from clustersim.hardware.models import Node
from clustersim.network.sharing import SharedNetwork
from clustersim.topology.cluster import FloatArray
from clustersim.topology.cluster_wiring import build_cluster
from clustersim.topology.wired import Cluster
from clustersim.units.quantity import format_quantity

MIB: Final = 2**20
SMALL_WEIGHT: Final = 0.25
"""Weight of messages below a mebibyte, whose times differ most between systems with the same hardware, and which training seldom sends."""


def collectives_part(
    paths: Sequence[str], target: CalibrationTarget, node: Node, ranks: Ranks, *, algorithm: str | None = None, device: str | None = None
) -> CalibrationPart:
    """Return the measured collectives of some files and the constants that they may move.

    Parameters
    ----------
    algorithm
        Algorithm of collectives whose files name none, also as ``NCCL_ALGO`` has it; None: that which the library would choose.
    device
        Device that the user says they ran on, which stands above what the files say.

    Raises
    ------
    ScenarioError
        When a file cannot be used, is of other devices, or names ranks that the nodes do not have.
    """
    if node.accelerator.name != target.accelerator.name:
        message = f"{node.name} has {node.accelerator.name}, and {target.accelerator.name} is calibrated"
        raise ScenarioError(message, field="--node", hint="name a node with this accelerator; see clustersim show nodes")
    timed = [_by(algorithm, each) for path in paths for each in read_collectives(path, ranks)]
    for file, name in dict.fromkeys((each.file, each.device) for each in timed if each.device):
        check_device([TracedDevice(name=name, memory_bytes=None)], target.accelerator, said=device, file=file)
    clusters = {n_nodes: _cluster(node, n_nodes) for n_nodes in dict.fromkeys(each.n_nodes for each in timed)}
    members = [group_members(clusters[each.n_nodes], each.ranks_per_node) for each in timed]
    for each in timed:
        known = (AUTO, *ALGORITHMS[each.op])
        if each.algorithm not in known:
            raise ScenarioError(f"{each.file}: there is no {each.op} by '{each.algorithm}'", hint=f"use one of {', '.join(known)}")

    def predict(constants: Constants) -> FloatArray:
        network = constants[target.generation].network
        traffic: dict[int, Traffic] = {}
        for n_nodes, cluster in clusters.items():
            library = Library(cluster=cluster, calibration=network)
            shared = SharedNetwork(library.bandwidth_bytes_per_s, labels=cluster.tier_index)
            traffic[n_nodes] = Traffic(library=library, network=shared)
        return np.array([_time_s(traffic[each.n_nodes], each, group) for each, group in zip(timed, members, strict=True)])

    return CalibrationPart(
        name="nccl",
        files=tuple(measured_file(path) for path in paths),
        measured=tuple(_measured(each) for each in timed),
        predict=predict,
        parameters=_parameters(target),
    )


def _by(algorithm: str | None, each: TimedCollective) -> TimedCollective:
    return each if algorithm is None or each.algorithm != AUTO else replace(each, algorithm=algorithm_of(algorithm))


def _cluster(node: Node, n_nodes: int) -> Cluster:
    """Return nodes on their own fabric; flows of one collective do not collide, as libraries and fabrics ensure."""
    return build_cluster(node, n_nodes, replace(node.fabric, routing="adaptive"))


def _time_s(traffic: Traffic, timed: TimedCollective, members: tuple[int, ...]) -> float:
    group = f"{timed.ranks_per_node} of each node"
    call = CollectiveCall(op=timed.op, group=group, size_bytes=timed.size_bytes, algorithm=timed.algorithm)
    operation = traffic.library.operation(call, (members,))
    return alone(traffic.phases_of(operation), traffic.network).duration_s


def _measured(each: TimedCollective) -> MeasuredTime:
    what = f"{each.op} of {format_quantity(each.size_bytes, 'B')} among {each.n_nodes} x {each.ranks_per_node}"
    what += "" if each.algorithm == AUTO else f" by {each.algorithm}"
    return MeasuredTime(file=each.file, what=what, time_s=each.time_s, weight=1.0 if each.size_bytes >= MIB else SMALL_WEIGHT)


def _parameters(target: CalibrationTarget) -> tuple[Parameter, ...]:
    """Return starts and ramps of all families, ceilings, and the usable share of links; constants without a measured collective stay."""
    found: list[Parameter] = []
    for family in ("ring", "tree", "nvls", "exchange"):
        found.append(parameter(target, f"network.families.{family}.start", spread=1.0, floor=1e-6))
        found.append(parameter(target, f"network.families.{family}.chunk", spread=1.0, floor=1e-9))
    tiers = [("network.efficiency.nvlink",), ("network.efficiency.pcie",)]
    between = tuple(f"network.efficiency.{tier}" for tier in ("nic", "leaf", "spine"))
    found += [parameter(target, *names, spread=0.2, most=1.0) for names in (*tiers, between)]
    ceilings = [f"network.ceilings.{ceiling}" for ceiling in ("nvls", "exchange", "pair", "peer")]
    return (*found, *(parameter(target, name, spread=0.2, most=1.0) for name in ceilings))
