"""All-reduce that adds in the switches of the domains, and over a double binary tree between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clustersim.collectives.collective_flows import NO_FLOWS, flow_set, joined
from clustersim.collectives.group_layout import largest_block, layouts, most_rails
from clustersim.collectives.nvls import check_adding_switch, in_switches, way_through_switch_s
from clustersim.collectives.pattern import Algorithm, Flows, Grouping, Pattern
from clustersim.collectives.tree import depth, trees_over_domains
from clustersim.errors import DomainError
from clustersim.topology.link_demand import Crossings
from clustersim.topology.wired import Cluster


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
