"""Collectives with in-switch reduction and multicast inside a domain (NVLink SHARP), and a tree of domains between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import NO_FLOWS, flow_set, gathered, joined
from clustersim.collectives.group_layout import GroupLayout, largest_block, layouts, most_rails
from clustersim.collectives.pattern import Algorithm, Flows, FlowSet, Grouping, Pattern
from clustersim.collectives.ring import ROUNDS, RingOp
from clustersim.collectives.tree import depth, trees_over_domains
from clustersim.errors import DomainError
from clustersim.topology.cluster import IntArray
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster


def lay_nvls(op: RingOp, cluster: Cluster, group: Grouping) -> Pattern:
    """Return a collective that the switch of one domain performs.

    To add, the owner of a part, S/n, reads it through the switch, which reads it from all n members and sends the sum: up S from
    every member, down S/n. To hand out, the owner writes its part to the switch, which writes it to all n members: up S/n,
    down S. An all-reduce does both, ``(n + 1) / n * S`` each way.

    Raises
    ------
    DomainError
        The switch cannot add, there is none, or a group spans domains.

    References
    ----------
    .. [1] NVIDIA, *PTX ISA*, ``multimem.ld_reduce`` and ``multimem.st``: a multicast address stands for the memory of all devices
       that are bound to it, that of the caller included.
    """
    check_adding_switch(cluster, group, "nvls")
    if group.n_domains > 1:
        raise DomainError(
            f"nvls works inside one NVSwitch domain, and a group spans {group.n_domains}",
            hint="use nvls_tree, ring or tree",
        )
    members = group.members.reshape(-1)
    whole, part = 1.0, 1 / group.size
    ports, steps = {
        "all_reduce": (on_ports(cluster, members, up=whole + part, down=part + whole), 2),
        "all_gather": (on_ports(cluster, members, up=part, down=whole), 1),
        "reduce_scatter": (on_ports(cluster, members, up=whole, down=part), 1),
    }[op]
    switched = FlowSet(
        route_set=gathered([ports]),
        share=1.0,
        intra_steps=steps,
        inter_steps=0,
        intra_latency_s=way_through_switch_s(cluster, members),
        inter_latency_s=0.0,
        crossings=(ports,),
    )
    return Pattern(phases=((switched,),), uniform=True)


def without_adding_switch(cluster: Cluster, group: Grouping) -> tuple[int, ...]:
    """Return the kinds of nodes that some groups are on and whose switch cannot add, or that have none."""
    kinds: list[int] = np.unique(cluster.kind_of(cluster.node_of(group.members.reshape(-1)))).tolist()
    return tuple(kind for kind in kinds if not cluster.kinds[kind][0].scale_up.in_network_reduction)


def check_adding_switch(cluster: Cluster, group: Grouping, algorithm: str) -> None:
    """Raise a DomainError where the switch of a domain cannot add, or there is none."""
    for kind in without_adding_switch(cluster, group):
        raise DomainError(
            f"{algorithm} needs a switch that adds: {cluster.kinds[kind][0].name} has none",
            path=("cluster", "kinds", kind, "scale_up", "in_network_reduction"),
            hint="use ring or tree",
        )


def on_ports(cluster: Cluster, ranks: IntArray, *, up: float, down: float) -> Crossings:
    """Return a number of flows to and from the switch of each rank; a rank listed twice has twice as many."""
    ports = cluster.switch_ports(ranks)
    return Crossings(
        ranks=ranks,
        starts=2 * np.arange(len(ranks) + 1, dtype=np.int64),
        link_ids=ports.reshape(-1),
        amounts=np.tile(np.array([up, down]), len(ranks)),
        latency_s=cluster.latency_s[ports].sum(axis=1),
    )


def in_switches(cluster: Cluster, layout: GroupLayout, *, whole: float) -> tuple[Crossings, ...]:
    """Return what it takes each domain to add up a whole tensor at the heads of its rails, a share each, and to hand it out from there.

    Parameters
    ----------
    whole
        Flows that the tensor is; a member that is alone in its domain needs no switch.
    """
    part = whole / layout.n_rails
    crowded = layout.sizes > 1
    heads = layout.heads()[:, crowded].reshape(-1)
    members = layout.members[:, np.repeat(crowded, layout.sizes)].reshape(-1)
    return on_ports(cluster, members, up=whole, down=whole), on_ports(cluster, heads, up=part, down=part)


def way_through_switch_s(cluster: Cluster, ranks: IntArray) -> float:
    """Return the greatest latency from a rank to the switch and back, in seconds."""
    return float(cluster.latency_s[cluster.switch_ports(ranks)].sum(axis=1).max(initial=0.0))


NVLS: Final[Mapping[RingOp, Algorithm]] = MappingProxyType({op: Algorithm(name="nvls", lay=partial(lay_nvls, op)) for op in ROUNDS})
"""The switch of a domain, for the operations that it performs."""


def lay_nvls_tree(cluster: Cluster, group: Grouping) -> Pattern:
    """Return an all-reduce by switches inside domains and a double binary tree between them.

    In each domain the head of a rail reads the sum of its share, ``S / g``, through the switch; the two trees add the shares of
    the rail over the domains, half of it each; the heads write the results to all members. Everything flows at once.

    Raises
    ------
    DomainError
        The switches cannot add, there are none, or the group lies in one domain.
    """
    check_adding_switch(cluster, group, "nvls_tree")
    if group.n_domains == 1:
        raise DomainError("nvls_tree lays trees between scale-up domains, and the group lies in one", hint="use nvls or ring")
    found = layouts(group)
    n_rails = most_rails(found)
    between: list[Flows] = []
    switched: list[Crossings] = []
    for layout in found:
        factor = n_rails / layout.n_rails
        between.append(trees_over_domains(layout).times(factor))
        switched += in_switches(cluster, layout, whole=2.0 * n_rails)
    pipeline = flow_set(
        cluster,
        inside=NO_FLOWS,
        between=joined(between),
        share=1 / (2 * n_rails),
        steps=(2 if largest_block(found) > 1 else 0, 2 * depth(group.n_domains)),
        beside=switched,
    )
    latency_s = way_through_switch_s(cluster, group.members.reshape(-1))
    return Pattern(phases=((replace(pipeline, intra_latency_s=latency_s),),), uniform=group.per_domain > 0)


NVLS_TREE: Final = Algorithm(name="nvls_tree", lay=lay_nvls_tree)
