"""All-reduce in two levels: reduce inside each domain, all-reduce between domains, gather inside."""

from __future__ import annotations

from typing import Final

from clustersim.collectives.collective_flows import NO_FLOWS, flow_set, joined
from clustersim.collectives.group_layout import chains, largest_block, layouts, most_rails, rings_over_domains
from clustersim.collectives.pattern import Algorithm, Flows, FlowSet, Grouping, Pattern
from clustersim.topology.wired import Cluster


def lay_hierarchical(cluster: Cluster, group: Grouping) -> Pattern:
    """Return a two-level all-reduce in three phases, each over rings.

    In each domain a reduce-scatter leaves every rail's head with its share of the tensor, ``S / g``; rings of the heads of each
    rail add the shares up over the domains; an all-gather in each domain hands them out.
    """
    found = layouts(group)
    n_rails = most_rails(found)
    inside: list[Flows] = []
    between: list[Flows] = []
    for layout in found:
        factor = n_rails / layout.n_rails
        inside.append(chains(cluster, layout).times(factor))
        if layout.n_domains > 1:
            trips = 2 * (layout.n_domains - 1) / layout.n_domains
            between.append(rings_over_domains(layout).times(trips * factor))
    phases: list[tuple[FlowSet]] = []
    steps = largest_block(found) - 1
    outward = joined(inside)
    if steps:
        phases.append((flow_set(cluster, inside=outward.back(), between=NO_FLOWS, share=1 / n_rails, steps=(steps, 0)),))
    if between:
        over = (0, 2 * (group.n_domains - 1))
        phases.append((flow_set(cluster, inside=NO_FLOWS, between=joined(between), share=1 / n_rails, steps=over),))
    if steps:
        phases.append((flow_set(cluster, inside=outward, between=NO_FLOWS, share=1 / n_rails, steps=(steps, 0)),))
    return Pattern(phases=tuple(phases), uniform=group.per_domain > 0)


HIERARCHICAL: Final = Algorithm(name="hierarchical", lay=lay_hierarchical)
