"""All-reduce in two levels: reduce inside each domain, all-reduce between domains, gather inside."""

from __future__ import annotations

from math import isqrt
from typing import Final

import numpy as np

from clustersim.collectives.collective_flows import NO_FLOWS, joined, wave
from clustersim.collectives.group_layout import chains, largest_block, layouts, most_rails, rings_over_domains
from clustersim.collectives.pattern import Algorithm, Flows, Grouping, MessageSchedule, Pattern, PatternStep, Wave
from clustersim.collectives.ring import ring_schedule
from clustersim.topology.cluster import Cluster, IntArray


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
    phases: list[tuple[Wave]] = []
    steps = largest_block(found) - 1
    outward = joined(inside)
    if steps:
        phases.append((wave(cluster, inside=outward.back(), between=NO_FLOWS, share=1 / n_rails, steps=(steps, 0)),))
    if between:
        over = (0, 2 * (group.n_domains - 1))
        phases.append((wave(cluster, inside=NO_FLOWS, between=joined(between), share=1 / n_rails, steps=over),))
    if steps:
        phases.append((wave(cluster, inside=outward, between=NO_FLOWS, share=1 / n_rails, steps=(steps, 0)),))
    return Pattern(phases=tuple(phases), uniform=group.per_domain > 0)


def hierarchical_schedule(n_ranks: int) -> MessageSchedule:
    """Return the messages for ranks in domains of the largest size that divides them and is not above their square root."""
    per_domain = max(size for size in range(1, isqrt(n_ranks) + 1) if n_ranks % size == 0)
    return two_level_schedule(n_ranks // per_domain, per_domain)


def two_level_schedule(n_domains: int, per_domain: int) -> MessageSchedule:
    """Return the messages for domains with a number of members each.

    Part ``j * n_domains + d`` goes by rail j, and ends its reduction in domain d.
    """
    inside = ring_schedule("all_reduce", per_domain).steps
    over = ring_schedule("all_reduce", n_domains).steps
    steps = (
        *(_in_every_domain(step, n_domains, per_domain) for step in inside[: per_domain - 1]),
        *(_on_every_rail(step, n_domains, per_domain) for step in over),
        *(_in_every_domain(step, n_domains, per_domain) for step in inside[per_domain - 1 :]),
    )
    return MessageSchedule(n_ranks=n_domains * per_domain, n_chunks=n_domains * per_domain, steps=steps)


def _in_every_domain(step: PatternStep, n_domains: int, per_domain: int) -> PatternStep:
    """Return a step between members, in all domains, with all parts of the rail that it names."""
    firsts = np.arange(n_domains, dtype=np.int64)[:, None, None] * per_domain
    parts = np.arange(n_domains, dtype=np.int64)
    sources, destinations = firsts + step.sources[:, None], firsts + step.destinations[:, None]
    return _flattened(sources, destinations, step.chunks[:, None] * n_domains + parts, reduces=step.reduces)


def _on_every_rail(step: PatternStep, n_domains: int, per_domain: int) -> PatternStep:
    """Return a step between domains, on all rails."""
    rails = np.arange(per_domain, dtype=np.int64)[:, None]
    sources, destinations = rails + step.sources * per_domain, rails + step.destinations * per_domain
    return _flattened(sources, destinations, rails * n_domains + step.chunks, reduces=step.reduces)


def _flattened(sources: IntArray, destinations: IntArray, chunks: IntArray, *, reduces: bool) -> PatternStep:
    every = np.broadcast_arrays(sources, destinations, chunks)
    return PatternStep(sources=every[0].reshape(-1), destinations=every[1].reshape(-1), chunks=every[2].reshape(-1), reduces=reduces)


HIERARCHICAL: Final = Algorithm(name="hierarchical", lay=lay_hierarchical, schedule=hierarchical_schedule)
